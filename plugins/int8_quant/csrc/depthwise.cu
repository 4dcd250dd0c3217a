// Depthwise convolutions, one map for each channel, with channels last: a thread computes four channels at four places
// of a row. It reads a word of four channels for each of four taps, turns them so that each word has four taps of one
// channel, and lets dp4a multiply these; a row of b has the taps of a channel, with zeros behind.
#include "dot.cuh"
#include "epilogue_kernels.cuh"

namespace {
using namespace int8_quant;

constexpr unsigned kThreads = 128;
constexpr int kAlong = 4;

// Four words of four bytes each, the other way round.
__device__ __forceinline__ void turn(const std::uint32_t (&rows)[4], std::uint32_t (&columns)[4]) {
    const std::uint32_t low = __byte_perm(rows[0], rows[1], 0x5140), high = __byte_perm(rows[2], rows[3], 0x5140);
    const std::uint32_t low2 = __byte_perm(rows[0], rows[1], 0x7362), high2 = __byte_perm(rows[2], rows[3], 0x7362);
    columns[0] = __byte_perm(low, high, 0x5410);
    columns[1] = __byte_perm(low, high, 0x7632);
    columns[2] = __byte_perm(low2, high2, 0x5410);
    columns[3] = __byte_perm(low2, high2, 0x7632);
}

// Sizes are those of `convolve`: positions of images are rows, each channel is a group of one column.
template <bool kUnsigned>
__global__ void __launch_bounds__(kThreads) convolve_depthwise(const __grid_constant__ Gemm g, std::int64_t row_step) {
    wait_for_previous();
    let_next_begin();
    const Sizes &s = g.s;
    const unsigned out_width = unsigned(s.out_width), lines = unsigned(s.rows / s.out_width);
    const unsigned fours = unsigned(s.groups / 4), across = (out_width + kAlong - 1) / kAlong;
    const std::int64_t index = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (index >= std::int64_t(lines) * across * fours) return;
    const unsigned at = unsigned(index), place = at / fours, channel = 4 * (at - place * fours);
    const unsigned line = place / across, first = kAlong * (place - line * across);
    const unsigned height = unsigned(s.positions / s.out_width), image = line / height;
    const int top = int(line - image * height) * int(s.stride_y) - int(s.pad_y);
    const int left = int(first) * int(s.stride_x) - int(s.pad_x), step = int(s.stride_x);
    const std::int8_t *from = g.a + image * s.a_group + channel;
    const std::uint32_t point = g.e.x_point == nullptr ? 0 : (std::uint8_t(g.e.x_point[0])) * 0x01010101u;

    int sums[kAlong][4] = {};
    int down = 0, right = 0;
    for (int tap = 0; tap < s.taps; tap += 4) {
        int y[4], x[4], weights[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            y[i] = top + down * int(s.dilation_y), x[i] = left + right * int(s.dilation_x);
            right++;
            if (right == s.kernel_width) right = 0, down++;
            weights[i] = *reinterpret_cast<const int *>(g.b + (channel + i) * s.b_row + tap);
        }
#pragma unroll
        for (int i = 0; i < kAlong; i++) {
            std::uint32_t words[4], channels[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int over = x[j] + i * step;
                const bool inside = unsigned(y[j]) < unsigned(s.height) && unsigned(over) < unsigned(s.width);
                const std::int8_t *pixel = from + y[j] * row_step + over * s.pixel;
                words[j] = inside ? *reinterpret_cast<const std::uint32_t *>(pixel) : point;
            }
            turn(words, channels);
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] = dot_4<kUnsigned>(int(channels[j]), weights[j], sums[i][j]);
        }
    }

    const Target t = target_of(g.e);
    Column own[4];
    for (int j = 0; j < 4; j++) own[j] = column_of(g.e, channel + j, channel + j);
    const bool codes = g.e.p.out_type == kInt8 || g.e.p.out_type == kUint8;
#pragma unroll
    for (int i = 0; i < kAlong; i++) {
        if (first + i >= out_width) continue;
        const std::int64_t to = (std::int64_t(line) * out_width + first + i) * s.groups + channel;
        std::uint32_t word = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int sum = wrapped(unsigned(sums[i][j]) + unsigned(own[j].base));
            const std::int64_t added = g.e.p.addend_full ? to + j : channel + j;
            if (codes) {
                word |= (std::uint32_t(code_of(real_of(g.e, t, sum, own[j].scale, added), t)) & 255u) << (8 * j);
            } else {
                store_result(g.e, t, sum, own[j].scale, to + j, added);
            }
        }
        if (codes) *reinterpret_cast<std::uint32_t *>(static_cast<std::int8_t *>(g.e.out) + to) = word;
    }
}

struct DepthwiseParams {
    Params params;
    std::int64_t row_step;
};

int depthwise(void *const *pointers, const DepthwiseParams &p, cudaStream_t stream) {
    const Sizes &s = p.params.sizes;
    if (s.rows == 0 || s.groups == 0) return cudaSuccess;  // no elements, no launch
    const std::int64_t threads = s.rows / s.out_width * ((s.out_width + kAlong - 1) / kAlong) * (s.groups / 4);
    const auto run = [&](auto kernel) {
        const dim3 grid(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
        return launch(kernel, grid, kThreads, 0, stream, 1, gemm_of(pointers, p.params), p.row_step);
    };
    return s.a_unsigned ? run(convolve_depthwise<true>) : run(convolve_depthwise<false>);
}
INT8_KERNEL(int8_conv_depthwise, DepthwiseParams, 3, depthwise);

}  // namespace
