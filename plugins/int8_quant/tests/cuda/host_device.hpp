// Included before each .cu file when g++ compiles it: what plugins/cuda_ge/tests/compiled/headers lacks of CUDA.
#pragma once

#include <cuda_runtime.h>

#include <cstring>

#define __grid_constant__
#define INT8_SHARED(NAME) auto *NAME = reinterpret_cast<unsigned char *>(aicore::shared)

struct alignas(16) int4 {
    int x, y, z, w;
};
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline int __float_as_int(float x) {
    int bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float __int_as_float(int bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

inline int atomicAdd(int *to, int x) { return std::exchange(*to, static_cast<int>(unsigned(*to) + unsigned(x))); }
inline unsigned atomicAdd(unsigned *to, unsigned x) { return std::exchange(*to, *to + x); }
inline int atomicMax(int *to, int x) { return std::exchange(*to, std::max(*to, x)); }
inline int atomicMin(int *to, int x) { return std::exchange(*to, std::min(*to, x)); }

inline cudaError_t cudaMemsetAsync(void *to, int value, std::size_t bytes, cudaStream_t) {
    std::memset(to, value, bytes);
    return cudaSuccess;
}

inline int emulated_dot_4(bool is_unsigned, int a, int b, int sum) {
    unsigned total = static_cast<unsigned>(sum);
    for (int shift = 0; shift < 32; shift += 8) {
        const int left = is_unsigned ? (a >> shift) & 255 : static_cast<std::int8_t>(a >> shift);
        total += static_cast<unsigned>(left * static_cast<std::int8_t>(b >> shift));
    }
    return static_cast<int>(total);
}
