// Four neighbouring results at a time: arithmetic, and the activation at the end of fused kernels.
#pragma once

#include "block.cuh"
#include "window.cuh"

namespace aicore::cnn {

#if defined(__CUDACC__) || defined(AICORE_EMULATED_DEVICE)

__device__ __forceinline__ float4 &as_four(float *p) { return *reinterpret_cast<float4 *>(p); }
__device__ __forceinline__ float4 as_four(const float *p) { return *reinterpret_cast<const float4 *>(p); }

__device__ __forceinline__ float4 sum_of(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Out of line: put into each kernel four times over, exponentials and their like would be most of its code.
inline __device__ __noinline__ float4 rare_activation(std::int64_t kind, float alpha, float beta, float4 v) {
    const Activation f = {kind, alpha, 0.0f, beta, 0.0f};
    return make_float4(activate(f, v.x), activate(f, v.y), activate(f, v.z), activate(f, v.w));
}

__device__ __forceinline__ float4 activated(const Activation &f, float4 v) {
    if (f.kind == kIdentity) return v;
    if (f.kind == kRelu) return make_float4(maximum(v.x, 0), maximum(v.y, 0), maximum(v.z, 0), maximum(v.w, 0));
    if (f.kind == kClip) {
        return make_float4(clip(v.x, f.alpha, f.beta), clip(v.y, f.alpha, f.beta), clip(v.z, f.alpha, f.beta),
                           clip(v.w, f.alpha, f.beta));
    }
    return rare_activation(f.kind, f.alpha, f.beta, v);
}

// Bias, residual and activation of four sums, and their store at `at`. bias and residual may be null.
// count: how many of the four exist; fewer than four, or rows that are not aligned to 16 bytes, go one by one.
__device__ __forceinline__ void store_four(const Activation &f, float4 sums, const float *bias, const float *residual,
                                           float *y, int count, bool aligned) {
    if (aligned) {
        if (bias != nullptr) sums = sum_of(sums, as_four(bias));
        if (residual != nullptr) sums = sum_of(sums, as_four(residual));
        as_four(y) = activated(f, sums);
        return;
    }
    const auto read = [&](const float *from) {
        return make_float4(from[0], count > 1 ? from[1] : 0, count > 2 ? from[2] : 0, count > 3 ? from[3] : 0);
    };
    if (bias != nullptr) sums = sum_of(sums, read(bias));
    if (residual != nullptr) sums = sum_of(sums, read(residual));
    sums = activated(f, sums);
    y[0] = sums.x;
    if (count > 1) y[1] = sums.y;
    if (count > 2) y[2] = sums.z;
    if (count > 3) y[3] = sums.w;
}

#endif

}  // namespace aicore::cnn
