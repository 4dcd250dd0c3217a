// Convolutions of images of few channels, channels last, as of a picture: taps of a row and their channels lie side by
// side, so a row of a window is a few words from any byte on. A thread computes some fours of results for places along
// a row; what it reads beyond the ends of a row is replaced by the zero point, by masks that all rows of a window share.
#include "fours.cuh"

namespace {
using namespace int8_quant;

// Which bytes lie within `count` of them, of a word that begins at `begin`.
__device__ __forceinline__ std::uint32_t bytes_within(int begin, int count) {
    const int before = begin < 0 ? -begin : 0, after = begin + 4 > count ? begin + 4 - count : 0;
    if (before >= 4 || after >= 4) return 0;
    return (0xffffffffu << (8 * before)) & (0xffffffffu >> (8 * after));
}

// kWords bytes times four from any byte on; words outside of x are those at its ends.
template <int kWords>
__device__ __forceinline__ void read_bytes(const std::uint32_t *x, int at, int last, std::uint32_t (&to)[kWords]) {
    const int first = at >> 2;
    std::uint32_t words[kWords + 1];
#pragma unroll
    for (int i = 0; i <= kWords; i++) {
        const int word = first + i < 0 ? 0 : first + i;
        words[i] = x[word < last ? word : last];
    }
#pragma unroll
    for (int i = 0; i < kWords; i++) to[i] = __funnelshift_r(words[i], words[i + 1], unsigned(at & 3) * 8);
}

// kWords: of a row of a window. kOwn: fours of results of a thread, of which a last thread may have fewer.
template <int kWords, int kAcross, int kOwn, bool kUnsigned>
__global__ void __launch_bounds__(kThreads)
    convolve_few(const __grid_constant__ Images p, const __grid_constant__ Epilogue e) {
    const Part part = part_of(p);
    if (part.slot >= p.slots) return;
    const int first = part.chunk * kOwn, most = p.fours - first;
    const int line = p.width * p.pixel, step = p.stride_x * p.pixel;
    if (!p.constant) wait_for_previous();
    const Finish<false> finish(p, e);
    const std::uint32_t point = finish.point();
    Four own[kOwn];
    for (int i = 0; i < kOwn; i++) own[i] = finish.four(e, 4 * (first + (i < most ? i : 0)));
    wait_for_previous();
    let_next_begin();
    const auto *x = reinterpret_cast<const std::uint32_t *>(p.x);
#pragma unroll 1
    for (unsigned tile = part.slot; tile < p.tiles; tile += p.slots) {
        const Spot spot = spot_of<1, kAcross>(p, tile);
        const int top = spot.top * p.stride_y - p.pad_y, left = (spot.left * p.stride_x - p.pad_x) * p.pixel;
        std::uint32_t within[kAcross][kWords];
        for (int i = 0; i < kAcross * kWords; i++)
            within[i / kWords][i % kWords] = bytes_within(left + i / kWords * step + 4 * (i % kWords), line);
        int sums[kOwn][1][kAcross][4];
        for (int i = 0; i < kOwn * kAcross * 4; i++)
            sums[i / 4 / kAcross][0][i / 4 % kAcross][i % 4] = own[i / 4 / kAcross].begin[i % 4];
        const int4 *weights = p.weights + first;
#pragma unroll 2
        for (int down = 0; down < p.kernel_height; down++) {
            const int y = top + down * p.dilation_y, from = (spot.image * p.height + y) * line + left;
            const bool here = unsigned(y) < unsigned(p.height);
            std::uint32_t bytes[kAcross][kWords];
#pragma unroll
            for (int i = 0; i < kAcross; i++) {
                read_bytes<kWords>(x, from + i * step, p.last_word, bytes[i]);
                for (int j = 0; j < kWords; j++) {
                    const std::uint32_t mask = here ? within[i][j] : 0u;
                    bytes[i][j] = (bytes[i][j] & mask) | (point & ~mask);
                }
            }
#pragma unroll
            for (int i = 0; i < kWords * kOwn; i++) {
                int four[4];
                const int4 *word = weights + i / kOwn * p.fours + (i % kOwn < most ? i % kOwn : 0);
                read_four(reinterpret_cast<const int *>(word), four);
                for (int j = 0; j < 4 * kAcross; j++) {
                    int &sum = sums[i % kOwn][0][j / 4][j % 4];
                    sum = dot_4<kUnsigned>(int(bytes[j / 4][i / kOwn]), four[j % 4], sum);
                }
            }
            weights += kWords * p.fours;
        }
#pragma unroll
        for (int i = 0; i < kOwn; i++)
            if (i < most) finish_places(p, e, spot, first + i, finish, own[i], sums[i]);
    }
}

template <int kWords, bool kUnsigned>
int launch_tile(const Gemm &g, const FourParams &p, cudaStream_t stream) {
    const auto run = [&](auto kernel, int across, int own) {
        return launch_places(kernel, g, p.constant != 0, 1, across, own, stream);
    };
    switch (p.params.tile) {  // as listed in aicore_int8_quant/cuda/fours.py
        case 0:
            return run(convolve_few<kWords, 1, 1, kUnsigned>, 1, 1);
        case 1:
            return run(convolve_few<kWords, 1, 2, kUnsigned>, 1, 2);
        case 2:
            return run(convolve_few<kWords, 2, 4, kUnsigned>, 2, 4);
        default:
            return run(convolve_few<kWords, 4, 2, kUnsigned>, 4, 2);
    }
}

template <bool kUnsigned>
int launch_words(const Gemm &g, const FourParams &p, cudaStream_t stream) {
    switch ((g.s.kernel_width * g.s.filled + 3) / 4) {
        case 1:
            return launch_tile<1, kUnsigned>(g, p, stream);
        case 2:
            return launch_tile<2, kUnsigned>(g, p, stream);
        case 3:
            return launch_tile<3, kUnsigned>(g, p, stream);
        case 4:
            return launch_tile<4, kUnsigned>(g, p, stream);
        case 5:
            return launch_tile<5, kUnsigned>(g, p, stream);
        default:
            return launch_tile<6, kUnsigned>(g, p, stream);
    }
}

int few(void *const *pointers, const FourParams &p, cudaStream_t stream) {
    const Gemm g = gemm_of(pointers, p.params);
    if (g.s.rows == 0) return cudaSuccess;  // no elements, no launch
    return g.s.a_unsigned ? launch_words<true>(g, p, stream) : launch_words<false>(g, p, stream);
}
INT8_KERNEL(int8_conv_few, FourParams, 3, few);

}  // namespace
