// Operands in the order in which the products want them: rows of bytes along the depth, zeros behind.
//
// Weights become signed. A column's sum of b - w_zero_point goes along, for whatever zero point x may have. Each kernel
// is a loop over what it writes; weights that never change were packed when the step was bound, by the same rules in
// aicore_int8_quant/cuda/packing.py.
#pragma once

#include "epilogue_kernels.cuh"

namespace int8_quant {

// b[g][n][k] = w[g * group + n * column + tap * tap_step + channel * channel_step + across * across_step], where
// k = (tap * padded) + channel + across * channels: taps of a row of a window that lie side by side are `across`. It is
// written to (g * columns + n) * line_step + k / 4 * word_step + k % 4.
struct WeightParams {
    std::int64_t groups, columns, taps, across, channels, padded, b_row;
    std::int64_t group, column, tap_step, across_step, channel_step;
    std::int64_t is_unsigned, point_each, column_group, line_step, word_step;
    std::int64_t w_at, point_at, b_at, sums_at;
};

// One block for each row of b: it packs the row and adds it up.
__global__ void pack_weights(const WeightParams p, const std::int8_t *w, const std::int8_t *points, std::int8_t *b,
                             std::int32_t *sums) {
    INT8_SHARED(shared);
    int *parts = reinterpret_cast<int *>(shared);
    wait_for_previous();
    let_next_begin();
    const std::int64_t line = blockIdx.x, group = line / p.columns, column = line - group * p.columns;
    const int flip = p.is_unsigned ? 128 : 0;
    unsigned sum = 0;
    for (std::int64_t k = threadIdx.x; k < p.b_row; k += blockDim.x) {
        const std::int64_t tap = k / p.padded, within = k - tap * p.padded, across = within / p.channels;
        int value = 0;
        if (tap < p.taps && across < p.across) {
            const std::int64_t channel = within - across * p.channels;
            const std::int64_t at = group * p.group + column * p.column + tap * p.tap_step + across * p.across_step;
            value = byte_at(w, at + channel * p.channel_step, p.is_unsigned) - flip;
        }
        b[line * p.line_step + k / 4 * p.word_step + k % 4] = static_cast<std::int8_t>(value);
        sum += static_cast<unsigned>(value);
    }
    parts[threadIdx.x] = static_cast<int>(sum);
    __syncthreads();
    if (threadIdx.x != 0) return;
    const std::int64_t at = p.point_each ? group * p.column_group + column : 0;
    const int point = (points == nullptr ? 0 : byte_at(points, at, p.is_unsigned)) - flip;
    unsigned total = 0u - static_cast<unsigned>(point) * static_cast<unsigned>(p.taps * p.across * p.channels);
    for (unsigned i = 0; i < blockDim.x; i++) total += static_cast<unsigned>(parts[i]);
    sums[line] = static_cast<std::int32_t>(total);
}

// Windows of an image side by side: to[g][row][tap * channels + channel], with zeros up to `to_row` bytes. x is at
// image * image_step + y * row_step + x * pixel_step + channel * channel_step; padding is the zero point. A product
// whose rows are not aligned is the case of one tap and one position. `padded` bytes for a tap.
struct WindowParams {
    std::int64_t groups, rows, to_row, taps, kernel_width, channels, padded;
    std::int64_t positions, out_width, height, width;
    std::int64_t group_step, image_step, row_step, pixel_step, channel_step;
    std::int64_t stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    std::int64_t x_at, point_at, to_at;
};

// Sixteen bytes from any address, of whole words around them.
__device__ __forceinline__ int4 read_across_words(const std::int8_t *from) {
    const auto at = reinterpret_cast<std::uintptr_t>(from);
    const auto *words = reinterpret_cast<const std::uint32_t *>(at & ~std::uintptr_t(3));
    const unsigned shift = unsigned(at & 3) * 8;
    std::uint32_t had[5];
#pragma unroll
    for (int i = 0; i < 5; i++) had[i] = words[i];
    return make_int4(int(__funnelshift_r(had[0], had[1], shift)), int(__funnelshift_r(had[1], had[2], shift)),
                     int(__funnelshift_r(had[2], had[3], shift)), int(__funnelshift_r(had[3], had[4], shift)));
}

// The first `count` of sixteen bytes, with zeros behind.
__device__ __forceinline__ int4 first_bytes(const int4 &bytes, int count) {
    int words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int left = count - 4 * i;
        words[i] = left >= 4 ? words[i] : left <= 0 ? 0 : words[i] & ((1 << (8 * left)) - 1);
    }
    return make_int4(words[0], words[1], words[2], words[3]);
}

// Sixteen bytes for each thread: at once where they lie so and no padding is among them, else one after the other, for
// which it divides once, and then counts taps and channels. What lies behind the last tap is multiplied by zeros.
__global__ void pack_windows(const __grid_constant__ WindowParams p, const std::int8_t *x, const std::int8_t *points,
                             std::int8_t *to) {
    wait_for_previous();
    let_next_begin();
    const std::int8_t point = points == nullptr ? std::int8_t(0) : points[0];
    const int each = int(p.to_row / 16), taps = int(p.taps), channels = int(p.channels), padded = int(p.padded);
    const int height = int(p.height), width = int(p.width), kernel_width = int(p.kernel_width);
    const bool in_rows = p.channel_step == 1 && p.pixel_step == channels && padded == channels && p.dilation_x == 1 &&
                         kernel_width == taps;
    // Whole pixels, one after the other.
    const bool in_order = p.channel_step == 1 && taps == 1 && p.stride_y == 1 && p.stride_x == 1 && p.pad_y == 0 &&
                          p.pad_x == 0 && p.out_width == p.width && p.positions == p.height * p.width;
    const std::int64_t count = p.groups * p.rows * each, end = p.rows / p.positions * p.image_step;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += std::int64_t(gridDim.x) * blockDim.x) {
        const unsigned line = unsigned(i) / unsigned(each), group = line / unsigned(p.rows);
        const unsigned row = line - group * unsigned(p.rows), image = row / unsigned(p.positions);
        const unsigned position = row - image * unsigned(p.positions), out_y = position / unsigned(p.out_width);
        const int out_x = int(position - out_y * unsigned(p.out_width)), k = int(i - std::int64_t(line) * each) * 16;
        int tap = k / padded, channel = k - tap * padded;
        const int down = tap / kernel_width;
        int across = tap - down * kernel_width, y = int(out_y) * int(p.stride_y) - int(p.pad_y) + down * int(p.dilation_y);
        const int left = out_x * int(p.stride_x) - int(p.pad_x);
        const std::int8_t *from = x + group * p.group_step + image * p.image_step;
        const std::int8_t *first = from + y * p.row_step + left * p.pixel_step + k;
        if (in_order && first - x + 20 <= end) {
            *reinterpret_cast<int4 *>(to + i * 16) = first_bytes(read_across_words(first), channels - k);
            continue;
        }
        const int begin = left * channels + k;
        if (in_rows && unsigned(y) < unsigned(height) && left >= 0 && begin + 20 <= width * channels) {
            *reinterpret_cast<int4 *>(to + i * 16) = read_across_words(from + y * p.row_step + begin);
            continue;
        }
        alignas(16) std::int8_t bytes[16];
        for (int j = 0; j < 16; j++) {
            const int at = left + across * int(p.dilation_x);
            const bool counts = tap < taps && channel < channels;
            const bool inside = unsigned(y) < unsigned(height) && unsigned(at) < unsigned(width);
            bytes[j] = !counts ? std::int8_t(0)
                       : inside ? from[y * p.row_step + at * p.pixel_step + channel * p.channel_step]
                                : point;
            if (++channel < padded) continue;
            channel = 0, tap++;
            if (++across < kernel_width) continue;
            across = 0, y += int(p.dilation_y);
        }
        *reinterpret_cast<int4 *>(to + i * 16) = *reinterpret_cast<const int4 *>(bytes);
    }
}

// Images with channels last, filled up with zeros to `padded` of each group: to[image][pixel][group][padded], from
// from[image][group * channels + channel][pixel] through a tile in shared memory, so that both sides are read and
// written along lines.
struct ImageParams {
    std::int64_t images, groups, channels, padded, pixels;
    std::int64_t x_at, to_at;
};

__global__ void pack_images(const ImageParams p, const std::int8_t *x, std::int8_t *to) {
    constexpr int kSide = 64;
    INT8_SHARED(shared);
    auto *tile = reinterpret_cast<std::int8_t *>(shared);
    wait_for_previous();
    let_next_begin();
    const std::int64_t total = p.groups * p.padded, pixel_tiles = (p.pixels + kSide - 1) / kSide;
    const std::int64_t image = blockIdx.x / pixel_tiles, first = (blockIdx.x - image * pixel_tiles) * kSide;
    const std::int64_t lane = threadIdx.x % kSide, line = threadIdx.x / kSide, lines = blockDim.x / kSide;
    const std::int64_t step = std::int64_t(gridDim.y) * kSide;
    for (std::int64_t begin = std::int64_t(blockIdx.y) * kSide; begin < total; begin += step) {
        for (std::int64_t c = line; c < kSide; c += lines) {
            const std::int64_t at = begin + c, group = at / p.padded, channel = at - group * p.padded;
            std::int8_t value = 0;
            if (at < total && channel < p.channels && first + lane < p.pixels)
                value = x[((image * p.groups + group) * p.channels + channel) * p.pixels + first + lane];
            tile[c * (kSide + 4) + lane] = value;
        }
        __syncthreads();
        for (std::int64_t pixel = line; pixel < kSide; pixel += lines) {
            if (first + pixel < p.pixels && begin + lane < total)
                to[(image * p.pixels + first + pixel) * total + begin + lane] = tile[lane * (kSide + 4) + pixel];
        }
        __syncthreads();
    }
}

// Sums along the depth of each row of a, windows of a convolution with their padding included: one warp for each.
__global__ void add_rows(const __grid_constant__ Gemm g, std::int32_t *to) {
    wait_for_previous();
    let_next_begin();
    const Sizes &s = g.s;
    const std::int64_t line = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const bool active = line < s.groups * s.rows;
    const std::int64_t group = active ? line / s.rows : 0, row = active ? line - group * s.rows : 0;
    const std::int8_t *a = g.a + group * s.a_group;
    const int point = g.e.x_point == nullptr ? 0 : byte_at(g.e.x_point, 0, s.a_unsigned);
    const std::int64_t image = row / s.positions, position = row - image * s.positions;
    unsigned sum = 0;
    for (std::int64_t k = lane; active && k < s.depth; k += 32) {
        if (s.taps == 0) {
            sum += static_cast<unsigned>(byte_at(a, row * s.a_row + k, s.a_unsigned));
            continue;
        }
        const std::int64_t tap = k / s.channels, down = tap / s.kernel_width;
        if (k - tap * s.channels >= s.filled) continue;
        const std::int64_t y = position / s.out_width * s.stride_y - s.pad_y + down * s.dilation_y;
        const std::int64_t across = (tap - down * s.kernel_width) * s.dilation_x;
        const std::int64_t x = position % s.out_width * s.stride_x - s.pad_x + across;
        if (y < 0 || y >= s.height || x < 0 || x >= s.width) {
            sum += static_cast<unsigned>(point);
        } else {
            const std::int64_t pixel = (image * s.height + y) * s.width + x;
            sum += static_cast<unsigned>(byte_at(a, pixel * s.pixel + k - tap * s.channels, s.a_unsigned));
        }
    }
    for (int step = 16; step > 0; step /= 2) sum += unsigned(__shfl_xor_sync(0xffffffffu, int(sum), step));
    if (active && lane == 0) to[line] = static_cast<std::int32_t>(sum);
}

}  // namespace int8_quant
