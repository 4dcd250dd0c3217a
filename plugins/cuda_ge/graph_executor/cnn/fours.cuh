// Four neighbouring numbers of float32, float16 or bfloat16 as float32, and the end of fused kernels upon them.
#pragma once

#include "../kernels/scalars.cuh"
#include "epilogue.cuh"

namespace aicore::cnn {

template <class T>
struct TypeOf {
    using Type = T;
};

// Calls run(TypeOf<T>{}) for a floating type of at most 32 bits; returns what it returns, or 1 for other types.
template <class Run>
int for_float(std::int64_t element, Run run) {
    if (element == kFloat32) return run(TypeOf<float>{});
    if (element == kFloat16) return run(TypeOf<__half>{});
    if (element == kBfloat16) return run(TypeOf<__nv_bfloat16>{});
    return 1;  // cudaErrorInvalidValue
}

#if defined(__CUDACC__) || defined(AICORE_EMULATED_DEVICE)

// 4 or 8 bytes at a time.
template <class T>
struct alignas(4 * sizeof(T)) Four {
    T of[4];
};

// The numbers at `from`, of which `count` exist; zeros for the others. aligned: to the four of them, all of which exist.
template <class T>
__device__ __forceinline__ float4 read_four(const T *from, int count, bool aligned) {
    if (aligned) {
        const Four<T> four = *reinterpret_cast<const Four<T> *>(from);
        return make_float4(widen(four.of[0]), widen(four.of[1]), widen(four.of[2]), widen(four.of[3]));
    }
    return make_float4(widen(from[0]), count > 1 ? widen(from[1]) : 0.0f, count > 2 ? widen(from[2]) : 0.0f,
                       count > 3 ? widen(from[3]) : 0.0f);
}

template <class T>
__device__ __forceinline__ void write_four(T *to, float4 v, int count, bool aligned) {
    const Four<T> four = {{narrow<T>(v.x), narrow<T>(v.y), narrow<T>(v.z), narrow<T>(v.w)}};
    if (aligned) {
        *reinterpret_cast<Four<T> *>(to) = four;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i < count) to[i] = four.of[i];
    }
}

// One number, or four of them, as VECTOR says; the others are zeros.
template <int VECTOR, class T>
__device__ __forceinline__ float4 read_vector(const T *from) {
    if constexpr (VECTOR == 4) return read_four(from, 4, true);
    return make_float4(widen(*from), 0.0f, 0.0f, 0.0f);
}

// Bias, residual and activation of four sums, rounded once, when they are stored at y. bias and residual may be null.
template <class T>
__device__ __forceinline__ void finish_four(const Activation &f, float4 sums, const T *bias, const T *residual, T *y,
                                            int count, bool aligned) {
    if (bias != nullptr) sums = sum_of(sums, read_four(bias, count, aligned));
    if (residual != nullptr) sums = sum_of(sums, read_four(residual, count, aligned));
    write_four(y, activated(f, sums), count, aligned);
}

#endif

}  // namespace aicore::cnn
