// Reduce* over the middle of [outer][length][inner]: one group of neighbouring axes. Or over two such groups, axes 0 and 2
// of [outer][kept][length][inner], as in sums over all pixels of each channel.
//
// rows:    inner is 1, a row is contiguous; a team walks over it.
// columns: neighbouring threads take neighbouring packs of columns, and rows of threads share the length.
// Where there are too few rows or columns to keep a GPU busy, the length is cut: each block leaves what it joined in
// the workspace, [splits][outer][inner], and a second launch of `columns` joins that, always in the same order.
// Of two groups the second one goes first, into the workspace; what is left there is [splits][outer] over [kept][inner].
#include "rows.cuh"

namespace {

using namespace aicore;

// What happens to each element before it is joined; it leaves the neutral number of its Op as it is.
struct Plain {
    template <class C> __device__ static C of(C x) { return x; }
};
struct Magnitude {
    template <class C> __device__ static C of(C x) { return x < C(0) ? -x : x; }
};
struct Square {
    template <class C> __device__ static C of(C x) { return x * x; }
};

// What happens to the result; the numbers are part of the params that Python packs.
enum After : std::int64_t { kNothing = 0, kMean = 1, kRoot = 2, kLogarithm = 3 };

struct ReduceParams {
    std::int64_t outer, length, inner;
    std::int64_t splits;  // parts that the length is cut into; above 1 there is a workspace
    std::int64_t after;
};

struct PairParams {
    std::int64_t outer, kept, length, inner;
    std::int64_t splits, later_splits;  // of the length, and of what is left for the second launch
    std::int64_t after;
};

// One launch of it. count: how many elements a result is made of, for the mean.
struct Stage {
    std::int64_t outer, length, inner, splits, after, count;
};

template <class C> __device__ __forceinline__ C finished(C x, const Stage &s) {
    if (s.after == kMean) return x / static_cast<C>(s.count);
    if (s.after == kRoot) return root(x);
    return s.after == kLogarithm ? logarithm(x) : x;
}

// y, or the workspace where a later launch joins what this one leaves.
template <class C, class Y>
__device__ __forceinline__ void leave(C x, std::int64_t at, unsigned split, Y *y, C *partial, const Stage &s) {
    if (partial != nullptr) partial[split * s.outer * s.inner + at] = x;
    else y[at] = Number<Y>::narrow(finished(x, s));
}

// Where a part begins: a multiple of the width of a pack.
template <class T> __device__ __forceinline__ std::int64_t begin_of(std::int64_t part, const Stage &s, int width) {
    const std::int64_t packs = (s.length + 2 * width - 1) / width;  // a row between two packs touches one more
    return (packs * part + s.splits - 1) / s.splits * width;
}

template <class Op, class Before, class T, bool BLOCK>
__global__ void __launch_bounds__(512) reduce_rows(const T *x, T *y, Wide<T> *partial, const Stage s, int lanes) {
    using C = Wide<T>;
    constexpr int kWidth = Pack<T>::kWidth;
    __shared__ C shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    const int lane = BLOCK ? threadIdx.x : threadIdx.x % lanes, rows = BLOCK ? 1 : blockDim.x / lanes;
    const int mine = BLOCK ? 0 : threadIdx.x / lanes;
    const std::int64_t begin = s.splits == 1 ? 0 : begin_of<T>(blockIdx.y, s, kWidth);
    const std::int64_t end = s.splits == 1 ? s.length + kWidth : begin_of<T>(blockIdx.y + 1, s, kWidth);
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows; first < s.outer;
         first += static_cast<std::int64_t>(gridDim.x) * rows) {
        const std::int64_t row = first + mine;
        const int shift = shift_of<T>(row, s.length);
        const bool exists = row < s.outer;  // threads without a row take part in shuffles
        const std::int64_t last = end - shift < s.length ? end - shift : s.length;
        C joined[kWidth];
#pragma unroll
        for (int e = 0; e < kWidth; e++) joined[e] = Op::template neutral<C>();
        walk(x + row * s.length, s.length, begin - shift, exists ? last : begin - shift, lane, BLOCK ? blockDim.x : lanes,
             Op::template neutral<C>(), [&](const C *pack, std::int64_t) {
#pragma unroll
                 for (int e = 0; e < kWidth; e++) joined[e] = Op::join(joined[e], Before::of(pack[e]));
             });
#pragma unroll
        for (int e = 1; e < kWidth; e++) joined[0] = Op::join(joined[0], joined[e]);
        const C all = reduce_team<BLOCK, Op>(joined[0], lanes, shared);
        if (lane == 0 && exists) leave(all, row, blockIdx.y, y, partial, s);
    }
}

constexpr int kColumnThreads = 256, kRowsAhead = 8;

// WIDTH columns for each lane: a pack where rows begin at multiples of 16 bytes, else one.
template <class Op, class Before, class T, class Y, int WIDTH>
__global__ void __launch_bounds__(kColumnThreads)
    reduce_columns(const T *x, Y *y, Wide<T> *partial, const Stage s) {
    using C = Wide<T>;
    __shared__ C shared[kColumnThreads * WIDTH];
    let_next_begin();
    wait_for_previous();
    const int lanes = blockDim.x, parts = blockDim.y, self = threadIdx.y * lanes + threadIdx.x;
    const std::int64_t tile_width = static_cast<std::int64_t>(lanes) * WIDTH;
    const std::int64_t tiles = (s.inner + tile_width - 1) / tile_width;
    const std::int64_t each = (s.length + s.splits - 1) / s.splits, begin = blockIdx.y * each;
    const std::int64_t end = begin + each < s.length ? begin + each : s.length;
    for (std::int64_t tile = blockIdx.x; tile < s.outer * tiles; tile += gridDim.x) {
        const std::int64_t outer = tile / tiles, column = tile % tiles * tile_width + threadIdx.x * WIDTH;
        const T *from = x + outer * s.length * s.inner + column;
        C joined[WIDTH];
#pragma unroll
        for (int e = 0; e < WIDTH; e++) joined[e] = Op::template neutral<C>();
        for (std::int64_t i = begin + threadIdx.y; i < end && column < s.inner; i += kRowsAhead * parts) {
            C rows[kRowsAhead][WIDTH];
#pragma unroll
            for (int k = 0; k < kRowsAhead; k++) {
                const std::int64_t row = i + k * parts;
                if (row >= end) continue;
                if constexpr (WIDTH > 1) read_pack<T>(from + row * s.inner, 0, WIDTH, C(0), rows[k]);
                else rows[k][0] = Number<T>::widen(from[row * s.inner]);
            }
#pragma unroll
            for (int k = 0; k < kRowsAhead; k++)
#pragma unroll
                for (int e = 0; e < WIDTH; e++)
                    if (i + k * parts < end) joined[e] = Op::join(joined[e], Before::of(rows[k][e]));
        }
#pragma unroll
        for (int e = 0; e < WIDTH; e++) shared[self * WIDTH + e] = joined[e];
        __syncthreads();
        for (int step = parts / 2; step > 0; step /= 2) {
            if (threadIdx.y < step)
#pragma unroll
                for (int e = 0; e < WIDTH; e++) {
                    C &mine = shared[self * WIDTH + e];
                    mine = Op::join(mine, shared[(self + step * lanes) * WIDTH + e]);
                }
            __syncthreads();
        }
        if (threadIdx.y == 0 && column < s.inner)
#pragma unroll
            for (int e = 0; e < WIDTH; e++)
                leave(shared[self * WIDTH + e], outer * s.inner + column + e, blockIdx.y, y, partial, s);
        __syncthreads();  // before the next tile overwrites what others still read
    }
}

template <class Op, class Before, class T, class Y, int WIDTH>
int launch_columns(const T *x, Y *y, Wide<T> *partial, const Stage &s, cudaStream_t stream) {
    const unsigned lanes = column_lanes((s.inner + WIDTH - 1) / WIDTH);
    unsigned parts = kColumnThreads / lanes;
    while (parts > 1 && parts / 2 >= s.length) parts /= 2;
    const std::int64_t tile_width = static_cast<std::int64_t>(lanes) * WIDTH;
    const dim3 grid(row_blocks(s.outer * ((s.inner + tile_width - 1) / tile_width)), static_cast<unsigned>(s.splits));
    return launch_early(reduce_columns<Op, Before, T, Y, WIDTH>, grid, dim3(lanes, parts), 0, stream, x, y, partial, s);
}

template <class Op, class Before, class T>
int launch_rows(const T *x, T *y, Wide<T> *partial, const Stage &s, cudaStream_t stream) {
    constexpr int kWidth = Pack<T>::kWidth, kMostOfWarp = 16 * WARP;
    const std::int64_t packs = (s.length / s.splits + kWidth - 1) / kWidth;
    const unsigned splits = static_cast<unsigned>(s.splits);
    if (packs > kMostOfWarp || s.splits > 1)
        return launch_early(reduce_rows<Op, Before, T, true>, dim3(row_blocks(s.outer), splits), 256, 0, stream, x, y,
                            partial, s, 256);
    unsigned lanes = 1, threads = 256;
    while (lanes < WARP && lanes * 4 < packs) lanes *= 2;
    while (threads > WARP && s.outer * lanes < static_cast<std::int64_t>(threads) * kBusyBlocks) threads /= 2;
    return launch_early(reduce_rows<Op, Before, T, false>, row_blocks(s.outer, threads / lanes), threads, 0, stream, x, y,
                        partial, s, static_cast<int>(lanes));
}

template <class Op, class Before, class T>
int launch_first(const T *x, T *y, Wide<T> *partial, const Stage &s, cudaStream_t stream) {
    if (s.inner == 1) return launch_rows<Op, Before>(x, y, partial, s, stream);
    if (s.inner % Pack<T>::kWidth != 0) return launch_columns<Op, Before, T, T, 1>(x, y, partial, s, stream);
    return launch_columns<Op, Before, T, T, Pack<T>::kWidth>(x, y, partial, s, stream);
}

template <class Op, class Before, class T>
int reduce(void *const *pointers, const ReduceParams &p, cudaStream_t stream) {
    T *y = static_cast<T *>(pointers[1]);
    Wide<T> *partial = p.splits > 1 ? static_cast<Wide<T> *>(pointers[2]) : nullptr;
    if (p.outer * p.inner == 0) return cudaSuccess;
    const Stage first = {p.outer, p.length, p.inner, p.splits, p.after, p.length};
    const int status = launch_first<Op, Before, T>(static_cast<const T *>(pointers[0]), y, partial, first, stream);
    if (p.splits == 1 || status != cudaSuccess) return status;
    const Stage second = {1, p.splits, p.outer * p.inner, 1, p.after, p.length};
    return launch_columns<Op, Plain, Wide<T>, T, 1>(partial, y, nullptr, second, stream);
}

template <class Op, class Before, class T>
int reduce_pair(void *const *pointers, const PairParams &p, cudaStream_t stream) {
    T *y = static_cast<T *>(pointers[1]);
    Wide<T> *partial = static_cast<Wide<T> *>(pointers[2]);
    const std::int64_t results = p.kept * p.inner, left = p.splits * p.outer, count = p.outer * p.length;
    if (results == 0) return cudaSuccess;
    const Stage first = {p.outer * p.kept, p.length, p.inner, p.splits, kNothing, p.length};
    int status = launch_first<Op, Before, T>(static_cast<const T *>(pointers[0]), nullptr, partial, first, stream);
    if (status != cudaSuccess) return status;
    Wide<T> *later = p.later_splits > 1 ? partial + left * results : nullptr;
    const Stage second = {1, left, results, p.later_splits, p.after, count};
    status = launch_columns<Op, Plain, Wide<T>, T, 1>(partial, y, later, second, stream);
    if (later == nullptr || status != cudaSuccess) return status;
    const Stage third = {1, p.later_splits, results, 1, p.after, count};
    return launch_columns<Op, Plain, Wide<T>, T, 1>(later, y, nullptr, third, stream);
}

#define AICORE_REDUCE(NAME, TYPE)                                                        \
    constexpr auto sum_of_##NAME = reduce<Sum, Plain, TYPE>;                             \
    constexpr auto magnitudes_of_##NAME = reduce<Sum, Magnitude, TYPE>;                  \
    constexpr auto squares_of_##NAME = reduce<Sum, Square, TYPE>;                        \
    constexpr auto product_of_##NAME = reduce<Product, Plain, TYPE>;                     \
    constexpr auto largest_of_##NAME = reduce<Largest, Plain, TYPE>;                     \
    constexpr auto smallest_of_##NAME = reduce<Smallest, Plain, TYPE>;                   \
    AICORE_KERNEL(reduce_sum_##NAME, ReduceParams, 3, sum_of_##NAME);                    \
    AICORE_KERNEL(reduce_magnitudes_##NAME, ReduceParams, 3, magnitudes_of_##NAME);      \
    AICORE_KERNEL(reduce_squares_##NAME, ReduceParams, 3, squares_of_##NAME);            \
    AICORE_KERNEL(reduce_product_##NAME, ReduceParams, 3, product_of_##NAME);            \
    AICORE_KERNEL(reduce_largest_##NAME, ReduceParams, 3, largest_of_##NAME);            \
    AICORE_KERNEL(reduce_smallest_##NAME, ReduceParams, 3, smallest_of_##NAME);          \
    constexpr auto pair_sum_of_##NAME = reduce_pair<Sum, Plain, TYPE>;                   \
    constexpr auto pair_magnitudes_of_##NAME = reduce_pair<Sum, Magnitude, TYPE>;        \
    constexpr auto pair_squares_of_##NAME = reduce_pair<Sum, Square, TYPE>;              \
    constexpr auto pair_product_of_##NAME = reduce_pair<Product, Plain, TYPE>;           \
    constexpr auto pair_largest_of_##NAME = reduce_pair<Largest, Plain, TYPE>;           \
    constexpr auto pair_smallest_of_##NAME = reduce_pair<Smallest, Plain, TYPE>;         \
    AICORE_KERNEL(reduce_pair_sum_##NAME, PairParams, 3, pair_sum_of_##NAME);            \
    AICORE_KERNEL(reduce_pair_magnitudes_##NAME, PairParams, 3, pair_magnitudes_of_##NAME); \
    AICORE_KERNEL(reduce_pair_squares_##NAME, PairParams, 3, pair_squares_of_##NAME);    \
    AICORE_KERNEL(reduce_pair_product_##NAME, PairParams, 3, pair_product_of_##NAME);    \
    AICORE_KERNEL(reduce_pair_largest_##NAME, PairParams, 3, pair_largest_of_##NAME);    \
    AICORE_KERNEL(reduce_pair_smallest_##NAME, PairParams, 3, pair_smallest_of_##NAME)

AICORE_REDUCE(float32, float);
AICORE_REDUCE(float16, __half);
AICORE_REDUCE(bfloat16, __nv_bfloat16);
AICORE_REDUCE(float64, double);

}  // namespace
