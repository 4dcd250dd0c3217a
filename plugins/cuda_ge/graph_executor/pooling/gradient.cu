// Launches of gradient.cuh. Pointers: x, null for a mean; the gradient of the results; that of x.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../ge/kernel.cuh"
#include "gradient.cuh"

namespace {

using namespace aicore;
using namespace aicore::pooling;

struct GradientParams {
    PoolParams pool;
    std::int64_t cuts;  // whether x is what a Relu gave
};

template <class T, class Wide, bool kCuts>
__global__ void __launch_bounds__(kGradientThreads)
    direct_gradient(const PoolParams p, const T *x, const T *dy, T *dx) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kGradientThreads + threadIdx.x;
    if (index < elements_of(p)) gradient_element<T, Wide, kCuts>(p, x, dy, dx, index);
}

template <class T, class Wide>
int launch_direct(void *const *pointers, const GradientParams &params, cudaStream_t stream) {
    const PoolParams &p = params.pool;
    const auto kernel = params.cuts ? direct_gradient<T, Wide, true> : direct_gradient<T, Wide, false>;
    return launch_early(kernel, blocks_for(elements_of(p), kGradientThreads), kGradientThreads, 0, stream, p,
                        static_cast<const T *>(pointers[0]), static_cast<const T *>(pointers[1]),
                        static_cast<T *>(pointers[2]));
}

int pool_gradient_direct(void *const *pointers, const GradientParams &p, cudaStream_t stream) {
    if (elements_of(p.pool) == 0) return cudaSuccess;
    if (p.pool.element == kFloat64) return launch_direct<double, double>(pointers, p, stream);
    if (p.pool.element == kFloat32) return launch_direct<float, float>(pointers, p, stream);
    if (p.pool.element == kFloat16) return launch_direct<__half, float>(pointers, p, stream);
    if (p.pool.element == kBfloat16) return launch_direct<__nv_bfloat16, float>(pointers, p, stream);
    return cudaErrorInvalidValue;
}

template <int K, class T>
int launch_windows(void *const *pointers, const GradientParams &params, cudaStream_t stream) {
    const auto kernel = params.cuts ? windows_gradient<K, true, T> : windows_gradient<K, false, T>;
    return launch_early(kernel, blocks_for(windows_of<K>(params.pool), kGradientThreads), kGradientThreads, 0, stream,
                        params.pool, static_cast<const T *>(pointers[0]), static_cast<const T *>(pointers[1]),
                        static_cast<T *>(pointers[2]));
}

int pool_gradient_rows(void *const *pointers, const GradientParams &params, cudaStream_t stream) {
    const PoolParams &p = params.pool;
    if (elements_of(p) == 0) return cudaSuccess;
    return for_float(p.element, [&](auto type) -> int {
        using T = typename decltype(type)::Type;
        if (p.kind == kMaxPool && side_by_side<2>(p.window)) return launch_windows<2, T>(pointers, params, stream);
        if (p.kind == kMaxPool && side_by_side<3>(p.window)) return launch_windows<3, T>(pointers, params, stream);
        const auto kernel = p.kind != kMaxPool ? rows_gradient<false, false, T>
                            : params.cuts      ? rows_gradient<true, true, T>
                                               : rows_gradient<true, false, T>;
        return launch_early(kernel, blocks_for(elements_of(p) / 4, kGradientThreads), kGradientThreads, 0, stream, p,
                            static_cast<const T *>(pointers[0]), static_cast<const T *>(pointers[1]),
                            static_cast<T *>(pointers[2]));
    });
}

AICORE_KERNEL(pool_gradient_direct, GradientParams, 3, pool_gradient_direct);
AICORE_KERNEL(pool_gradient_rows, GradientParams, 3, pool_gradient_rows);

}  // namespace
