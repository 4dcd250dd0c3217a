// Launches of direct.cuh.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../ge/kernel.cuh"
#include "direct.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

constexpr int kThreads = 128;

template <class T, class Sum, bool Transposed>
__global__ void __launch_bounds__(kThreads) direct_kernel(const ConvParams p, const ConvPointers<T> t) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t count = outputs_of(p), step = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
        if constexpr (Transposed) {
            transposed_element<T, Sum>(p, t, i);
        } else {
            conv_element<T, Sum>(p, t, i);
        }
    }
}

template <class T, class Sum, bool Transposed>
int launch(void *const *pointers, const ConvParams &p, cudaStream_t stream) {
    const std::int64_t count = outputs_of(p), most = std::int64_t{1} << 30;
    const unsigned blocks = blocks_for(count < most * kThreads ? count : most * kThreads, kThreads);
    return launch_early(direct_kernel<T, Sum, Transposed>, blocks, kThreads, 0, stream, p,
                        conv_pointers<T>(pointers, p));
}

template <bool Transposed>
int by_element(void *const *pointers, const ConvParams &p, cudaStream_t stream) {
    if (outputs_of(p) == 0) return cudaSuccess;
    switch (p.element) {
        case kFloat32:
            return launch<float, float, Transposed>(pointers, p, stream);
        case kFloat16:
            return launch<__half, float, Transposed>(pointers, p, stream);
        case kBfloat16:
            return launch<__nv_bfloat16, float, Transposed>(pointers, p, stream);
        case kFloat64:
            return launch<double, double, Transposed>(pointers, p, stream);
        default:
            return cudaErrorInvalidValue;
    }
}

int conv_direct(void *const *pointers, const ConvParams &p, cudaStream_t stream) {
    return by_element<false>(pointers, p, stream);
}

int conv_transpose_direct(void *const *pointers, const ConvParams &p, cudaStream_t stream) {
    return by_element<true>(pointers, p, stream);
}

AICORE_KERNEL(conv_direct, ConvParams, 3, conv_direct);
AICORE_KERNEL(conv_transpose_direct, ConvParams, 3, conv_transpose_direct);

}  // namespace
