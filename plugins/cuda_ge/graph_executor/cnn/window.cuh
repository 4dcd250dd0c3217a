// A sliding window over images of one to three spatial axes, in numbers: what convolutions and pools share.
//
// Read by nvcc and, for the tests of index arithmetic, by a host compiler. Python packs the structs as they are here.
#pragma once

#include <cstdint>

#include "../activation/activation.cuh"

namespace aicore::cnn {

// Element types of operands; the numbers are part of the params that Python packs.
enum Element : std::int64_t { kFloat32, kFloat16, kBfloat16, kFloat64, kInt8, kUint8, kInt16, kUint16, kInt32, kUint32,
                              kInt64, kUint64 };

// How far apart neighbours are, in elements. Pixels are counted through all spatial axes, the last one fastest, so that
// channels first and channels last are one struct.
struct Distances {
    std::int64_t image, channel, pixel;
};

// Missing leading axes have size, kernel, stride and dilation 1 and no padding.
struct Window {
    std::int64_t size[3], out[3], kernel[3], stride[3], dilation[3];
    std::int64_t begin[3];  // padding before the first element
};

AICORE_HOST_DEVICE std::int64_t product(const std::int64_t (&dims)[3]) { return dims[0] * dims[1] * dims[2]; }

struct Place {
    std::int64_t image, channel, at[3];
};

// The place of element `index` of results, counted in the order in which they lie in memory.
AICORE_HOST_DEVICE Place place_of(std::int64_t index, std::int64_t channels, const std::int64_t (&out)[3],
                                  bool channels_last) {
    Place place;
    if (channels_last) {
        place.channel = index % channels;
        index /= channels;
    }
    for (int axis = 2; axis >= 0; axis--) {
        place.at[axis] = index % out[axis];
        index /= out[axis];
    }
    if (!channels_last) {
        place.channel = index % channels;
        index /= channels;
    }
    place.image = index;
    return place;
}

AICORE_HOST_DEVICE std::int64_t pixel_of(const std::int64_t (&at)[3], const std::int64_t (&size)[3]) {
    return (at[0] * size[1] + at[1]) * size[2] + at[2];
}

// One bit for each of up to 15 taps along an axis: whether it meets an element when the window begins at `start`.
AICORE_HOST_DEVICE unsigned taps_inside(int start, int dilation, int taps, int size) {
    unsigned bits = 0;
    for (int tap = 0; tap < taps; tap++, start += dilation) bits |= (start >= 0 && start < size ? 1u : 0u) << tap;
    return bits;
}

}  // namespace aicore::cnn
