// Results in 8 bits straight from the sums that threads hold: by no more than scale, an addend of codes, a clamp and
// rounding, which is the usual case. Codes of a tile meet in shared memory, where the addend's came before them, and
// leave it 16 bytes at a time.
#pragma once

#include "copying.cuh"
#include "division.cuh"
#include "tile.cuh"

namespace int8_quant {

// Bytes between rows of codes: eight rows next to each other lie four banks apart, and rows begin at whole chunks.
__host__ __device__ constexpr int codes_pitch(int columns) { return columns + 16; }

// Whether it is that case. blocks: that share the depth of a tile.
__host__ __device__ inline bool gives_codes(const Gemm &g, unsigned blocks) {
    const Sizes &s = g.s;
    const EpilogueParams &p = g.e.p;
    if (blocks != 1 || g.partial != nullptr || g.e.row_sums != nullptr || s.y_column != 1) return false;
    if (p.out_type != kInt8 && p.out_type != kUint8) return false;
    if (p.activation > kClip || p.alpha != p.alpha || p.beta != p.beta) return false;
    const bool codes = p.addend_full && (p.addend_type == kInt8 || p.addend_type == kUint8);
    const bool lines = s.rows <= s.positions || s.y_image == s.positions * s.y_row;
    const auto ends = reinterpret_cast<std::uintptr_t>(g.e.out) | reinterpret_cast<std::uintptr_t>(g.e.addend);
    return (g.e.addend == nullptr || codes) && lines && (ends | (s.columns | s.y_row | s.y_group)) % 16 == 0;
}

// What turns sums into codes, the same for a whole tensor.
class Coder {
  public:
    __device__ __forceinline__ Coder(const Gemm &g, const Target &t) : by_(t.y_scale) {
        const EpilogueParams &p = g.e.p;
        addend_scale_ = t.addend_scale;
        zero_point_ = t.zero_point;
        divides_ = t.y_scale != 1.0f;
        const bool is_signed = p.addend_type == kInt8;
        flip_ = is_signed ? 0x8080u : 0u;
        shift_ = 8388608.0f + (is_signed ? 128.0f : 0.0f) + t.addend_point;
        lowest_ = t.low;
        const float first = p.activation == kRelu ? 0.0f : p.activation == kClip ? p.alpha : -INFINITY;
        const float last = p.activation == kClip ? p.beta : INFINITY;
        // Clamped to codes before the division, not after it: the ends are whole numbers times the scale, which the
        // quotient rounded to a whole number is again.
        const float low = __fmul_rn(t.low, t.y_scale), high = __fmul_rn(t.high, t.y_scale);
        low_ = by_.exact ? fminf(fmaxf(first, low), high) : first;
        high_ = by_.exact ? fminf(fmaxf(last, low), high) : last;
    }

    // Codes as the flip has them, all of which are positive: 2^23 + x, for an x of 23 bits, has the bits of x at its end.
    __device__ __forceinline__ unsigned flip() const { return flip_; }

    __device__ __forceinline__ float with(float real, unsigned code) const {
        const float whole = __fadd_rn(__int_as_float(int(0x4B000000u | (code & 255u))), -shift_);
        return __fadd_rn(real, __fmul_rn(whole, addend_scale_));
    }

    // The low byte is the code; halves to even, see code_of.
    __device__ __forceinline__ int code(float real) const {
        float clamped = fminf(fmaxf(real == real ? real : 0.0f, low_), high_);
        if (divides_) clamped = by_.exact ? by_.quotient(clamped) : slow_quotient(clamped, by_.value, lowest_);
        return __float_as_int(__fadd_rn(clamped, 12582912.0f)) + zero_point_;
    }

  private:
    static __device__ __noinline__ float slow_quotient(float real, float y_scale, float lowest) {
        const float found = __fdiv_rn(real, y_scale);
        return fminf(fmaxf(found == found ? found : 0.0f, lowest), lowest + 255.0f);
    }

    Divisor by_;
    float addend_scale_, shift_, low_, high_, lowest_;
    unsigned flip_;
    int zero_point_;
    bool divides_;
};

#if INT8_ASYNC_COPIES
// Begins to copy the addend's codes of a tile; chunks outside of the result become zeros.
template <int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void begin_addend(const Gemm &g, const Place &p, std::int8_t *codes, int thread) {
    constexpr int kChunks = kColumns / 16;
    const Sizes &s = g.s;
    const auto *from = static_cast<const std::int8_t *>(g.e.addend);
    for (int i = thread; i < kRows * kChunks; i += kThreads) {
        const int y = i / kChunks, x = i % kChunks * 16;
        const bool take = p.row + y < s.rows && p.column + x < s.columns;
        const std::int64_t at = p.group * s.y_group + (p.row + y) * s.y_row + p.column + x;
        copy_16(codes + y * codes_pitch(kColumns) + x, take ? from + at : from, take);
    }
}
#endif

// Copies the codes of a tile to the result; a barrier must have come before.
template <int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void store_codes(const Gemm &g, const Place &p, const std::int8_t *codes, int thread) {
    constexpr int kChunks = kColumns / 16;
    const Sizes &s = g.s;
    auto *to = static_cast<std::int8_t *>(g.e.out) + p.group * s.y_group;
    for (int i = thread; i < kRows * kChunks; i += kThreads) {
        const int y = i / kChunks, x = i % kChunks * 16;
        if (p.row + y >= s.rows || p.column + x >= s.columns) continue;
        *reinterpret_cast<int4 *>(to + (p.row + y) * s.y_row + p.column + x) =
            *reinterpret_cast<const int4 *>(codes + y * codes_pitch(kColumns) + x);
    }
}

// Turns the sums of two neighbouring columns into codes. `at` is where they go; the addend's lie there.
template <bool kAdds>
__device__ __forceinline__ void put_pair(const Coder &coder, const Column *own, int one, int two, std::int8_t *at) {
    auto *pair = reinterpret_cast<std::uint16_t *>(at);
    float low = __fmul_rn(__int2float_rn(wrapped(unsigned(one) + unsigned(own[0].base))), own[0].scale);
    float high = __fmul_rn(__int2float_rn(wrapped(unsigned(two) + unsigned(own[1].base))), own[1].scale);
    if (kAdds) {
        const unsigned added = *pair ^ coder.flip();
        low = coder.with(low, added);
        high = coder.with(high, added >> 8);
    }
    *pair = static_cast<std::uint16_t>((coder.code(low) & 255) | coder.code(high) << 8);
}

// From the sums of a warp, in pieces of 16 rows by 8 columns as mma.sync and wgmma leave them, to codes. `codes` has the
// addend's, if there is one.
template <class Tile, bool kAdds>
__device__ __forceinline__ void put_codes(const Coder &coder, const Known<Tile::kColumns> *known,
                                          const int (&sums)[Tile::kTall / 16][Tile::kWide / 8][4], std::int8_t *codes,
                                          int row, int column, int lane) {
    constexpr int kPitch = codes_pitch(Tile::kColumns);
    const int y = row + lane / 4;
#pragma unroll
    for (int j = 0; j < Tile::kWide / 8; j++) {
        const int x = column + 8 * j + lane % 4 * 2;
        const Column own[2] = {known->columns[x], known->columns[x + 1]};
#pragma unroll
        for (int i = 0; i < Tile::kTall / 16; i++) {
            std::int8_t *at = codes + (y + 16 * i) * kPitch + x;
            put_pair<kAdds>(coder, own, sums[i][j][0], sums[i][j][1], at);
            put_pair<kAdds>(coder, own, sums[i][j][2], sums[i][j][3], at + 8 * kPitch);
        }
    }
}

// The same to sums in shared memory, for finish_tile.
template <class Tile>
__device__ __forceinline__ void put_sums(const int (&sums)[Tile::kTall / 16][Tile::kWide / 8][4], int *tile, int row,
                                         int column, int lane) {
    constexpr int kPitch = pitch_of(Tile::kColumns);
#pragma unroll
    for (int i = 0; i < Tile::kTall / 16; i++) {
#pragma unroll
        for (int j = 0; j < Tile::kWide / 8; j++) {
            int *to = tile + (row + 16 * i + lane / 4) * kPitch + column + 8 * j + lane % 4 * 2;
            *reinterpret_cast<int2 *>(to) = make_int2(sums[i][j][0], sums[i][j][1]);
            *reinterpret_cast<int2 *>(to + 8 * kPitch) = make_int2(sums[i][j][2], sums[i][j][3]);
        }
    }
}

}  // namespace int8_quant
