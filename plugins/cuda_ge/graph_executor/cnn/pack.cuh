// Weights in the order in which tiled kernels read them: (groups, depth, columns), where row tap * channels + channel of
// a group has its maps side by side, with zeros after the last row and after the last map.
#pragma once

#include "window.cuh"

namespace aicore::cnn {

// Which taps of a kernel of `size` lines and columns, counted along an axis from `first` in steps of `step`, which is
// negative where the kernel is turned around: taps of the convolution that is computed, in its order.
struct PackTaps {
    std::int64_t size[2];
    std::int64_t count[2], first[2], step[2];
};

// From w[group * maps + map][channel][tap], or where `transposed` from w[group * channels + channel][map][tap].
struct PackParams {
    std::int64_t groups, maps, channels;
    std::int64_t depth, columns;  // taps * channels and maps, rounded up
    std::int64_t transposed;
    PackTaps taps;
    std::int64_t to_at, to_byte;  // which pointer, and how far behind it
};

// All taps of one channel and column of a group; channel number `channels` stands for the rows of zeros at the end.
// Neighbouring threads take neighbouring columns, so that what they write lies side by side; what they read does for
// one thread, tap after tap.
AICORE_HOST_DEVICE void pack_taps(const PackParams &p, const float *w, float *to, int group, int channel, int column) {
    const PackTaps &t = p.taps;
    const int channels = static_cast<int>(p.channels), columns = static_cast<int>(p.columns);
    const int maps = static_cast<int>(p.maps), all = static_cast<int>(t.size[0] * t.size[1]);
    const int lines = static_cast<int>(t.count[0]), across = static_cast<int>(t.count[1]);
    to += static_cast<std::int64_t>(group) * p.depth * p.columns + column;
    if (channel == channels) {
        for (int row = lines * across * channels; row < p.depth; row++) to[static_cast<std::int64_t>(row) * columns] = 0.0f;
        return;
    }
    const std::int64_t pair = p.transposed ? static_cast<std::int64_t>(group * channels + channel) * maps + column
                                           : static_cast<std::int64_t>(group * maps + column) * channels + channel;
    const float *from = w + (column < maps ? pair * all : 0);
    const int first[2] = {static_cast<int>(t.first[0]), static_cast<int>(t.first[1])};
    const int step[2] = {static_cast<int>(t.step[0]), static_cast<int>(t.step[1])};
    for (int line = 0, tap = 0; line < lines; line++) {
        for (int i = 0; i < across; i++, tap++) {
            const int at = (first[0] + line * step[0]) * static_cast<int>(t.size[1]) + first[1] + i * step[1];
            to[static_cast<std::int64_t>(tap * channels + channel) * columns] = column < maps ? from[at] : 0.0f;
        }
    }
}

}  // namespace aicore::cnn
