// What every kernel file includes: how a launch function becomes a kernel that Python finds by name.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <utility>

#include "../op_structs.cuh"

namespace aicore {

// Called by AICORE_KERNEL before main; returns true.
bool list_kernel(const aicore_cuda_kernel *kernel);

// Blocks that cover `count` elements with `each` elements a block, at least one.
inline unsigned blocks_for(std::int64_t count, std::int64_t each) {
    const std::int64_t blocks = (count + each - 1) / each;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks);
}

// Launches a kernel that may begin while the one before it still ends: it must call wait_for_previous() before it
// touches memory that earlier kernels wrote. Worth 0.3 us a launch; see "programmatic dependent launch" of CUDA.
template <class... Wanted, class... Given>
cudaError_t launch_early(void (*kernel)(Wanted...), dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream,
                         Given &&...arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &early;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, static_cast<Wanted>(std::forward<Given>(arguments))...);
}

#ifdef __CUDACC__
// Let the next kernel begin; its blocks run as soon as there is room, and wait where they must.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Wait until what the kernels before this one wrote can be read.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif

}  // namespace aicore

// Lists `int FUNCTION(void *const *pointers, const PARAMS &params, cudaStream_t stream)` under NAME.
#define AICORE_KERNEL(NAME, PARAMS, POINTERS, FUNCTION)                                                               \
    static int NAME##_launch(void *const *pointers, std::size_t, const void *bytes, std::size_t, void *stream) {      \
        PARAMS params;                                                                                                \
        std::memcpy(&params, bytes, sizeof params);                                                                   \
        return FUNCTION(pointers, params, static_cast<cudaStream_t>(stream));                                         \
    }                                                                                                                 \
    static const aicore_cuda_kernel NAME##_kernel = {AICORE_CUDA_LAUNCH_VERSION, sizeof(PARAMS), POINTERS, 0, #NAME,  \
                                                     &NAME##_launch};                                                 \
    static const bool NAME##_listed = aicore::list_kernel(&NAME##_kernel)
