// Depthwise convolution of channels-last images: each channel has kernels of its own. Sums are float32.
//
// A thread computes a few neighbouring columns of one row of results, for one or four channels. Where the width of the
// kernel and the stride are known to the compiler, it keeps the row of elements that these windows share in registers.
#pragma once

#include "direct.cuh"
#include "fours.cuh"

namespace aicore::cnn {

template <class T>
struct DepthwiseConv {
    const T *x, *w, *bias, *residual;  // w: (taps, packed_channels)
    T *y;
    int height, width, x_channels;
    int out_height, out_width, channels;  // channels of y; `maps` of them for each of x
    int maps, packed_channels;
    int kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width;
    int begin_height, begin_width;
    Activation activation;
};

struct DepthwiseParams {
    ConvParams conv;
    std::int64_t packed_channels;
};

template <class T>
DepthwiseConv<T> depthwise_conv(void *const *pointers, const DepthwiseParams &params) {
    const ConvParams &c = params.conv;
    const ConvPointers<T> t = conv_pointers<T>(pointers, c);
    const Window &v = c.window;
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    DepthwiseConv<T> p = {};
    p.x = t.x, p.w = t.w, p.bias = t.bias, p.residual = t.residual, p.y = t.y;
    p.height = narrow(v.size[1]), p.width = narrow(v.size[2]), p.x_channels = narrow(c.x.pixel);
    p.out_height = narrow(v.out[1]), p.out_width = narrow(v.out[2]), p.channels = narrow(c.y.pixel);
    p.maps = narrow(c.maps), p.packed_channels = narrow(params.packed_channels);
    p.kernel_height = narrow(v.kernel[1]), p.kernel_width = narrow(v.kernel[2]);
    p.stride_height = narrow(v.stride[1]), p.stride_width = narrow(v.stride[2]);
    p.dilation_height = narrow(v.dilation[1]), p.dilation_width = narrow(v.dilation[2]);
    p.begin_height = narrow(v.begin[1]), p.begin_width = narrow(v.begin[2]);
    p.activation = c.activation;
    return p;
}

#if defined(__CUDACC__) || defined(AICORE_EMULATED_DEVICE)

constexpr int kDepthwiseThreads = 128;

template <int Vector>
__device__ __forceinline__ void add_product(float4 &sum, float4 a, float4 b) {
    sum.x = fmaf(a.x, b.x, sum.x);
    if constexpr (Vector == 1) return;
    sum.y = fmaf(a.y, b.y, sum.y);
    sum.z = fmaf(a.z, b.z, sum.z);
    sum.w = fmaf(a.w, b.w, sum.w);
}

// The sums of one row of taps. x: the row of elements, from the thread's channel on. KernelWidth 0: as p says.
template <class T, int Vector, int KernelWidth, int Stride, int Columns>
__device__ __forceinline__ void add_row(const DepthwiseConv<T> &p, const T *x, const T *w, int left,
                                        float4 (&sums)[Columns]) {
    if constexpr (KernelWidth > 0) {
        constexpr int kReach = (Columns - 1) * Stride + KernelWidth;
        float4 row[kReach];
#pragma unroll
        for (int i = 0; i < kReach; i++) {
            const int at = left + i;
            row[i] = make_float4(0, 0, 0, 0);
            if (at >= 0 && at < p.width) row[i] = read_vector<Vector>(x + static_cast<std::int64_t>(at) * p.x_channels);
        }
#pragma unroll
        for (int tap = 0; tap < KernelWidth; tap++) {
            const float4 weight = read_vector<Vector>(w + tap * p.packed_channels);
#pragma unroll
            for (int i = 0; i < Columns; i++) add_product<Vector>(sums[i], row[i * Stride + tap], weight);
        }
    } else {
        for (int tap = 0; tap < p.kernel_width; tap++) {
            const float4 weight = read_vector<Vector>(w + tap * p.packed_channels);
#pragma unroll
            for (int i = 0; i < Columns; i++) {
                const int at = left + i * p.stride_width + tap * p.dilation_width;
                if (at < 0 || at >= p.width) continue;
                add_product<Vector>(sums[i], read_vector<Vector>(x + static_cast<std::int64_t>(at) * p.x_channels), weight);
            }
        }
    }
}

template <class T, int Vector, int KernelWidth, int Stride, int Columns>
__global__ void __launch_bounds__(kDepthwiseThreads) depthwise_kernel(const DepthwiseConv<T> p, std::int64_t threads) {
    let_next_begin();
    wait_for_previous();
    std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kDepthwiseThreads + threadIdx.x;
    if (index >= threads) return;
    const int vectors = p.channels / Vector, strips = (p.out_width + Columns - 1) / Columns;
    const int channel = static_cast<int>(index % vectors) * Vector;
    index /= vectors;
    const int first_column = static_cast<int>(index % strips) * Columns;
    index /= strips;
    const int row = static_cast<int>(index % p.out_height);
    const std::int64_t image = index / p.out_height;
    const int top = row * p.stride_height - p.begin_height, left = first_column * p.stride_width - p.begin_width;
    const T *x = p.x + image * p.height * p.width * p.x_channels + channel / p.maps;
    float4 sums[Columns] = {};
    for (int tap = 0; tap < p.kernel_height; tap++) {
        const int at = top + tap * p.dilation_height;
        if (at < 0 || at >= p.height) continue;
        add_row<T, Vector, KernelWidth, Stride>(p, x + static_cast<std::int64_t>(at) * p.width * p.x_channels,
                                                p.w + tap * p.kernel_width * p.packed_channels + channel, left, sums);
    }
#pragma unroll
    for (int i = 0; i < Columns; i++) {
        if (first_column + i >= p.out_width) break;
        const std::int64_t pixel = (image * p.out_height + row) * p.out_width + first_column + i;
        const std::int64_t at = pixel * p.channels + channel;
        finish_four(p.activation, sums[i], p.bias == nullptr ? nullptr : p.bias + channel,
                    p.residual == nullptr ? nullptr : p.residual + at, p.y + at, Vector, Vector == 4);
    }
}

// Calls run(kernel, threads, p) with the kernel that fits; returns what it returns.
template <int Vector, int KernelWidth, int Stride, int Columns, class T, class Run>
int run_depthwise(const DepthwiseConv<T> &p, std::int64_t images, Run run) {
    const std::int64_t threads = images * p.out_height * ((p.out_width + Columns - 1) / Columns) * (p.channels / Vector);
    return run(depthwise_kernel<T, Vector, KernelWidth, Stride, Columns>, threads, p);
}

template <int Vector, class T, class Run>
int run_depthwise(const DepthwiseConv<T> &p, std::int64_t images, Run run) {
    const int stride = p.dilation_width == 1 ? p.stride_width : 0;
    if (p.kernel_width == 3 && stride == 1) return run_depthwise<Vector, 3, 1, 4>(p, images, run);
    if (p.kernel_width == 3 && stride == 2) return run_depthwise<Vector, 3, 2, 2>(p, images, run);
    if (p.kernel_width == 5 && stride == 1) return run_depthwise<Vector, 5, 1, 4>(p, images, run);
    if (p.kernel_width == 5 && stride == 2) return run_depthwise<Vector, 5, 2, 2>(p, images, run);
    return run_depthwise<Vector, 0, 0, 2>(p, images, run);
}

template <class Run>
int run_depthwise(void *const *pointers, const DepthwiseParams &params, Run run) {
    return for_float(params.conv.element, [&](auto type) -> int {
        using T = typename decltype(type)::Type;
        const DepthwiseConv<T> p = depthwise_conv<T>(pointers, params);
        if (p.maps == 1 && p.channels % 4 == 0) return run_depthwise<4>(p, params.conv.images, run);
        return run_depthwise<1>(p, params.conv.images, run);
    });
}

#endif

}  // namespace aicore::cnn
