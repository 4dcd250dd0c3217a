// sum + the four products of bytes of a and b, which wraps; b is signed.
#pragma once

#include "kernel.cuh"

namespace int8_quant {

template <bool kUnsigned>
__device__ __forceinline__ int dot_4(int a, int b, int sum) {
#if defined(__CUDA_ARCH__)
    if (!kUnsigned) return __dp4a(a, b, sum);
    int result;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
#else
    return emulated_dot_4(kUnsigned, a, b, sum);
#endif
}

}  // namespace int8_quant
