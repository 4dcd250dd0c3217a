// Convolution and its transpose as they are defined: one thread sums the products of one output element.
//
// For every shape, layout and float type; the fast kernels are measured and tested against it.
#pragma once

#include "window.cuh"

namespace aicore::cnn {

struct ConvParams {
    std::int64_t element;
    std::int64_t images, groups, channels, maps;  // channels and maps (output channels) of one group
    Window window;
    Distances x, y;
    std::int64_t residual_image, residual_channel, residual_axis[3];  // 0 along axes where it is broadcast
    std::int64_t w_at, bias_at, residual_at, y_at;  // positions among the pointers, -1 for none
    Activation activation;
};

AICORE_HOST_DEVICE std::int64_t outputs_of(const ConvParams &p) {
    return p.images * p.groups * p.maps * product(p.window.out);
}

template <class T>
struct ConvPointers {
    const T *x, *w, *bias, *residual;
    T *y;
};

template <class T>
ConvPointers<T> conv_pointers(void *const *pointers, const ConvParams &p) {
    const auto at = [&](std::int64_t i) { return i < 0 ? nullptr : static_cast<T *>(pointers[i]); };
    return {at(0), at(p.w_at), at(p.bias_at), at(p.residual_at), at(p.y_at)};
}

// Bias, residual and activation of a sum, and the one rounding to the type of the output.
template <class T, class Sum>
AICORE_HOST_DEVICE void finish(const ConvParams &p, const ConvPointers<T> &t, const Place &o, Sum sum) {
    if (t.bias != nullptr) sum += static_cast<Sum>(t.bias[o.channel]);
    if (t.residual != nullptr) {
        std::int64_t at = o.image * p.residual_image + o.channel * p.residual_channel;
        for (int axis = 0; axis < 3; axis++) at += o.at[axis] * p.residual_axis[axis];
        sum += static_cast<Sum>(t.residual[at]);
    }
    if (p.activation.kind != kIdentity) sum = static_cast<Sum>(activate(p.activation, static_cast<float>(sum)));
    t.y[o.image * p.y.image + o.channel * p.y.channel + pixel_of(o.at, p.window.out) * p.y.pixel] = T(sum);
}

// w: (maps of all groups, channels of a group, taps).
template <class T, class Sum>
AICORE_HOST_DEVICE void conv_element(const ConvParams &p, const ConvPointers<T> &t, std::int64_t index) {
    const Window &v = p.window;
    const Place o = place_of(index, p.groups * p.maps, v.out, p.y.channel == 1);
    const std::int64_t taps = product(v.kernel);
    const T *x = t.x + o.image * p.x.image + o.channel / p.maps * p.channels * p.x.channel;
    const T *w = t.w + o.channel * p.channels * taps;
    Sum sum = 0;
    std::int64_t k[3], i[3];
    for (k[0] = 0; k[0] < v.kernel[0]; k[0]++) {
        for (k[1] = 0; k[1] < v.kernel[1]; k[1]++) {
            for (k[2] = 0; k[2] < v.kernel[2]; k[2]++) {
                bool inside = true;
                for (int axis = 0; axis < 3; axis++) {
                    i[axis] = o.at[axis] * v.stride[axis] - v.begin[axis] + k[axis] * v.dilation[axis];
                    inside = inside && i[axis] >= 0 && i[axis] < v.size[axis];
                }
                if (!inside) continue;
                const T *source = x + pixel_of(i, v.size) * p.x.pixel;
                const T *weight = w + pixel_of(k, v.kernel);
                for (std::int64_t c = 0; c < p.channels; c++) {
                    sum += static_cast<Sum>(source[c * p.x.channel]) * static_cast<Sum>(weight[c * taps]);
                }
            }
        }
    }
    finish(p, t, o, sum);
}

// The transpose, gathered: which input elements reach this output element, and through which tap.
// w: (channels of all groups, maps of a group, taps). `begin` is how much of the reach is cut off.
template <class T, class Sum>
AICORE_HOST_DEVICE void transposed_element(const ConvParams &p, const ConvPointers<T> &t, std::int64_t index) {
    const Window &v = p.window;
    const Place o = place_of(index, p.groups * p.maps, v.out, p.y.channel == 1);
    const std::int64_t taps = product(v.kernel), group = o.channel / p.maps;
    const T *x = t.x + o.image * p.x.image + group * p.channels * p.x.channel;
    const T *w = t.w + (group * p.channels * p.maps + o.channel % p.maps) * taps;
    Sum sum = 0;
    std::int64_t k[3], i[3];
    for (k[0] = 0; k[0] < v.kernel[0]; k[0]++) {
        for (k[1] = 0; k[1] < v.kernel[1]; k[1]++) {
            for (k[2] = 0; k[2] < v.kernel[2]; k[2]++) {
                bool reaches = true;
                for (int axis = 0; axis < 3; axis++) {
                    const std::int64_t from = o.at[axis] + v.begin[axis] - k[axis] * v.dilation[axis];
                    i[axis] = from / v.stride[axis];
                    reaches = reaches && from >= 0 && from % v.stride[axis] == 0 && i[axis] < v.size[axis];
                }
                if (!reaches) continue;
                const T *source = x + pixel_of(i, v.size) * p.x.pixel;
                const T *weight = w + pixel_of(k, v.kernel);
                for (std::int64_t c = 0; c < p.channels; c++) {
                    sum += static_cast<Sum>(source[c * p.x.channel]) * static_cast<Sum>(weight[c * p.maps * taps]);
                }
            }
        }
    }
    finish(p, t, o, sum);
}

}  // namespace aicore::cnn
