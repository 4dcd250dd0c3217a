// Gradients of pools, gathered: an element of x asks each window that it lies in for its share, so that nothing is added
// up by several threads. A window of MaxPool gives all to its first largest element in row-major order; NaN is larger
// than any number. Behind a Relu, the gradient of what it cut is 0: of elements that are not above 0.
//
// 1. As it is defined: a thread for each element, in any layout.
// 2. Four channels of channels-last images a thread.
// 3. The same for windows of a maximum that lie side by side: a thread has a whole window, and reads its elements once.
#pragma once

#include "../cnn/fours.cuh"
#include "pool.cuh"

namespace aicore::pooling {

AICORE_HOST_DEVICE std::int64_t elements_of(const PoolParams &p) {
    return p.images * p.channels * product(p.window.size);
}

// Calls visit(window, tap) for each window along an axis in which element `at` lies, as tap number `tap`.
template <class Visit>
AICORE_HOST_DEVICE void for_each_window(const Window &v, int axis, std::int64_t at, Visit visit) {
    for (std::int64_t tap = 0; tap < v.kernel[axis]; tap++) {
        const std::int64_t from = at + v.begin[axis] - tap * v.dilation[axis];
        if (from < 0 || from % v.stride[axis] != 0 || from / v.stride[axis] >= v.out[axis]) continue;
        visit(from / v.stride[axis], tap);
    }
}

// Whether the first largest element of the window at `o` is the one at `own`. Compared as Wide.
template <class T, class Wide>
AICORE_HOST_DEVICE bool is_largest(const PoolParams &p, const T *image, const Place &o, std::int64_t own) {
    std::int64_t where = -1;
    Wide largest = 0;
    for_each_tap(p.window, o, [&](const std::int64_t(&at)[3]) {
        const std::int64_t pixel = pixel_of(at, p.window.size);
        const Wide value = static_cast<Wide>(image[pixel * p.x.pixel]);
        if (where >= 0 && !(value > largest || (value != value && largest == largest))) return;
        largest = value;
        where = pixel;
    });
    return where == own;
}

// x is null for a mean. kCuts: x is what a Relu gave.
template <class T, class Wide, bool kCuts>
AICORE_HOST_DEVICE void gradient_element(const PoolParams &p, const T *x, const T *dy, T *dx, std::int64_t index) {
    const Place at = place_of(index, p.channels, p.window.size, p.x.channel == 1);
    const std::int64_t first = at.image * p.x.image + at.channel * p.x.channel, own = pixel_of(at.at, p.window.size);
    const T *from = dy + at.image * p.y.image + at.channel * p.y.channel;
    Place o = {at.image, at.channel, {0, 0, 0}};
    Wide sum = 0;
    for_each_window(p.window, 0, at.at[0], [&](std::int64_t a, std::int64_t) {
        o.at[0] = a;
        for_each_window(p.window, 1, at.at[1], [&](std::int64_t b, std::int64_t) {
            o.at[1] = b;
            for_each_window(p.window, 2, at.at[2], [&](std::int64_t c, std::int64_t) {
                o.at[2] = c;
                const Wide given = static_cast<Wide>(from[pixel_of(o.at, p.window.out) * p.y.pixel]);
                if (x == nullptr) {
                    sum += given / static_cast<Wide>(averaged(p, o));
                } else if (is_largest<T, Wide>(p, x + first, o, own)) {
                    sum += given;
                }
            });
        });
    });
    if (kCuts && static_cast<Wide>(x[first + own * p.x.pixel]) <= Wide(0)) sum = 0;
    dx[first + own * p.x.pixel] = T(sum);
}

#if defined(__CUDACC__) || defined(AICORE_EMULATED_DEVICE)

// Whether another element of a window goes before this one, which it lies in front of, or behind.
__device__ __forceinline__ bool beats(float other, float own, bool in_front) {
    if (in_front) return other >= own || other != other;
    return other > own || (other != other && own == own);
}

constexpr int kGradientThreads = 128;

// Sizes as ints: indices fit 32 bits; see rows_reason in pooling_grad.py.
struct Plane {
    int height, width, pixel, out_height, out_width;
    int down, right, stride[2], dilation[2], begin[2];  // down, right: taps

    AICORE_HOST_DEVICE explicit Plane(const PoolParams &p) {
        const Window &v = p.window;
        const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
        height = narrow(v.size[1]), width = narrow(v.size[2]), pixel = narrow(p.channels);
        out_height = narrow(v.out[1]), out_width = narrow(v.out[2]);
        down = narrow(v.kernel[1]), right = narrow(v.kernel[2]);
        for (int i = 0; i < 2; i++) {
            stride[i] = narrow(v.stride[i + 1]), dilation[i] = narrow(v.dilation[i + 1]);
            begin[i] = narrow(v.begin[i + 1]);
        }
    }
};

// dy where this element, tap (a, b) of the window at (line, column), is the first largest; for each of four channels.
template <class T>
__device__ __forceinline__ float4 given_to_largest(const Plane &v, const T *image, float4 own, float4 dy, int line,
                                                   int column, int a, int b) {
    for (int i = 0; i < v.down; i++) {
        const int y = line * v.stride[0] - v.begin[0] + i * v.dilation[0];
        if (y < 0 || y >= v.height) continue;
        for (int j = 0; j < v.right; j++) {
            const int x = column * v.stride[1] - v.begin[1] + j * v.dilation[1];
            if (x < 0 || x >= v.width || (i == a && j == b)) continue;
            const float4 other = read_four(image + (y * v.width + x) * v.pixel, 4, true);
            const bool in_front = i < a || (i == a && j < b);
            if (beats(other.x, own.x, in_front)) dy.x = 0.0f;
            if (beats(other.y, own.y, in_front)) dy.y = 0.0f;
            if (beats(other.z, own.z, in_front)) dy.z = 0.0f;
            if (beats(other.w, own.w, in_front)) dy.w = 0.0f;
        }
    }
    return dy;
}

__device__ __forceinline__ float4 where_above_0(float4 x, float4 dx) {
    return make_float4(x.x <= 0.0f ? 0.0f : dx.x, x.y <= 0.0f ? 0.0f : dx.y, x.z <= 0.0f ? 0.0f : dx.z,
                       x.w <= 0.0f ? 0.0f : dx.w);
}

template <bool Max, bool kCuts, class T>
__global__ void __launch_bounds__(kGradientThreads)
    rows_gradient(const PoolParams p, const T *x, const T *dy, T *dx) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kGradientThreads + threadIdx.x;
    if (index >= elements_of(p) / 4) return;
    const Plane v(p);
    const int fours = v.pixel / 4, at = static_cast<int>(index), place = at / fours, channel = 4 * (at - place * fours);
    const int all_lines = place / v.width, column = place - all_lines * v.width, image = all_lines / v.height;
    const int line = all_lines - image * v.height;
    const T *of_image = Max ? x + image * v.height * v.width * v.pixel + channel : nullptr;
    const T *given = dy + image * v.out_height * v.out_width * v.pixel + channel;
    const float4 own = Max ? read_four(of_image + (line * v.width + column) * v.pixel, 4, true) : float4();
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int a = 0; a < v.down; a++) {
        const int down = line + v.begin[0] - a * v.dilation[0], o_line = down / v.stride[0];
        if (down < 0 || o_line * v.stride[0] != down || o_line >= v.out_height) continue;
        for (int b = 0; b < v.right; b++) {
            const int right = column + v.begin[1] - b * v.dilation[1], o_column = right / v.stride[1];
            if (right < 0 || o_column * v.stride[1] != right || o_column >= v.out_width) continue;
            float4 share = read_four(given + (o_line * v.out_width + o_column) * v.pixel, 4, true);
            if (Max) {
                share = given_to_largest(v, of_image, own, share, o_line, o_column, a, b);
            } else {
                const Place o = {image, channel, {0, o_line, o_column}};
                const float count = static_cast<float>(averaged(p, o));
                share = make_float4(share.x / count, share.y / count, share.z / count, share.w / count);
            }
            sum = sum_of(sum, share);
        }
    }
    write_four(dx + 4 * index, kCuts ? where_above_0(own, sum) : sum, 4, true);
}

// Whether windows of K by K lie side by side from the first element on; some may end behind the last one.
template <int K>
AICORE_HOST_DEVICE bool side_by_side(const Window &v) {
    if (v.size[0] != 1 || v.kernel[0] != 1 || v.begin[1] != 0 || v.begin[2] != 0) return false;
    bool all = true;
    for (int axis = 1; axis < 3; axis++)
        all = all && v.kernel[axis] == K && v.stride[axis] == K && v.dilation[axis] == 1;
    return all;
}

template <int K>
AICORE_HOST_DEVICE std::int64_t windows_of(const PoolParams &p) {
    return p.images * ((p.window.size[1] + K - 1) / K) * ((p.window.size[2] + K - 1) / K) * (p.channels / 4);
}

// Of elements in no window it is 0.
template <int K, bool kCuts, class T>
__global__ void __launch_bounds__(kGradientThreads)
    windows_gradient(const PoolParams p, const T *x, const T *dy, T *dx) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kGradientThreads + threadIdx.x;
    if (index >= windows_of<K>(p)) return;
    const Plane v(p);
    const int lines = (v.height + K - 1) / K, columns = (v.width + K - 1) / K, fours = v.pixel / 4;
    const int at = static_cast<int>(index), place = at / fours, channel = 4 * (at - place * fours);
    const int all_lines = place / columns, column = place - all_lines * columns, image = all_lines / lines;
    const int line = all_lines - image * lines;
    const int first = ((image * v.height + line * K) * v.width + column * K) * v.pixel + channel;
    const auto exists = [&](int tap) { return line * K + tap / K < v.height && column * K + tap % K < v.width; };
    const auto distance = [&](int tap) { return (tap / K * v.width + tap % K) * v.pixel; };
    float4 taps[K * K], given = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int tap = 0; tap < K * K; tap++)
        if (exists(tap)) taps[tap] = read_four(x + first + distance(tap), 4, true);
    if (line < v.out_height && column < v.out_width)
        given = read_four(dy + ((image * v.out_height + line) * v.out_width + column) * v.pixel + channel, 4, true);
    float4 largest = taps[0];
    int where[4] = {};  // the tap that is the first largest, of each channel
#pragma unroll
    for (int tap = 1; tap < K * K; tap++) {
        if (!exists(tap)) continue;
        const float4 own = taps[tap];
        if (beats(own.x, largest.x, false)) largest.x = own.x, where[0] = tap;
        if (beats(own.y, largest.y, false)) largest.y = own.y, where[1] = tap;
        if (beats(own.z, largest.z, false)) largest.z = own.z, where[2] = tap;
        if (beats(own.w, largest.w, false)) largest.w = own.w, where[3] = tap;
    }
    if (kCuts) given = where_above_0(largest, given);
#pragma unroll
    for (int tap = 0; tap < K * K; tap++) {
        if (!exists(tap)) continue;
        const float4 share = make_float4(where[0] == tap ? given.x : 0.0f, where[1] == tap ? given.y : 0.0f,
                                         where[2] == tap ? given.z : 0.0f, where[3] == tap ? given.w : 0.0f);
        write_four(dx + first + distance(tap), share, 4, true);
    }
}

#endif

}  // namespace aicore::pooling
