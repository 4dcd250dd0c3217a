// Launches of gradient.cuh. Pointers: x, null for a mean; the gradient of the results; that of x.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../ge/kernel.cuh"
#include "gradient.cuh"

namespace {

using namespace aicore;
using namespace aicore::pooling;

template <class T, class Wide>
__global__ void __launch_bounds__(kGradientThreads)
    direct_gradient(const PoolParams p, const T *x, const T *dy, T *dx) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kGradientThreads + threadIdx.x;
    if (index < elements_of(p)) gradient_element<T, Wide>(p, x, dy, dx, index);
}

template <class T, class Wide>
int launch_direct(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    return launch_early(direct_gradient<T, Wide>, blocks_for(elements_of(p), kGradientThreads), kGradientThreads, 0,
                        stream, p, static_cast<const T *>(pointers[0]), static_cast<const T *>(pointers[1]),
                        static_cast<T *>(pointers[2]));
}

int pool_gradient_direct(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    if (elements_of(p) == 0) return cudaSuccess;
    if (p.element == kFloat64) return launch_direct<double, double>(pointers, p, stream);
    if (p.element == kFloat32) return launch_direct<float, float>(pointers, p, stream);
    if (p.element == kFloat16) return launch_direct<__half, float>(pointers, p, stream);
    if (p.element == kBfloat16) return launch_direct<__nv_bfloat16, float>(pointers, p, stream);
    return cudaErrorInvalidValue;
}

int pool_gradient_rows(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    if (elements_of(p) == 0) return cudaSuccess;
    return for_float(p.element, [&](auto type) -> int {
        using T = typename decltype(type)::Type;
        const auto kernel = p.kind == kMaxPool ? rows_gradient<true, T> : rows_gradient<false, T>;
        return launch_early(kernel, blocks_for(elements_of(p) / 4, kGradientThreads), kGradientThreads, 0, stream, p,
                            static_cast<const T *>(pointers[0]), static_cast<const T *>(pointers[1]),
                            static_cast<T *>(pointers[2]));
    });
}

AICORE_KERNEL(pool_gradient_direct, PoolParams, 3, pool_gradient_direct);
AICORE_KERNEL(pool_gradient_rows, PoolParams, 3, pool_gradient_rows);

}  // namespace
