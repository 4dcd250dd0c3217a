// Matrix products of every element type.
//
// 1. naive: a thread for each element of y reads a row of a and a column of b. This is what the others must equal.
// 2. blocked: 16 x 16 threads bring a block of a and one of b into shared memory, and each number is used 16 times.
// gemm_tile.cuh goes on from there.
#include <type_traits>

#include "../ge/kernel.cuh"
#include "gemm.cuh"
#include "scalars.cuh"

namespace {

using namespace aicore;

// The type in which T is summed. Integers wrap, so signed ones are summed as unsigned ones.
template <class T>
struct SumOf {
    using Type = float;
};
template <>
struct SumOf<double> {
    using Type = double;
};
template <>
struct SumOf<std::uint32_t> {
    using Type = std::uint32_t;
};
template <>
struct SumOf<std::uint64_t> {
    using Type = std::uint64_t;
};

template <class T>
__device__ __forceinline__ typename SumOf<T>::Type to_sum(T x) {
    if constexpr (std::is_same<typename SumOf<T>::Type, T>::value)
        return x;
    else
        return widen(x);
}

// The tail; only float32 and narrower types have an activation, and integers are not scaled.
template <class T>
__device__ __forceinline__ T with_tail(const Tail &tail, typename SumOf<T>::Type sum, const T *c) {
    if constexpr (std::is_integral<T>::value)
        return c == nullptr ? sum : sum + *c;
    else if constexpr (std::is_same<T, double>::value)
        return c == nullptr ? tail.alpha * sum : tail.alpha * sum + tail.beta * *c;
    else
        return narrow<T>(finish(tail, sum, c != nullptr, c == nullptr ? 0.0f : widen(*c)));
}

template <class T>
__device__ __forceinline__ void store(const Gemm &gemm, const T *c, T *y, std::int64_t batch, std::int64_t c_offset,
                                      std::int64_t row, std::int64_t column, typename SumOf<T>::Type sum) {
    const T *at_c = c == nullptr ? nullptr : c + c_offset + row * gemm.tail.c_row + column * gemm.tail.c_column;
    y[batch * gemm.rows * gemm.columns + row * gemm.y_row + column * gemm.y_column] = with_tail(gemm.tail, sum, at_c);
}

constexpr int kThreads = 256;

template <class T>
__global__ void naive(const T *a, const T *b, const T *c, T *y, const Gemm gemm) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t column = i % gemm.columns, row = i / gemm.columns % gemm.rows;
    const std::int64_t batch = i / gemm.columns / gemm.rows;
    if (batch >= gemm.batch) return;
    const BatchOffsets offsets = batch_offsets(gemm, static_cast<std::uint32_t>(batch));
    a += offsets.a + row * gemm.a_row;
    b += offsets.b + column * gemm.b_column;
    typename SumOf<T>::Type sum = 0;
    for (std::int64_t k = 0; k < gemm.inner; k++) sum += to_sum(a[k * gemm.a_inner]) * to_sum(b[k * gemm.b_inner]);
    store(gemm, c, y, batch, offsets.c, row, column, sum);
}

constexpr int kSide = 16;

template <class T>
__global__ void __launch_bounds__(kSide *kSide)
    blocked(const T *a, const T *b, const T *c, T *y, const Gemm gemm) {
    using Sum = typename SumOf<T>::Type;
    __shared__ Sum part_a[kSide][kSide + 1], part_b[kSide][kSide + 1];
    wait_for_previous();
    let_next_begin();
    const std::uint32_t block_rows = static_cast<std::uint32_t>((gemm.rows + kSide - 1) / kSide);
    const std::uint32_t block_columns = static_cast<std::uint32_t>((gemm.columns + kSide - 1) / kSide);
    const TileAt at = tile_at(blockIdx.x, block_rows, block_columns, 8);
    const BatchOffsets offsets = batch_offsets(gemm, at.batch);
    const int x = threadIdx.x, z = threadIdx.y;
    const std::int64_t row = static_cast<std::int64_t>(at.row) * kSide + z;
    const std::int64_t column = static_cast<std::int64_t>(at.column) * kSide + x;
    // Neighbouring threads read along the axis whose stride is 1.
    const int a_z = gemm.a_inner == 1 ? z : x, a_x = gemm.a_inner == 1 ? x : z;
    const int b_z = gemm.b_column == 1 ? z : x, b_x = gemm.b_column == 1 ? x : z;
    const std::int64_t a_row = row - z + a_z, b_column = column - x + b_x;
    a += offsets.a + a_row * gemm.a_row;
    b += offsets.b + b_column * gemm.b_column;
    Sum sum = 0;
    for (std::int64_t k = 0; k < gemm.inner; k += kSide) {
        part_a[a_z][a_x] =
            a_row < gemm.rows && k + a_x < gemm.inner ? to_sum(a[(k + a_x) * gemm.a_inner]) : static_cast<Sum>(0);
        part_b[b_z][b_x] =
            b_column < gemm.columns && k + b_z < gemm.inner ? to_sum(b[(k + b_z) * gemm.b_inner]) : static_cast<Sum>(0);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kSide; i++) sum += part_a[z][i] * part_b[i][x];
        __syncthreads();
    }
    if (row < gemm.rows && column < gemm.columns) store(gemm, c, y, at.batch, offsets.c, row, column, sum);
}

template <class T>
int launch(bool in_blocks, void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    if (gemm.rows == 0 || gemm.columns == 0 || gemm.batch == 0) return cudaSuccess;
    const GemmPointers<T> on(pointers, gemm);
    if (!in_blocks)
        return launch_early(naive<T>, blocks_for(gemm.batch * gemm.rows * gemm.columns, kThreads), kThreads, 0, stream,
                            on.a, on.b, on.c, on.y, gemm);
    const std::int64_t blocks = (gemm.rows + kSide - 1) / kSide * ((gemm.columns + kSide - 1) / kSide) * gemm.batch;
    return launch_early(blocked<T>, static_cast<unsigned>(blocks), dim3(kSide, kSide), 0, stream, on.a, on.b, on.c, on.y,
                        gemm);
}

#define AICORE_SIMPLE_GEMM(NAME, T)                                                                          \
    int gemm_naive_##NAME(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {                    \
        return launch<T>(false, pointers, gemm, stream);                                                     \
    }                                                                                                        \
    AICORE_KERNEL(gemm_naive_##NAME, Gemm, 3, gemm_naive_##NAME);                                            \
    int gemm_blocked_##NAME(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {                  \
        return launch<T>(true, pointers, gemm, stream);                                                      \
    }                                                                                                        \
    AICORE_KERNEL(gemm_blocked_##NAME, Gemm, 3, gemm_blocked_##NAME)

AICORE_SIMPLE_GEMM(float32, float);
AICORE_SIMPLE_GEMM(float64, double);
AICORE_SIMPLE_GEMM(float16, __half);
AICORE_SIMPLE_GEMM(bfloat16, __nv_bfloat16);
AICORE_SIMPLE_GEMM(int32, std::uint32_t);
AICORE_SIMPLE_GEMM(int64, std::uint64_t);

}  // namespace
