// Weights in the order in which tiled kernels read them.
#pragma once

#include "window.cuh"

namespace aicore::cnn {

// From (groups * maps, channels, taps) to (groups, depth, columns), where row tap * channels + channel of a group has
// its maps side by side, with zeros after the last row and after the last map.
struct PackParams {
    std::int64_t groups, maps, channels, taps;
    std::int64_t depth, columns;  // taps * channels and maps, rounded up
    std::int64_t to_at;           // position among the pointers
};

AICORE_HOST_DEVICE float packed_weight(const PackParams &p, const float *w, std::int64_t index) {
    const std::int64_t map = index % p.columns, row = index / p.columns % p.depth;
    const std::int64_t group = index / p.columns / p.depth, tap = row / p.channels, channel = row % p.channels;
    if (map >= p.maps || tap >= p.taps) return 0.0f;
    return w[((group * p.maps + map) * p.channels + channel) * p.taps + tap];
}

}  // namespace aicore::cnn
