// Depthwise convolutions, channels last: results of a channel come from that channel alone, one or several of each.
//
// 1. `slide`, for windows of 3 x 3 and 5 x 5 at strides of 1 and 2: a thread computes four neighbouring results of a tile
//    of places. It reads each word of four channels once and turns four along a row into the four of each channel, which
//    dp4a multiplies by the weights of a row; of 5 x 5, the fifth tap is multiplied as it lies, by weights with zeros.
// 2. `gather`, for all others: four places along a row, one tap after the other.
#include "fours.cuh"

namespace {
using namespace int8_quant;

// The channels of a thread: kOwn of them, from `byte` on, in the words at `at` of a pixel.
template <int kOwn>
struct Channels {
    int at, byte;

    __device__ __forceinline__ Channels(const Images &p, int four) {
        const int first = kOwn == 4 ? 4 * four : int(p.maps.quotient(4 * unsigned(four)));
        at = first & ~3, byte = first & 3;
    }

    // The byte that result i comes from.
    __device__ __forceinline__ int of(int i) const { return byte + i * kOwn / 4; }
};

// Four words of four channels, as four places of each channel.
template <int kOwn>
__device__ __forceinline__ void turn(const std::uint32_t *places, int byte, std::uint32_t (&channels)[kOwn]) {
    if constexpr (kOwn == 4) {
        const std::uint32_t low = __byte_perm(places[0], places[1], 0x5140);
        const std::uint32_t low2 = __byte_perm(places[0], places[1], 0x7362);
        const std::uint32_t high = __byte_perm(places[2], places[3], 0x5140);
        const std::uint32_t high2 = __byte_perm(places[2], places[3], 0x7362);
        channels[0] = __byte_perm(low, high, 0x5410);
        channels[1] = __byte_perm(low, high, 0x7632);
        channels[2] = __byte_perm(low2, high2, 0x5410);
        channels[3] = __byte_perm(low2, high2, 0x7632);
    } else {
#pragma unroll
        for (int i = 0; i < kOwn; i++) {
            const unsigned both = unsigned(0x40 + 0x11 * (byte + i));
            const std::uint32_t low = __byte_perm(places[0], places[1], both);
            channels[i] = __byte_perm(low, __byte_perm(places[2], places[3], both), 0x5410);
        }
    }
}

// Weights of a row of the window for four results: those of the first four taps, and for a fifth tap one at the byte of
// the result's channel.
template <int kSide, int kOwn>
struct Row {
    int first[4], fifth[4];

    __device__ __forceinline__ void read(const Images &p, int row, int four, const Channels<kOwn> &channels) {
        constexpr int kWords = (kSide + 3) / 4;
        read_four(reinterpret_cast<const int *>(p.weights + row * kWords * p.fours + four), first);
        if (kSide < 5) return;
        read_four(reinterpret_cast<const int *>(p.weights + (row * kWords + 1) * p.fours + four), fifth);
        for (int i = 0; i < 4; i++) fifth[i] = int(unsigned(fifth[i]) << (8 * channels.of(i)));
    }
};

// Adds a row of pixels to the sums of one place, by the weights of a row. late: the turned words begin one place before.
template <int kSide, int kOwn, bool kUnsigned>
__device__ __forceinline__ void add_row(const Row<kSide, kOwn> &weights, const std::uint32_t (&turned)[kOwn], bool late,
                                        std::uint32_t fifth, int (&sums)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int first = late ? int(unsigned(weights.first[i]) << 8) : weights.first[i];
        sums[i] = dot_4<kUnsigned>(int(turned[i * kOwn / 4]), first, sums[i]);
        if (kSide == 5) sums[i] = dot_4<kUnsigned>(int(fifth), weights.fifth[i], sums[i]);
    }
}

// Adds a row of pixels, the one numbered `number` of the tile, to all sums that it has a part in.
template <int kSide, int kStride, int kDown, int kAcross, int kOwn, bool kUnsigned>
__device__ __forceinline__ void add_pixels(const Row<kSide, kOwn> (&weights)[kSide], const std::uint32_t *pixels,
                                           int number, int byte, int (&sums)[kDown][kAcross][4]) {
    std::uint32_t turned[kOwn];
#pragma unroll
    for (int j = 0; j < kAcross; j++) {
        const bool late = kSide == 3 && kStride == 1 && j % 2 == 1;  // four places hold two windows of three
        if (!late) turn<kOwn>(pixels + j * kStride, byte, turned);
#pragma unroll
        for (int i = 0; i < kDown; i++) {
            const int row = number - i * kStride;
            if (row < 0 || row >= kSide) continue;
            add_row<kSide, kOwn, kUnsigned>(weights[row], turned, late, kSide == 5 ? pixels[j * kStride + 4] : 0,
                                            sums[i][j]);
        }
    }
}

template <int kSide, int kStride, int kDown, int kAcross, int kOwn, bool kUnsigned>
__global__ void __launch_bounds__(kThreads)
    slide(const __grid_constant__ Images p, const __grid_constant__ Epilogue e) {
    constexpr int kHigh = kStride * (kDown - 1) + kSide, kWide = kStride * (kAcross - 1) + kSide;
    const Part part = part_of(p);
    if (part.slot >= p.slots) return;
    const Channels<kOwn> channels(p, part.chunk);
    if (!p.constant) wait_for_previous();
    Row<kSide, kOwn> weights[kSide];
    for (int i = 0; i < kSide; i++) weights[i].read(p, i, part.chunk, channels);
    const Finish<true> finish(p, e);
    const Four own = finish.four(e, 4 * part.chunk);
    const std::uint32_t point = finish.point();
    wait_for_previous();
    let_next_begin();
#pragma unroll 1
    for (unsigned tile = part.slot; tile < p.tiles; tile += p.slots) {
        const Spot spot = spot_of<kDown, kAcross>(p, tile);
        const int top = spot.top * kStride - p.pad_y, left = spot.left * kStride - p.pad_x;
        const std::int8_t *from = p.x + ((spot.image * p.height + top) * p.width + left) * p.pixel + channels.at;
        int sums[kDown][kAcross][4];
        for (int i = 0; i < kDown * kAcross * 4; i++) sums[i / 4 / kAcross][i / 4 % kAcross][i % 4] = own.begin[i % 4];
#pragma unroll
        for (int i = 0; i < kHigh; i++) {
            const bool here = unsigned(top + i) < unsigned(p.height);
            std::uint32_t pixels[kWide + 1] = {};  // four are turned at a time, the last of which has weights of zero
#pragma unroll
            for (int j = 0; j < kWide; j++) {
                const bool inside = here && unsigned(left + j) < unsigned(p.width);
                pixels[j] = inside ? *reinterpret_cast<const std::uint32_t *>(from + j * p.pixel) : point;
            }
            add_pixels<kSide, kStride, kDown, kAcross, kOwn, kUnsigned>(weights, pixels, i, channels.byte, sums);
            from += p.width * p.pixel;
        }
        finish_places(p, e, spot, part.chunk, finish, own, sums);
    }
}

// Adds a tap to places along a row.
template <int kAcross, int kOwn, bool kUnsigned>
__device__ __forceinline__ void add_tap(const Images &p, const std::int8_t *from, int y, int x, std::uint32_t point,
                                        const int (&weights)[4], int (&sums)[1][kAcross][4]) {
    const std::int8_t *pixel = from + (y * p.width + x) * p.pixel;
#pragma unroll
    for (int i = 0; i < kAcross; i++) {
        const bool inside = unsigned(y) < unsigned(p.height) && unsigned(x + i * p.stride_x) < unsigned(p.width);
        const auto *word = reinterpret_cast<const std::uint32_t *>(pixel + i * p.stride_x * p.pixel);
        const int four = int(inside ? *word : point);
        for (int j = 0; j < 4; j++) sums[0][i][j] = dot_4<kUnsigned>(four, weights[j], sums[0][i][j]);
    }
}

template <int kOwn, bool kUnsigned>
__global__ void __launch_bounds__(kThreads)
    gather(const __grid_constant__ Images p, const __grid_constant__ Epilogue e) {
    constexpr int kAcross = 4;
    const Part part = part_of(p);
    if (part.slot >= p.slots) return;
    const Channels<kOwn> channels(p, part.chunk);
    if (!p.constant) wait_for_previous();
    const Finish<false> finish(p, e);
    const Four own = finish.four(e, 4 * part.chunk);
    wait_for_previous();
    let_next_begin();
#pragma unroll 1
    for (unsigned tile = part.slot; tile < p.tiles; tile += p.slots) {
        const Spot spot = spot_of<1, kAcross>(p, tile);
        const int top = spot.top * p.stride_y - p.pad_y, left = spot.left * p.stride_x - p.pad_x;
        const std::int8_t *from = p.x + spot.image * p.height * p.width * p.pixel + channels.at;
        int sums[1][kAcross][4];
        for (int i = 0; i < kAcross * 4; i++) sums[0][i / 4][i % 4] = own.begin[i % 4];
        const int words = (p.kernel_width + 3) / 4, taps = p.kernel_height * p.kernel_width;
        for (int tap = 0, down = 0, across = 0; tap < taps; tap++) {
            const int4 *word = p.weights + (down * words + across / 4) * p.fours + part.chunk;
            int weights[4];
            read_four(reinterpret_cast<const int *>(word), weights);
            for (int i = 0; i < 4; i++) {  // to the byte of the result's channel
                const unsigned to = unsigned(4 * channels.of(i)), zeros = 0x4444u & ~(0xfu << to);
                weights[i] = int(__byte_perm(unsigned(weights[i]), 0u, zeros | unsigned(across % 4) << to));
            }
            add_tap<kAcross, kOwn, kUnsigned>(p, from, top + down * p.dilation_y, left + across * p.dilation_x,
                                              finish.point(), weights, sums);
            if (++across == p.kernel_width) across = 0, down++;
        }
        finish_places(p, e, spot, part.chunk, finish, own, sums);
    }
}

struct Call {
    Gemm g;
    bool constant;
    cudaStream_t stream;
};

// Tiles are listed in aicore_int8_quant/cuda/fours.py.
template <int kSide, int kStride, int kOwn, bool kUnsigned>
int launch_tile(const Call &c, std::int64_t tile) {
    switch (tile) {
        case 0:
            return launch_places(slide<kSide, kStride, 1, 2, kOwn, kUnsigned>, c.g, c.constant, 1, 2, 1, c.stream);
        case 1:
            return launch_places(slide<kSide, kStride, 2, 2, kOwn, kUnsigned>, c.g, c.constant, 2, 2, 1, c.stream);
        default:
            return launch_places(slide<kSide, kStride, 4, 2, kOwn, kUnsigned>, c.g, c.constant, 4, 2, 1, c.stream);
    }
}

template <int kOwn, bool kUnsigned>
int launch_own(const Call &c, std::int64_t tile) {
    const Sizes &s = c.g.s;
    const std::int64_t side = s.kernel_width, stride = s.stride_x;
    const bool square = s.taps == side * side && s.stride_y == stride && s.dilation_y == 1 && s.dilation_x == 1;
    if (square && side == 3 && stride == 1) return launch_tile<3, 1, kOwn, kUnsigned>(c, tile);
    if (square && side == 3 && stride == 2) return launch_tile<3, 2, kOwn, kUnsigned>(c, tile);
    if (square && side == 5 && stride == 1) return launch_tile<5, 1, kOwn, kUnsigned>(c, tile);
    if (square && side == 5 && stride == 2) return launch_tile<5, 2, kOwn, kUnsigned>(c, tile);
    return launch_places(gather<kOwn, kUnsigned>, c.g, c.constant, 1, 4, 1, c.stream);
}

int depthwise(void *const *pointers, const FourParams &p, cudaStream_t stream) {
    const Call c = {gemm_of(pointers, p.params), p.constant != 0, stream};
    const Sizes &s = c.g.s;
    if (s.rows == 0 || s.groups == 0) return cudaSuccess;  // no elements, no launch
    const auto run = [&](auto is_unsigned) {
        constexpr bool kUnsigned = decltype(is_unsigned)::value;
        if (s.columns == 1) return launch_own<4, kUnsigned>(c, p.params.tile);
        return s.columns == 2 ? launch_own<2, kUnsigned>(c, p.params.tile) : launch_own<1, kUnsigned>(c, p.params.tile);
    };
    return s.a_unsigned ? run(std::true_type{}) : run(std::false_type{});
}
INT8_KERNEL(int8_conv_depthwise, FourParams, 3, depthwise);

}  // namespace
