// Softmax and LogSoftmax over the middle of [outer][length][inner]; in float32 for narrower types.
//
// held:    a team keeps its row in registers: the largest element, the sum of exponentials, the result.
// long:    a row too long for that is walked over twice. The first walk keeps the largest element so far and the sum of
//          exponentials beside it, which is corrected whenever a larger one comes (Milakov and Gimelshein, 2018).
// columns: neighbouring threads take neighbouring columns, and rows of threads share the length, as in `long`.
#include "../reduce/rows.cuh"

namespace {

using namespace aicore;

struct SoftmaxParams {
    std::int64_t outer, length, inner;
};

template <bool LOG, class T, int N, bool BLOCK>
__global__ void __launch_bounds__(BLOCK ? kLargestTeam : 256) softmax_held(const T *x, T *y, const SoftmaxParams p, int team) {
    __shared__ Wide<T> shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    const int lanes = lanes_of<N, BLOCK>(team);
    const int lane = BLOCK ? threadIdx.x : threadIdx.x % lanes, rows = BLOCK ? 1 : blockDim.x / lanes;
    const int mine = BLOCK ? 0 : threadIdx.x / lanes;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows; first < p.outer;
         first += static_cast<std::int64_t>(gridDim.x) * rows) {
        const std::int64_t row = first + mine;
        const bool exists = row < p.outer;  // threads without a row take part in shuffles
        Held<T, N> held(lane, lanes, exists ? static_cast<int>(p.length) : 0, shift_of<T>(row, p.length));
        held.read(x + row * p.length, -INFINITY);
        const Wide<T> largest = reduce_team<BLOCK, Largest>(held.template joined<Largest>(), lanes, shared);
        Wide<T> sum = 0;
#pragma unroll
        for (int i = 0; i < held.kCount; i++) {
            const Wide<T> off = held.of[i] - largest, power = exponential(off);
            sum += power;
            held.of[i] = LOG ? off : power;
        }
        sum = reduce_team<BLOCK, Sum>(sum, lanes, shared);
        const Wide<T> change = LOG ? -logarithm(sum) : 1 / sum;
#pragma unroll
        for (int i = 0; i < held.kCount; i++) held.of[i] = LOG ? held.of[i] + change : held.of[i] * change;
        held.write(y + row * p.length);
    }
}

// The largest of some numbers, and the sum of exponentials of their distances to it.
template <class C> struct Running {
    C largest, sum;

    __device__ static Running none() { return {C(-INFINITY), C(0)}; }

    // While everything is -infinity there is no distance; the sum stays 0.
    __device__ __forceinline__ void add(Running other) {
        const C both = Largest::join(largest, other.largest), base = both == C(-INFINITY) ? C(0) : both;
        sum = sum * exponential(largest - base) + other.sum * exponential(other.largest - base);
        largest = both;
    }
};

template <bool LOG, class C> __device__ __forceinline__ C result(C x, const Running<C> &row) {
    return LOG ? (x - row.largest) - logarithm(row.sum) : exponential(x - row.largest) / row.sum;
}

template <bool LOG, class T>
__global__ void __launch_bounds__(1024) softmax_long(const T *x, T *y, const SoftmaxParams p) {
    using C = Wide<T>;
    constexpr int kWidth = Pack<T>::kWidth;
    __shared__ C shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    for (std::int64_t row = blockIdx.x; row < p.outer; row += gridDim.x) {
        const T *from = x + row * p.length;
        T *to = y + row * p.length;
        const int shift = shift_of<T>(row, p.length);
        Running<C> seen = Running<C>::none();
        walk(from, p.length, -shift, p.length, threadIdx.x, blockDim.x, C(-INFINITY), [&](const C *pack, std::int64_t) {
            C largest = seen.largest;
#pragma unroll
            for (int e = 0; e < kWidth; e++) largest = Largest::join(largest, pack[e]);
            const C base = largest == C(-INFINITY) ? C(0) : largest;
            seen.sum *= exponential(seen.largest - base);
#pragma unroll
            for (int e = 0; e < kWidth; e++) seen.sum += exponential(pack[e] - base);
            seen.largest = largest;
        });
        Running<C> all = {reduce_block<Largest>(seen.largest, shared), C(0)};
        const C base = all.largest == C(-INFINITY) ? C(0) : all.largest;
        all.sum = reduce_block<Sum>(seen.sum * exponential(seen.largest - base), shared);
        walk(from, p.length, -shift, p.length, threadIdx.x, blockDim.x, C(0), [&](const C *pack, std::int64_t at) {
            C results[kWidth];
#pragma unroll
            for (int e = 0; e < kWidth; e++) results[e] = result<LOG>(pack[e], all);
            write_pack<T>(to, at, p.length, results);
        });
    }
}

constexpr int kColumnThreads = 256;

template <bool LOG, class T>
__global__ void __launch_bounds__(kColumnThreads) softmax_columns(const T *x, T *y, const SoftmaxParams p) {
    using C = Wide<T>;
    __shared__ C largest[kColumnThreads], sums[kColumnThreads];
    let_next_begin();
    wait_for_previous();
    const int lanes = blockDim.x, parts = blockDim.y, self = threadIdx.y * lanes + threadIdx.x;
    const std::int64_t tiles = (p.inner + lanes - 1) / lanes;
    for (std::int64_t tile = blockIdx.x; tile < p.outer * tiles; tile += gridDim.x) {
        const std::int64_t column = tile % tiles * lanes + threadIdx.x;
        const std::int64_t start = tile / tiles * p.length * p.inner + column;
        const bool exists = column < p.inner;
        Running<C> seen = Running<C>::none();
        if (exists)
            for (std::int64_t i = threadIdx.y; i < p.length; i += parts)
                seen.add({Number<T>::widen(x[start + i * p.inner]), C(1)});
        for (int step = parts / 2; step > 0; step /= 2) {
            largest[self] = seen.largest;
            sums[self] = seen.sum;
            __syncthreads();
            if (threadIdx.y < step) seen.add({largest[self + step * lanes], sums[self + step * lanes]});
            __syncthreads();
        }
        if (threadIdx.y == 0) {
            largest[self] = seen.largest;
            sums[self] = seen.sum;
        }
        __syncthreads();
        seen = {largest[threadIdx.x], sums[threadIdx.x]};
        if (exists)
            for (std::int64_t i = threadIdx.y; i < p.length; i += parts) {
                const std::int64_t at = start + i * p.inner;
                y[at] = Number<T>::narrow(result<LOG>(Number<T>::widen(x[at]), seen));
            }
        __syncthreads();  // before the next tile overwrites what others still read
    }
}

template <bool LOG, class T, int N, bool BLOCK>
int launch_held(const T *x, T *y, const SoftmaxParams &p, const RowPlan &plan, cudaStream_t stream) {
    return launch_early(softmax_held<LOG, T, N, BLOCK>, row_blocks(p.outer, plan.rows), plan.threads, 0, stream, x, y, p,
                        static_cast<int>(plan.lanes));
}

template <bool LOG, class T>
int launch_rows(const T *x, T *y, const SoftmaxParams &p, cudaStream_t stream) {
    const RowPlan plan = plan_rows(p.outer, p.length, Pack<T>::kWidth, kMostPacks<T>);
    if (plan.packs == 0) return launch_early(softmax_long<LOG, T>, row_blocks(p.outer), 1024, 0, stream, x, y, p);
    if (plan.block) return launch_held<LOG, T, kMostPacks<T>, true>(x, y, p, plan, stream);
    if (plan.packs == 1) return launch_held<LOG, T, 1, false>(x, y, p, plan, stream);
    if (plan.packs == 2) return launch_held<LOG, T, 2, false>(x, y, p, plan, stream);
    if (plan.packs == 4) return launch_held<LOG, T, 4, false>(x, y, p, plan, stream);
    return launch_held<LOG, T, kMostPacks<T>, false>(x, y, p, plan, stream);
}

template <bool LOG, class T> int softmax(void *const *pointers, const SoftmaxParams &p, cudaStream_t stream) {
    const T *x = static_cast<const T *>(pointers[0]);
    T *y = static_cast<T *>(pointers[1]);
    if (p.outer * p.length * p.inner == 0) return cudaSuccess;
    if (p.inner == 1) return launch_rows<LOG>(x, y, p, stream);
    const unsigned lanes = column_lanes(p.inner);
    unsigned parts = kColumnThreads / lanes;
    while (parts > 1 && parts / 2 >= p.length) parts /= 2;
    return launch_early(softmax_columns<LOG, T>, row_blocks(p.outer * ((p.inner + lanes - 1) / lanes)),
                        dim3(lanes, parts), 0, stream, x, y, p);
}

#define AICORE_SOFTMAX(NAME, TYPE)                                     \
    constexpr auto softmax_of_##NAME = softmax<false, TYPE>;           \
    constexpr auto log_softmax_of_##NAME = softmax<true, TYPE>;        \
    AICORE_KERNEL(softmax_##NAME, SoftmaxParams, 2, softmax_of_##NAME); \
    AICORE_KERNEL(log_softmax_##NAME, SoftmaxParams, 2, log_softmax_of_##NAME)

AICORE_SOFTMAX(float32, float);
AICORE_SOFTMAX(float16, __half);
AICORE_SOFTMAX(bfloat16, __nv_bfloat16);
AICORE_SOFTMAX(float64, double);

}  // namespace
