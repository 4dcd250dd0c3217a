// What every kernel file includes: how a launch function becomes a capsule that Python finds by name.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "aicore_cuda_launch.h"

// Dynamic shared memory; tests on the CPU say how they have it.
#ifndef INT8_SHARED
#define INT8_SHARED(NAME) extern __shared__ __align__(1024) unsigned char NAME[]
#endif

namespace int8_quant {

// Called by INT8_KERNEL before main; returns true.
bool list_kernel(const aicore_cuda_kernel *kernel);

// Blocks that cover `count` elements with `each` elements a block, at most `most`; kernels loop over what is left.
inline unsigned blocks_for(std::int64_t count, std::int64_t each, std::int64_t most = 1 << 20) {
    const std::int64_t blocks = (count + each - 1) / each;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks > most ? most : blocks);
}

// Launches a kernel that may begin while the one before it still ends: it calls wait_for_previous() before it touches
// memory of others. `cluster` blocks along z are one cluster, if there are several.
template <class... Wanted, class... Given>
cudaError_t launch(void (*kernel)(Wanted...), dim3 grid, unsigned threads, std::size_t shared, cudaStream_t stream,
                   unsigned cluster, Given &&...arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = 1;
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = cluster;
    config.attrs = attributes;
    config.numAttrs = cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Wanted>(std::forward<Given>(arguments))...);
}

#ifdef __CUDACC__
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif

}  // namespace int8_quant

// Lists `int FUNCTION(void *const *pointers, const PARAMS &params, cudaStream_t stream)` under NAME.
#define INT8_KERNEL(NAME, PARAMS, POINTERS, FUNCTION)                                                                 \
    static int NAME##_launch(void *const *pointers, std::size_t, const void *bytes, std::size_t, void *stream) {      \
        PARAMS params;                                                                                                \
        std::memcpy(&params, bytes, sizeof params);                                                                   \
        return FUNCTION(pointers, params, static_cast<cudaStream_t>(stream));                                         \
    }                                                                                                                 \
    static const aicore_cuda_kernel NAME##_kernel = {AICORE_CUDA_LAUNCH_VERSION, sizeof(PARAMS), POINTERS, 0, #NAME,  \
                                                     &NAME##_launch};                                                 \
    static const bool NAME##_listed = int8_quant::list_kernel(&NAME##_kernel)
