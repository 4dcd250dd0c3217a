// Convolutions of groups of few channels, channels last, channels and maps of a group in fours: a thread computes four
// neighbouring results of some places along a row. A word has four channels of a place; lanes next to each other read
// weights next to each other.
//
// 1. `slide`, for windows of 3 x 3 and groups of 4, 8 and 16 channels: a row of pixels is read once for all places.
// 2. `gather`, for all others: one tap after the other.
#include "fours.cuh"

namespace {
using namespace int8_quant;

template <int kWords>
struct alignas(4 * kWords) Words {
    std::uint32_t of[kWords];
};

template <int kWords>
__device__ __forceinline__ Words<kWords> read_words(const std::int8_t *from, bool inside, std::uint32_t point) {
    Words<kWords> words;
#pragma unroll
    for (std::uint32_t &one : words.of) one = point;
    if (inside) words = *reinterpret_cast<const Words<kWords> *>(from);
    return words;
}

// Adds the products of words of `kAcross` places and the weights of a tap, of which each word has four.
template <int kWords, int kStep, int kAcross, bool kUnsigned>
__device__ __forceinline__ void add_tap(const Words<kWords> *pixels, const int4 *weights, int fours,
                                        int (&sums)[1][kAcross][4]) {
#pragma unroll
    for (int i = 0; i < kWords; i++) {
        int four[4];
        read_four(reinterpret_cast<const int *>(weights + i * fours), four);
#pragma unroll
        for (int j = 0; j < 4 * kAcross; j++) {
            int &sum = sums[0][j / 4][j % 4];
            sum = dot_4<kUnsigned>(int(pixels[j / 4 * kStep].of[i]), four[j % 4], sum);
        }
    }
}

// The first channel of a group, of the one that results come from.
__device__ __forceinline__ int first_channel(const Images &p, int four) {
    return int(p.maps.quotient(4 * unsigned(four))) * p.channels;
}

template <int kWords, int kStride, int kAcross, bool kUnsigned>
__global__ void __launch_bounds__(kThreads)
    slide(const __grid_constant__ Images p, const __grid_constant__ Epilogue e) {
    constexpr int kSide = 3, kWide = kStride * (kAcross - 1) + kSide;
    const Part part = part_of(p);
    if (part.slot >= p.slots) return;
    const std::int8_t *x = p.x + first_channel(p, part.chunk);
    if (!p.constant) wait_for_previous();
    const Finish<false> finish(p, e);
    const Four own = finish.four(e, 4 * part.chunk);
    const std::uint32_t point = finish.point();
    wait_for_previous();
    let_next_begin();
#pragma unroll 1
    for (unsigned tile = part.slot; tile < p.tiles; tile += p.slots) {
        const Spot spot = spot_of<1, kAcross>(p, tile);
        const int top = spot.top * p.stride_y - p.pad_y, left = spot.left * kStride - p.pad_x;
        const std::int8_t *from = x + ((spot.image * p.height + top) * p.width + left) * p.pixel;
        const int4 *weights = p.weights + part.chunk;
        int sums[1][kAcross][4];
        for (int i = 0; i < kAcross * 4; i++) sums[0][i / 4][i % 4] = own.begin[i % 4];
#pragma unroll(kWords < 4 ? kSide : 1)
        for (int down = 0; down < kSide; down++) {
            const bool here = unsigned(top + down) < unsigned(p.height);
            Words<kWords> pixels[kWide];
#pragma unroll
            for (int i = 0; i < kWide; i++)
                pixels[i] = read_words<kWords>(from + i * p.pixel, here && unsigned(left + i) < unsigned(p.width), point);
#pragma unroll
            for (int i = 0; i < kSide; i++)
                add_tap<kWords, kStride, kAcross, kUnsigned>(pixels + i, weights + i * kWords * p.fours, p.fours, sums);
            weights += kSide * kWords * p.fours;
            from += p.width * p.pixel;
        }
        finish_places(p, e, spot, part.chunk, finish, own, sums);
    }
}

template <int kWords, int kAcross, bool kUnsigned>
__global__ void __launch_bounds__(kThreads)
    gather(const __grid_constant__ Images p, const __grid_constant__ Epilogue e) {
    const Part part = part_of(p);
    if (part.slot >= p.slots) return;
    const std::int8_t *x = p.x + first_channel(p, part.chunk);
    if (!p.constant) wait_for_previous();
    const Finish<false> finish(p, e);
    const Four own = finish.four(e, 4 * part.chunk);
    wait_for_previous();
    let_next_begin();
    const int chunks = p.channels / (4 * kWords), count = p.kernel_height * p.kernel_width * chunks;
#pragma unroll 1
    for (unsigned tile = part.slot; tile < p.tiles; tile += p.slots) {
        const Spot spot = spot_of<1, kAcross>(p, tile);
        const int top = spot.top * p.stride_y - p.pad_y, left = spot.left * p.stride_x - p.pad_x;
        const std::int8_t *image = x + spot.image * p.height * p.width * p.pixel;
        const int4 *weights = p.weights + part.chunk;
        int sums[1][kAcross][4];
        for (int i = 0; i < kAcross * 4; i++) sums[0][i / 4][i % 4] = own.begin[i % 4];
        int down = 0, across = 0, chunk = 0;
#pragma unroll 2
        for (int i = 0; i < count; i++) {
            const int y = top + down * p.dilation_y, place = left + across * p.dilation_x;
            const std::int8_t *from = image + (y * p.width + place) * p.pixel + 4 * kWords * chunk;
            const bool here = unsigned(y) < unsigned(p.height);
            Words<kWords> pixels[kAcross];
#pragma unroll
            for (int j = 0; j < kAcross; j++) {
                const bool inside = here && unsigned(place + j * p.stride_x) < unsigned(p.width);
                pixels[j] = read_words<kWords>(from + j * p.stride_x * p.pixel, inside, finish.point());
            }
            add_tap<kWords, 1, kAcross, kUnsigned>(pixels, weights, p.fours, sums);
            weights += kWords * p.fours;
            if (++chunk == chunks) chunk = 0, across++;
            if (across == p.kernel_width) across = 0, down++;
        }
        finish_places(p, e, spot, part.chunk, finish, own, sums);
    }
}

// kStride: 0 for `gather`.
template <int kWords, int kStride, int kAcross, bool kUnsigned>
int launch_one(const Gemm &g, const FourParams &p, cudaStream_t stream) {
    if constexpr (kStride == 0) {
        return launch_places(gather<kWords, kAcross, kUnsigned>, g, p.constant != 0, 1, kAcross, 1, stream);
    } else {
        return launch_places(slide<kWords, kStride, kAcross, kUnsigned>, g, p.constant != 0, 1, kAcross, 1, stream);
    }
}

template <int kWords, int kStride, bool kUnsigned>
int launch_tile(const Gemm &g, const FourParams &p, cudaStream_t stream) {
    switch (p.params.tile) {  // as listed in aicore_int8_quant/cuda/fours.py
        case 0:
            return launch_one<kWords, kStride, 1, kUnsigned>(g, p, stream);
        case 1:
            return launch_one<kWords, kStride, 2, kUnsigned>(g, p, stream);
        case 2:
            return launch_one<kWords, kStride, 4, kUnsigned>(g, p, stream);
        default:
            return launch_one<kWords, kStride, 8, kUnsigned>(g, p, stream);
    }
}

template <int kStride, bool kUnsigned>
int launch_slide(const Gemm &g, const FourParams &p, cudaStream_t stream) {
    if (g.s.filled == 4) return launch_tile<1, kStride, kUnsigned>(g, p, stream);
    if (g.s.filled == 8) return launch_tile<2, kStride, kUnsigned>(g, p, stream);
    return launch_tile<4, kStride, kUnsigned>(g, p, stream);
}

template <bool kUnsigned>
int launch_any(const Gemm &g, const FourParams &p, cudaStream_t stream) {
    const Sizes &s = g.s;
    const bool square = s.kernel_width == 3 && s.taps == 9 && s.dilation_y == 1 && s.dilation_x == 1;
    const bool few = s.filled == 4 || s.filled == 8 || s.filled == 16;
    if (square && few && s.stride_x == 1) return launch_slide<1, kUnsigned>(g, p, stream);
    if (square && few && s.stride_x == 2) return launch_slide<2, kUnsigned>(g, p, stream);
    return s.filled % 16 == 0 ? launch_tile<4, 0, kUnsigned>(g, p, stream) : launch_tile<1, 0, kUnsigned>(g, p, stream);
}

int grouped(void *const *pointers, const FourParams &p, cudaStream_t stream) {
    const Gemm g = gemm_of(pointers, p.params);
    if (g.s.rows == 0) return cudaSuccess;  // no elements, no launch
    return g.s.a_unsigned ? launch_any<true>(g, p, stream) : launch_any<false>(g, p, stream);
}
INT8_KERNEL(int8_conv_grouped, FourParams, 3, grouped);

}  // namespace
