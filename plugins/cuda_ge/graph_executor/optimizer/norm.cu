// The norm of many tensors together: sums of squares of parts, up to 64 tensors a launch, then one block adds them up in
// the order of the parts. Sums are float64, so that none overflows.
#include "tensors.cuh"

namespace {

using namespace aicore;

struct NormParams {
    std::int64_t offset;  // number of this launch's first part
    TensorParams tensors;
};

struct RootParams {
    std::int64_t parts;
};

__global__ void __launch_bounds__(kThreads) squares(double *sums, const __grid_constant__ Tensors<1, 0> tensors) {
    __shared__ double shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    const Part part = part_of(tensors, blockIdx.x);
    double sum = 0;
    for (std::int64_t at = part.begin + threadIdx.x * kWidth; at < part.end; at += kThreads * kWidth) {
        const Four x = read_four(tensors.read[0][part.tensor], at, part.end);
#pragma unroll
        for (int i = 0; i < kWidth; i++) sum += static_cast<double>(x.of[i]) * x.of[i];
    }
    sum = reduce_block<Sum>(sum, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) root_of_sum(const double *sums, float *norm, std::int64_t parts) {
    __shared__ double shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    double sum = 0;
    for (std::int64_t part = threadIdx.x; part < parts; part += kThreads) sum += sums[part];
    sum = reduce_block<Sum>(sum, shared);
    if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum));
}

// Pointers: the tensors, then the sums of all parts of all launches.
int add_squares(void *const *pointers, const NormParams &p, cudaStream_t stream) {
    const auto tensors = tensors_of<1, 0>(pointers, p.tensors);
    const int blocks = tensors.first[tensors.count];
    if (blocks == 0) return cudaSuccess;
    double *sums = static_cast<double *>(pointers[tensors.count]) + p.offset;
    return launch_early(squares, static_cast<unsigned>(blocks), kThreads, 0, stream, sums, tensors);
}

// Pointers: sums, norm.
int take_root(void *const *pointers, const RootParams &p, cudaStream_t stream) {
    return launch_early(root_of_sum, 1u, kThreads, 0, stream, static_cast<const double *>(pointers[0]),
                        static_cast<float *>(pointers[1]), p.parts);
}

AICORE_KERNEL(norm_squares, NormParams, 2, add_squares);
AICORE_KERNEL(norm_root, RootParams, 2, take_root);

}  // namespace
