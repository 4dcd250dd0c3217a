// Convolutions whose threads hold sums of four neighbouring results, of images with channels last: which place a thread
// has, and how it finishes what it summed.
//
// Most codes come from one multiplication. q = sum * ratio, where ratio is scale * (1 / y_scale), rounded twice, differs
// from what the prescribed two roundings give by less than 257 * 4.01 * 2^-24 < 2^-13 wherever the code is not clamped. So
// where q is not as near as that to the middle between two whole numbers, its nearest whole number is the code, and where
// it is, which is seldom, the code is computed as prescribed.
#pragma once

#include "division.cuh"
#include "dot.cuh"
#include "epilogue_kernels.cuh"

namespace int8_quant {

// What a kernel reads often, in few bytes. fours: of the results of one place. terms: of a sum.
struct Images {
    const std::int8_t *x;
    const int4 *weights;  // words of four bytes along a sum, for one result after the other
    int height, width, out_height, out_width, stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    int pixel, fours, kernel_height, kernel_width, channels, terms, last_word;  // last_word: of x
    unsigned tiles, slots;  // a thread takes every slots-th tile
    Steps chunks, across, down, maps;  // threads of a place, tiles of a line, tiles of an image; maps of a group
    bool quick, constant;
};

// Tiles of places: `places_down` by `places_across` for each thread, which has `own` words of results of each.
inline Images images_of(const Gemm &g, bool constant, int places_down, int places_across, int own) {
    const Sizes &s = g.s;
    const EpilogueParams &e = g.e.p;
    Images p = {};
    p.x = g.a, p.weights = reinterpret_cast<const int4 *>(g.b);
    p.height = int(s.height), p.width = int(s.width), p.out_width = int(s.out_width);
    p.out_height = int(s.positions / s.out_width);
    p.stride_y = int(s.stride_y), p.stride_x = int(s.stride_x);
    p.dilation_y = int(s.dilation_y), p.dilation_x = int(s.dilation_x);
    p.pad_y = int(s.pad_y), p.pad_x = int(s.pad_x), p.pixel = int(s.pixel);
    p.fours = int(s.groups * s.columns / 4);
    p.kernel_width = int(s.kernel_width), p.kernel_height = int(s.taps / s.kernel_width);
    p.channels = int(s.filled), p.terms = int(s.taps * s.filled);
    p.last_word = int(s.rows / s.positions * s.height * s.width * s.pixel / 4 - 1);
    const std::int64_t across = (p.out_width + places_across - 1) / places_across;
    const std::int64_t down = (p.out_height + places_down - 1) / places_down;
    p.tiles = unsigned(across * down * (s.rows / s.positions));
    p.chunks = Steps::of((p.fours + own - 1) / own);
    p.across = Steps::of(across), p.down = Steps::of(down), p.maps = Steps::of(s.columns);
    const bool codes = e.out_type == kInt8 || e.out_type == kUint8;
    p.quick = codes && g.e.addend == nullptr && e.activation <= kClip && e.alpha == e.alpha && e.beta == e.beta;
    p.constant = constant;
    return p;
}

// Where a tile begins.
struct Spot {
    int left, top, image;
};

template <int kDown, int kAcross>
__device__ __forceinline__ Spot spot_of(const Images &p, unsigned tile) {
    const unsigned line = p.across.quotient(tile), image = p.down.quotient(line);
    return {int(tile - line * p.across.divisor) * kAcross, int(line - image * p.down.divisor) * kDown, int(image)};
}

// Which of the results of a place a thread computes, and the first of its tiles.
struct Part {
    int chunk;
    unsigned slot;
};

__device__ __forceinline__ Part part_of(const Images &p) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x, slot = p.chunks.quotient(index);
    return {int(index - slot * p.chunks.divisor), slot};
}

__device__ __forceinline__ void read_four(const int *from, int (&to)[4]) {
    const int4 four = *reinterpret_cast<const int4 *>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

__device__ __forceinline__ void read_four(const float *from, float (&to)[4]) {
    const float4 four = *reinterpret_cast<const float4 *>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

// What finishing four neighbouring results knows of them.
struct Four {
    int begin[4];  // of sums
    float scale[4], ratio[4];
    unsigned always;  // kMiddle where every code is computed as prescribed
    bool usual;       // whether Finish::word may be called

    static constexpr unsigned kMiddle = 0x00800000u;
};

// What finishing has in common for all results. kShort: sums stay below 2^22, and begin at 1.5 * 2^23 in bits, which as a
// float is that number and the sum.
template <bool kShort>
class Finish {
  public:
    // Where sums begin, besides what is added to them.
    static constexpr unsigned kWhole = kShort ? 0x4B400000u : 0u;

    __device__ __forceinline__ Finish(const Images &p, const Epilogue &e) : target_(target_of(e)), by_(target_.y_scale) {
        const Target &t = target_;
        point_ = e.x_point == nullptr ? 0 : byte_at(e.x_point, 0, e.p.x_unsigned);
        terms_ = float(p.terms) * (255.0f * 128.0f);
        usual_ = p.quick && by_.exact;
        shift_ = 12582912.0f + float(t.zero_point);
        // Clamps of real numbers, which grow with their codes, become clamps of codes.
        int low = int(t.low) + t.zero_point, high = int(t.high) + t.zero_point;
        if (e.p.activation == kRelu) low = t.zero_point > low ? t.zero_point : low;
        if (e.p.activation == kClip) {
            low = code_of(__fdiv_rn(e.p.alpha, t.y_scale), t);
            high = code_of(__fdiv_rn(e.p.beta, t.y_scale), t);
        }
        low_ = (unsigned(low) & 0xffffu) * 0x10001u, high_ = (unsigned(high) & 0xffffu) * 0x10001u;
    }

    __device__ __forceinline__ std::uint32_t point() const { return unsigned(point_ & 255) * 0x01010101u; }

    __device__ __forceinline__ Four four(const Epilogue &e, int first) const {
        Four own;
        int sums[4] = {}, bias[4] = {};
        if (e.bias != nullptr) read_four(e.bias + first, bias);
        if (e.x_point != nullptr) read_four(e.sums + first, sums);
        if (e.p.scale_each) {
            read_four(e.scale + first, own.scale);
        } else {
            for (float &scale : own.scale) scale = e.scale == nullptr ? 1.0f : e.scale[0];
        }
        own.usual = usual_, own.always = 0;
        for (int i = 0; i < 4; i++) {
            const int base = wrapped(unsigned(bias[i]) - unsigned(point_) * unsigned(sums[i]));
            const float most = __fadd_rn(fabsf(__int2float_rn(base)), terms_);
            own.begin[i] = wrapped(unsigned(base) + kWhole);
            own.ratio[i] = __fmul_rn(own.scale[i], by_.inverse);
            const float largest = __fmul_rn(most, fabsf(own.ratio[i]));
            if (!(largest < 32000.0f)) own.always = Four::kMiddle;  // before they are clamped, codes may have 17 bits
            own.usual = own.usual && largest < 0x1p19f && (!kShort || most < 4194304.0f);  // false for NaN
        }
        return own;
    }

    __device__ __forceinline__ std::uint32_t word(const Four &own, const int (&sums)[4]) const {
        constexpr float kAlmost = 0.5f + 0x1p-13f;
        unsigned codes[4], middle = own.always;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float sum = whole(sums[i]), moved = __fmaf_rn(sum, own.ratio[i], shift_);
            const float rest = __fmaf_rn(sum, own.ratio[i], -__fadd_rn(moved, -shift_));
            middle |= unsigned(__float_as_int(__fadd_rn(fabsf(rest), kAlmost)));  // has that bit from 1 on
            codes[i] = unsigned(__float_as_int(moved));
        }
        if (middle & Four::kMiddle) as_prescribed(own, sums, codes);
        const unsigned low = clamped(__byte_perm(codes[0], codes[1], 0x5410));
        const unsigned high = clamped(__byte_perm(codes[2], codes[3], 0x5410));
        return __byte_perm(low, high, 0x6420);
    }

  private:
    static __device__ __forceinline__ float whole(int sum) {
        return kShort ? __fadd_rn(__int_as_float(sum), -12582912.0f) : __int2float_rn(sum);
    }

    __device__ __forceinline__ unsigned clamped(unsigned pair) const { return __vmins2(__vmaxs2(pair, low_), high_); }

    __device__ __forceinline__ void as_prescribed(const Four &own, const int (&sums)[4], unsigned (&codes)[4]) const {
        for (int i = 0; i < 4; i++) {
            const float code = by_.quotient(__fmul_rn(whole(sums[i]), own.scale[i]));
            const float rounded = __fadd_rn(fminf(fmaxf(code, -512.0f), 512.0f), 12582912.0f);
            codes[i] = unsigned(__float_as_int(rounded) + target_.zero_point);
        }
    }

    Target target_;
    Divisor by_;
    float shift_, terms_;
    unsigned low_, high_;
    int point_;
    bool usual_;
};

// Results of any kind, of `count` places along a row, the first of which begins with word `at`; `step` words to a place.
static __device__ __noinline__ void store_places(const Epilogue &e, const int *sums, std::int64_t at, int step, int four,
                                                 int count) {
    const Target t = target_of(e);
    for (int i = 0; i < 4 * count; i++) {
        const std::int64_t place = 4 * (at + i / 4 * step + four) + i % 4, column = 4 * four + i % 4;
        store_result(e, t, sums[i], scale_of(e, column), place, e.p.addend_full ? place : column);
    }
}

// Finishes a tile.
template <int kDown, int kAcross, bool kShort>
__device__ __forceinline__ void finish_places(const Images &p, const Epilogue &e, const Spot &spot, int four,
                                              const Finish<kShort> &finish, const Four &own,
                                              const int (&sums)[kDown][kAcross][4]) {
    const unsigned first = unsigned((spot.image * p.out_height + spot.top) * p.out_width + spot.left);
    if (own.usual) {
        auto *out = static_cast<std::uint32_t *>(e.out) + four;
#pragma unroll
        for (int i = 0; i < kDown; i++) {
            if (spot.top + i >= p.out_height) continue;
#pragma unroll
            for (int j = 0; j < kAcross; j++)
                if (spot.left + j < p.out_width) out[(first + i * p.out_width + j) * p.fours] = finish.word(own, sums[i][j]);
        }
        return;
    }
    int kept[kDown * kAcross * 4];
    for (int i = 0; i < kDown * kAcross * 4; i++)
        kept[i] = wrapped(unsigned(sums[i / 4 / kAcross][i / 4 % kAcross][i % 4]) - finish.kWhole);
    for (int i = 0; i < kDown; i++) {
        if (spot.top + i >= p.out_height) continue;
        const int left = p.out_width - spot.left;
        store_places(e, kept + 4 * kAcross * i, std::int64_t(first + i * p.out_width) * p.fours, p.fours, four,
                     left < kAcross ? left : kAcross);
    }
}

struct FourParams {
    Params params;
    std::int64_t constant;  // whether weights and all parameters were there before the graph
};

constexpr unsigned kThreads = 64;

// Starts kernel(Images, Epilogue), with at least twice as many threads as run at a time, if there is so much to do: the
// last ones then end at about the same time. What a thread knows of its results, it learns once for all of its tiles.
template <class Kernel>
int launch_places(Kernel kernel, const Gemm &g, bool constant, int down, int across, int own, cudaStream_t stream) {
    Images p = images_of(g, constant, down, across, own);
    int device = 0, multiprocessors = 0, blocks = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status == cudaSuccess) status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, 0);
    if (status != cudaSuccess) return status;
    const std::int64_t chunks = p.chunks.divisor, most = std::int64_t(multiprocessors) * blocks * kThreads / chunks;
    const std::int64_t turns = most < 1 ? 1 : p.tiles / (2 * most);
    p.slots = turns < 2 ? p.tiles : unsigned((p.tiles + turns - 1) / turns);
    const std::int64_t threads = p.slots * chunks;
    return launch(kernel, dim3(unsigned((threads + kThreads - 1) / kThreads)), kThreads, 0, stream, 1, p, g.e);
}

}  // namespace int8_quant
