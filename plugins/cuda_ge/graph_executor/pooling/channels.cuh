// Mean and maximum of whole channels of images, in either layout and in float32.
//
// Channels last: a block takes 32 channels of an image, 32 threads side by side, so that each line of memory is read
// once; its warps share the pixels. Channels first: a warp takes one channel. Either way each thread reduces every n-th
// pixel, and what the threads found is reduced in a fixed order.
#pragma once

#include "../cnn/fours.cuh"
#include "pool.cuh"

namespace aicore::pooling {

using namespace cnn;

#if defined(__CUDACC__) || defined(AICORE_EMULATED_DEVICE)

constexpr int kChannelWarps = 16, kChannelThreads = 32 * kChannelWarps;

template <bool Max>
__device__ __forceinline__ float join(float a, float b) {
    return Max ? maximum(a, b) : a + b;
}

// Every `step`-th of `count` pixels, `distance` apart, in four chains that wait for memory together.
template <bool Max, class T>
__device__ __forceinline__ float reduced(const T *from, int first, int step, int count, int distance) {
    const float neutral = Max ? -INFINITY : 0.0f;
    float found[4] = {neutral, neutral, neutral, neutral};
    int at = first;
    for (; at + 3 * step < count; at += 4 * step) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            found[i] = join<Max>(found[i], widen(from[static_cast<std::int64_t>(at + i * step) * distance]));
        }
    }
    for (; at < count; at += step) found[0] = join<Max>(found[0], widen(from[static_cast<std::int64_t>(at) * distance]));
    return join<Max>(join<Max>(found[0], found[1]), join<Max>(found[2], found[3]));
}

template <bool Max, class T>
__global__ void __launch_bounds__(kChannelThreads) last_kernel(const T *x, T *y, int pixels, int channels) {
    AICORE_SHARED_WORDS(found);  // (warps, lanes)
    let_next_begin();
    wait_for_previous();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, channel = blockIdx.x * 32 + lane;
    const std::int64_t image = blockIdx.y;
    if (channel < channels) {
        const T *from = x + image * pixels * channels + channel;
        found[threadIdx.x] = reduced<Max>(from, warp, kChannelWarps, pixels, channels);
    }
    sync_block();
    if (warp > 0 || channel >= channels) return;
    float result = found[lane];
    for (int other = 1; other < kChannelWarps; other++) result = join<Max>(result, found[32 * other + lane]);
    y[image * channels + channel] = narrow<T>(Max ? result : result / static_cast<float>(pixels));
}

template <bool Max, class T>
__global__ void __launch_bounds__(kChannelThreads) first_kernel(const T *x, T *y, int pixels, std::int64_t channels) {
    AICORE_SHARED_WORDS(found);  // (warps, lanes)
    let_next_begin();
    wait_for_previous();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * kChannelWarps + warp;
    if (channel < channels) found[threadIdx.x] = reduced<Max>(x + channel * pixels, lane, 32, pixels, 1);
    sync_block();
    if (lane > 0 || channel >= channels) return;
    float result = found[32 * warp];
    for (int other = 1; other < 32; other++) result = join<Max>(result, found[32 * warp + other]);
    y[channel] = narrow<T>(Max ? result : result / static_cast<float>(pixels));
}

#endif

}  // namespace aicore::pooling
