// Launches of pool.cuh.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>

#include "../ge/kernel.cuh"
#include "pool.cuh"

namespace {

using namespace aicore;
using namespace aicore::pooling;

constexpr int kThreads = 128;

template <class T, class Wide>
__global__ void __launch_bounds__(kThreads) max_kernel(const PoolParams p, const T *x, T *y, std::int64_t *indices,
                                                       const T lowest) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (index < outputs_of(p)) max_element<T, Wide>(p, x, y, indices, lowest, index);
}

template <class T, class Sum>
__global__ void __launch_bounds__(kThreads) sum_kernel(const PoolParams p, const T *x, T *y) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (index < outputs_of(p)) sum_element<T, Sum>(p, x, y, index);
}

template <class T, class Wide>
int launch_max(void *const *pointers, const PoolParams &p, T lowest, cudaStream_t stream) {
    return launch_early(max_kernel<T, Wide>, blocks_for(outputs_of(p), kThreads), kThreads, 0, stream, p,
                        static_cast<const T *>(pointers[0]), static_cast<T *>(pointers[1]),
                        p.with_indices ? static_cast<std::int64_t *>(pointers[2]) : nullptr, lowest);
}

template <class T>
int launch_integer(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    return launch_max<T, T>(pointers, p, std::numeric_limits<T>::lowest(), stream);
}

template <class T, class Wide>
int launch_float(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    if (p.kind == kMaxPool) return launch_max<T, Wide>(pointers, p, T(-std::numeric_limits<Wide>::infinity()), stream);
    return launch_early(sum_kernel<T, Wide>, blocks_for(outputs_of(p), kThreads), kThreads, 0, stream, p,
                        static_cast<const T *>(pointers[0]), static_cast<T *>(pointers[1]));
}

int pool_direct(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    if (outputs_of(p) == 0) return cudaSuccess;
    switch (p.element) {
        case kFloat32:
            return launch_float<float, float>(pointers, p, stream);
        case kFloat16:
            return launch_float<__half, float>(pointers, p, stream);
        case kBfloat16:
            return launch_float<__nv_bfloat16, float>(pointers, p, stream);
        case kFloat64:
            return launch_float<double, double>(pointers, p, stream);
        case kInt8:
            return launch_integer<std::int8_t>(pointers, p, stream);
        case kUint8:
            return launch_integer<std::uint8_t>(pointers, p, stream);
        case kInt16:
            return launch_integer<std::int16_t>(pointers, p, stream);
        case kUint16:
            return launch_integer<std::uint16_t>(pointers, p, stream);
        case kInt32:
            return launch_integer<std::int32_t>(pointers, p, stream);
        case kUint32:
            return launch_integer<std::uint32_t>(pointers, p, stream);
        case kInt64:
            return launch_integer<std::int64_t>(pointers, p, stream);
        case kUint64:
            return launch_integer<std::uint64_t>(pointers, p, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

AICORE_KERNEL(pool_direct, PoolParams, 2, pool_direct);

}  // namespace
