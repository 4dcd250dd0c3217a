// What tiled kernels ask of a block: copies that run beside the arithmetic, barriers, and clusters.
//
// The host tests define the same names for threads that they emulate, so that they can run the kernels themselves.
#pragma once

#if !defined(AICORE_EMULATED_DEVICE)

#include "../ge/kernel.cuh"

#define AICORE_SHARED_WORDS(NAME)                      \
    extern __shared__ float4 aicore_shared_words[];    \
    float *NAME = reinterpret_cast<float *>(aicore_shared_words)

namespace aicore::cnn {

// Lets a block have so many bytes of dynamic shared memory, and a multiprocessor as many such blocks as fit: left to
// itself the driver may divide its memory between cache and blocks for fewer.
template <class Kernel>
cudaError_t allow_shared(Kernel kernel, int bytes) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

#if defined(__CUDACC__)

// Copies COUNT floats, 4 or 1, to shared memory, or writes zeros there: `from` is not read then. Both are aligned to
// the whole. Seen by the others after commit_copies, wait_for_copies and a barrier.
template <int Count>
__device__ __forceinline__ void copy_floats(float *to, const float *from, bool take) {
    static_assert(Count == 1 || Count == 4);
#if __CUDA_ARCH__ >= 800
    const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int bytes = take ? 4 * Count : 0;
    if constexpr (Count == 4) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(from), "r"(bytes) : "memory");
    }
#else
    if constexpr (Count == 4) {
        *reinterpret_cast<float4 *>(to) = take ? *reinterpret_cast<const float4 *>(from) : make_float4(0, 0, 0, 0);
    } else {
        *to = take ? *from : 0.0f;
    }
#endif
}

// Ends a group of copies; empty groups count too.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most PENDING of the latest groups of this thread are still on their way.
template <int Pending>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

__device__ __forceinline__ void sync_block() { __syncthreads(); }

// A barrier of all blocks of the cluster; before compute capability 9.0 a block is alone.
__device__ __forceinline__ void sync_cluster() {
#if __CUDA_ARCH__ >= 900
    // Not `.aligned`: threads of a warp may come from loops of different length.
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#else
    __syncthreads();
#endif
}

// Four floats of the shared memory of block `rank` of the cluster, at the place where `own` is in this block's.
__device__ __forceinline__ float4 read_of_block(const float *own, int rank) {
#if __CUDA_ARCH__ >= 900
    float4 value;
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(own));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
#else
    return *reinterpret_cast<const float4 *>(own);
#endif
}

#endif

}  // namespace aicore::cnn

#endif
