// Pools as they are defined: one thread pools the window of one output element, in any layout.
#pragma once

#include "../cnn/window.cuh"

namespace aicore::pooling {

using namespace cnn;

enum PoolKind : std::int64_t { kMaxPool = 0, kAveragePool = 1, kLpPool = 2 };

struct PoolParams {
    std::int64_t kind, element, images, channels;
    Window window;
    std::int64_t end[3];  // padding after the last element
    Distances x, y;
    std::int64_t counts_padding;  // of AveragePool
    std::int64_t power;           // of LpPool
    std::int64_t with_indices;    // a second result, int64: where in x, in the order of channels first, the maximum is
    std::int64_t by_columns;      // each channel of it counted along its first axis first
};

AICORE_HOST_DEVICE std::int64_t outputs_of(const PoolParams &p) {
    return p.images * p.channels * product(p.window.out);
}

// How many of an axis' taps lie in [low, high) when the window begins at `start`.
AICORE_HOST_DEVICE std::int64_t taps_between(std::int64_t start, std::int64_t dilation, std::int64_t taps,
                                             std::int64_t low, std::int64_t high) {
    std::int64_t count = 0;
    for (std::int64_t tap = 0; tap < taps; tap++, start += dilation) count += start >= low && start < high;
    return count;
}

// What the sum of an AveragePool is divided by.
AICORE_HOST_DEVICE std::int64_t averaged(const PoolParams &p, const Place &o) {
    std::int64_t count = 1;
    for (int axis = 0; axis < 3; axis++) {
        const Window &v = p.window;
        const std::int64_t low = p.counts_padding ? -v.begin[axis] : 0;
        const std::int64_t high = v.size[axis] + (p.counts_padding ? p.end[axis] : 0);
        const std::int64_t start = o.at[axis] * v.stride[axis] - v.begin[axis];
        count *= taps_between(start, v.dilation[axis], v.kernel[axis], low, high);
    }
    return count;
}

AICORE_HOST_DEVICE std::int64_t index_of(const PoolParams &p, const Place &o, const std::int64_t (&at)[3]) {
    const std::int64_t(&size)[3] = p.window.size;
    const std::int64_t within = p.by_columns ? (at[2] * size[1] + at[1]) * size[0] + at[0] : pixel_of(at, size);
    return (o.image * p.channels + o.channel) * product(size) + within;
}

template <class Sum>
AICORE_HOST_DEVICE Sum power_of(Sum x, std::int64_t power) {
    const Sum size = x < 0 ? -x : x;
    if (power == 1) return size;
    if (power == 2) return size * size;
    return pow(size, static_cast<Sum>(power));
}

template <class Sum>
AICORE_HOST_DEVICE Sum root_of(Sum sum, std::int64_t power) {
    if (power == 1) return sum;
    if (power == 2) return sqrt(sum);
    return pow(sum, static_cast<Sum>(1) / static_cast<Sum>(power));
}

// Calls visit(place in the image) for each tap that meets an element, in row-major order.
template <class Visit>
AICORE_HOST_DEVICE void for_each_tap(const Window &v, const Place &o, Visit visit) {
    std::int64_t i[3], start[3];
    for (int axis = 0; axis < 3; axis++) start[axis] = o.at[axis] * v.stride[axis] - v.begin[axis];
    const std::int64_t(&d)[3] = v.dilation;
    for (std::int64_t a = 0; a < v.kernel[0]; a++) {
        i[0] = start[0] + a * d[0];
        if (i[0] < 0 || i[0] >= v.size[0]) continue;
        for (std::int64_t b = 0; b < v.kernel[1]; b++) {
            i[1] = start[1] + b * d[1];
            if (i[1] < 0 || i[1] >= v.size[1]) continue;
            for (std::int64_t c = 0; c < v.kernel[2]; c++) {
                i[2] = start[2] + c * d[2];
                if (i[2] >= 0 && i[2] < v.size[2]) visit(i);
            }
        }
    }
}

// The largest of a window, NaN if there is one; `lowest` where it has no elements. Compared as Wide.
template <class T, class Wide>
AICORE_HOST_DEVICE void max_element(const PoolParams &p, const T *x, T *y, std::int64_t *indices, T lowest,
                                    std::int64_t index) {
    const Place o = place_of(index, p.channels, p.window.out, p.y.channel == 1);
    const T *image = x + o.image * p.x.image + o.channel * p.x.channel;
    T best = lowest;
    std::int64_t where = 0;  // as the reference, which finds no element of an empty window anywhere else
    bool found = false;
    for_each_tap(p.window, o, [&](const std::int64_t(&at)[3]) {
        const T value = image[pixel_of(at, p.window.size) * p.x.pixel];
        const Wide wide = static_cast<Wide>(value), largest = static_cast<Wide>(best);
        const bool takes = !found || wide > largest || (wide != wide && largest == largest);
        if (!takes) return;
        best = value;
        found = true;
        if (p.with_indices) where = index_of(p, o, at);
    });
    const std::int64_t at = o.image * p.y.image + o.channel * p.y.channel + pixel_of(o.at, p.window.out) * p.y.pixel;
    y[at] = best;
    if (p.with_indices) indices[at] = where;
}

template <class T, class Sum>
AICORE_HOST_DEVICE void sum_element(const PoolParams &p, const T *x, T *y, std::int64_t index) {
    const Place o = place_of(index, p.channels, p.window.out, p.y.channel == 1);
    const T *image = x + o.image * p.x.image + o.channel * p.x.channel;
    Sum sum = 0;
    for_each_tap(p.window, o, [&](const std::int64_t(&at)[3]) {
        const Sum value = static_cast<Sum>(image[pixel_of(at, p.window.size) * p.x.pixel]);
        sum += p.kind == kLpPool ? power_of(value, p.power) : value;
    });
    const std::int64_t at = o.image * p.y.image + o.channel * p.y.channel + pixel_of(o.at, p.window.out) * p.y.pixel;
    y[at] = T(p.kind == kLpPool ? root_of(sum, p.power) : sum / static_cast<Sum>(averaged(p, o)));
}

}  // namespace aicore::pooling
