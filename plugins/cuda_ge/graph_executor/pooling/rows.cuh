// Maximum and mean of windows over channels-last images: a thread pools four channels of one output pixel, in float32.
#pragma once

#include "../cnn/fours.cuh"
#include "pool.cuh"

namespace aicore::pooling {

using namespace cnn;

#if defined(__CUDACC__) || defined(AICORE_EMULATED_DEVICE)

__device__ __forceinline__ float4 maximum_of(float4 a, float4 b) {
    return make_float4(maximum(a.x, b.x), maximum(a.y, b.y), maximum(a.z, b.z), maximum(a.w, b.w));
}

__device__ __forceinline__ float4 quotient_of(float4 a, float divisor) {
    return make_float4(a.x / divisor, a.y / divisor, a.z / divisor, a.w / divisor);
}

constexpr int kRowThreads = 128;

// Four channels of output pixel (row, column) of an image. Indices fit 32 bits; see rows_reason in pooling.py.
template <bool Max, class T>
__device__ __forceinline__ float4 pooled(const PoolParams &p, const T *image, int row, int column) {
    const Window &v = p.window;
    const int height = static_cast<int>(v.size[1]), width = static_cast<int>(v.size[2]);
    const int pixel = static_cast<int>(p.x.pixel);
    const int top = static_cast<int>(row * v.stride[1] - v.begin[1]);
    const int left = static_cast<int>(column * v.stride[2] - v.begin[2]);
    const int down = static_cast<int>(v.dilation[1]), right = static_cast<int>(v.dilation[2]);
    const float neutral = Max ? -INFINITY : 0.0f;
    float4 result = make_float4(neutral, neutral, neutral, neutral);
    for (int a = 0, y = top; a < v.kernel[1]; a++, y += down) {
        if (y < 0 || y >= height) continue;
        for (int b = 0, x = left; b < v.kernel[2]; b++, x += right) {
            if (x < 0 || x >= width) continue;
            const float4 value = read_four(image + (y * width + x) * pixel, 4, true);
            result = Max ? maximum_of(result, value) : sum_of(result, value);
        }
    }
    return result;
}

template <bool Max, class T>
__global__ void __launch_bounds__(kRowThreads) rows_kernel(const PoolParams p, const T *x, T *y) {
    let_next_begin();
    wait_for_previous();
    const Window &v = p.window;
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
    if (index >= outputs_of(p) / 4) return;
    const unsigned fours = static_cast<unsigned>(p.channels / 4), columns = static_cast<unsigned>(v.out[2]);
    const unsigned rows = static_cast<unsigned>(v.out[1]), at = static_cast<unsigned>(index);
    const unsigned position = at / fours, channel = 4 * (at - position * fours), line = position / columns;
    Place o = {line / rows, channel, {0, line % rows, position - line * columns}};
    const T *image = x + o.image * p.x.image + channel;
    float4 result = pooled<Max>(p, image, static_cast<int>(o.at[1]), static_cast<int>(o.at[2]));
    if (!Max) result = quotient_of(result, static_cast<float>(averaged(p, o)));
    write_four(y + 4 * index, result, 4, true);
}

#endif

}  // namespace aicore::pooling
