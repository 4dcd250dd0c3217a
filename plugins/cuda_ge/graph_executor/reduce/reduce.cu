// Reduce* over one group of neighbouring axes, float32.
#include "rows.cuh"

namespace {

using namespace aicore;

struct ReduceParams {
    std::int64_t outer, length, inner;
};

// What happens to each element before, and to the result after.
struct Plain {
    __device__ static float before(float x) { return x; }
    __device__ static float after(float x, std::int64_t) { return x; }
};
struct Mean : Plain {
    __device__ static float after(float x, std::int64_t n) { return x / static_cast<float>(n); }
};
struct Magnitude : Plain {
    __device__ static float before(float x) { return fabsf(x); }
};
struct Square : Plain {
    __device__ static float before(float x) { return x * x; }
};
struct Root : Square {
    __device__ static float after(float x, std::int64_t) { return sqrtf(x); }
};
struct Log : Plain {
    __device__ static float after(float x, std::int64_t) { return logf(x); }
};

// A row is contiguous: blockIdx walks over rows, the block over its elements.
template <class Op, class How> __global__ void reduce_rows(const float *x, float *y, const ReduceParams p) {
    __shared__ float shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    for (std::int64_t row = blockIdx.x; row < p.outer; row += gridDim.x) {
        float mine = Op::neutral();
        for (std::int64_t i = threadIdx.x; i < p.length; i += blockDim.x)
            mine = Op::join(mine, How::before(x[row * p.length + i]));
        mine = reduce_block<Op>(mine, shared);
        if (threadIdx.x == 0) y[row] = How::after(mine, p.length);
    }
}

constexpr int COLUMNS = 32, PARTS = 8;

// Columns are contiguous: a block takes 32 of them, and its 8 rows of threads an eighth of the length each.
template <class Op, class How> __global__ void reduce_columns(const float *x, float *y, const ReduceParams p) {
    __shared__ float shared[PARTS][COLUMNS];
    let_next_begin();
    wait_for_previous();
    const std::int64_t tiles = (p.inner + COLUMNS - 1) / COLUMNS;
    for (std::int64_t t = blockIdx.x; t < p.outer * tiles; t += gridDim.x) {
        const std::int64_t outer = t / tiles, column = t % tiles * COLUMNS + threadIdx.x;
        float mine = Op::neutral();
        if (column < p.inner)
            for (std::int64_t i = threadIdx.y; i < p.length; i += PARTS)
                mine = Op::join(mine, How::before(x[(outer * p.length + i) * p.inner + column]));
        shared[threadIdx.y][threadIdx.x] = mine;
        __syncthreads();
        if (threadIdx.y == 0 && column < p.inner) {
            for (int part = 1; part < PARTS; part++) mine = Op::join(mine, shared[part][threadIdx.x]);
            y[outer * p.inner + column] = How::after(mine, p.length);
        }
        __syncthreads();
    }
}

template <class Op, class How> int reduce(void *const *pointers, const ReduceParams &p, cudaStream_t stream) {
    const float *x = static_cast<const float *>(pointers[0]);
    float *y = static_cast<float *>(pointers[1]);
    if (p.outer * p.inner == 0) return 0;
    if (p.inner == 1)
        return launch_early(reduce_rows<Op, How>, row_blocks(p.outer), threads_for(p.length), 0, stream, x, y, p);
    const std::int64_t tiles = p.outer * ((p.inner + COLUMNS - 1) / COLUMNS);
    return launch_early(reduce_columns<Op, How>, row_blocks(tiles), dim3(COLUMNS, PARTS), 0, stream, x, y, p);
}

constexpr auto reduce_sum = reduce<Sum, Plain>;
constexpr auto reduce_mean = reduce<Sum, Mean>;
constexpr auto reduce_prod = reduce<Product, Plain>;
constexpr auto reduce_max = reduce<Largest, Plain>;
constexpr auto reduce_min = reduce<Smallest, Plain>;
constexpr auto reduce_l1 = reduce<Sum, Magnitude>;
constexpr auto reduce_l2 = reduce<Sum, Root>;
constexpr auto reduce_sum_square = reduce<Sum, Square>;
constexpr auto reduce_log_sum = reduce<Sum, Log>;

AICORE_KERNEL(reduce_sum, ReduceParams, 2, reduce_sum);
AICORE_KERNEL(reduce_mean, ReduceParams, 2, reduce_mean);
AICORE_KERNEL(reduce_prod, ReduceParams, 2, reduce_prod);
AICORE_KERNEL(reduce_max, ReduceParams, 2, reduce_max);
AICORE_KERNEL(reduce_min, ReduceParams, 2, reduce_min);
AICORE_KERNEL(reduce_l1, ReduceParams, 2, reduce_l1);
AICORE_KERNEL(reduce_l2, ReduceParams, 2, reduce_l2);
AICORE_KERNEL(reduce_sum_square, ReduceParams, 2, reduce_sum_square);
AICORE_KERNEL(reduce_log_sum, ReduceParams, 2, reduce_log_sum);

}  // namespace
