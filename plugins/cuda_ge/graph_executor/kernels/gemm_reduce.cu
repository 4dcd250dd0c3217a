// Adds the partial sums that a split product left in the workspace, in order, and applies the tail.
#include "../ge/kernel.cuh"
#include "gemm.cuh"

namespace {

using namespace aicore;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) reduce(const float *partial, const float *c, float *y, const Gemm gemm) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t matrix = gemm.rows * gemm.columns, size = gemm.batch * matrix;
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= size) return;
    float sum = 0.0f;
    for (std::int64_t split = 0; split < gemm.splits; split++) sum += partial[split * size + i];
    const std::int64_t within = i % matrix;
    const std::int64_t row = gemm.y_column == 1 ? within / gemm.columns : within % gemm.rows;
    const std::int64_t column = gemm.y_column == 1 ? within % gemm.columns : within / gemm.rows;
    float added = 0.0f;
    if (c != nullptr) {
        const BatchOffsets offsets = batch_offsets(gemm, static_cast<std::uint32_t>(i / matrix));
        added = c[offsets.c + row * gemm.tail.c_row + column * gemm.tail.c_column];
    }
    y[i] = finish(gemm.tail, sum, c != nullptr, added);
}

int gemm_reduce(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    const std::int64_t size = gemm.batch * gemm.rows * gemm.columns;
    if (size == 0) return cudaSuccess;
    const GemmPointers<float> on(pointers, gemm);
    return launch_early(reduce, blocks_for(size, kThreads), kThreads, 0, stream, on.workspace, on.c, on.y, gemm);
}
AICORE_KERNEL(gemm_reduce, Gemm, 4, gemm_reduce);

}  // namespace
