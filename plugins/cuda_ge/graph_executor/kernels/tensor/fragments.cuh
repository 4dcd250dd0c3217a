// What a warp does on tensor cores: reads 16 rows of 32 bytes from shared memory, and multiplies 16 x 8 tiles.
//
// The 32 bytes are 8 numbers in tf32, or 16 in float16 or bfloat16. Shared memory is counted in words of 4 bytes.
// From compute capability 8.0 on. The host tests define the same names for threads that they emulate.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../../cnn/block.cuh"

namespace aicore::tensor {

#if defined(__CUDACC__) && !defined(AICORE_EMULATED_DEVICE)

// Four matrices of 8 rows of 16 bytes: lane l gives the address of row l % 8 of matrix l / 8; each lane gets from each
// matrix word l % 4 of row l / 4.
__device__ __forceinline__ void load_matrices(unsigned (&words)[4], const float *row) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
#endif
}

// sums += a b', for 16 rows of a and 8 of b, each 32 bytes long; b0 and b1 are the halves of the rows of b.
template <class T>
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

template <>
__device__ __forceinline__ void multiply<float>(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

template <>
__device__ __forceinline__ void multiply<__half>(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

template <>
__device__ __forceinline__ void multiply<__nv_bfloat16>(float (&sums)[4], const unsigned (&a)[4], unsigned b0,
                                                        unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// The nearest tf32 number: 11 significant bits instead of 24; ties go away from zero.
__device__ __forceinline__ unsigned to_tf32(unsigned word) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
#endif
    return word;
}

#endif

}  // namespace aicore::tensor
