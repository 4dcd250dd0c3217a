// Included before each .cu file when g++ compiles it: what plugins/cuda_ge/tests/compiled/headers lacks of CUDA.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstring>
#include <deque>

#define __grid_constant__
#define INT8_SHARED(NAME) auto *NAME = reinterpret_cast<unsigned char *>(aicore::shared)

struct alignas(16) int4 {
    int x, y, z, w;
};
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
struct alignas(8) int2 {
    int x, y;
};
inline int2 make_int2(int x, int y) { return {x, y}; }

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline int __float_as_int(float x) {
    int bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float __int_as_float(int bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(std::uint64_t(a) * b >> 32); }

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((std::uint64_t(high) << 32 | low) >> (shift & 31));
}

inline unsigned atomicAdd(unsigned *to, unsigned x) { return std::exchange(*to, *to + x); }
inline int atomicMin(int *to, int x) { return std::exchange(*to, std::min(*to, x)); }

inline cudaError_t cudaMemsetAsync(void *to, int value, std::size_t bytes, cudaStream_t) {
    std::memset(to, value, bytes);
    return cudaSuccess;
}

enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int) {
    *value = 1;  // so that blocks go from tile to tile
    return cudaSuccess;
}

template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Kernel, int, std::size_t) {
    *blocks = 2;
    return cudaSuccess;
}

inline int emulated_dot_4(bool is_unsigned, int a, int b, int sum) {
    unsigned total = static_cast<unsigned>(sum);
    for (int shift = 0; shift < 32; shift += 8) {
        const int left = is_unsigned ? (a >> shift) & 255 : static_cast<std::int8_t>(a >> shift);
        total += static_cast<unsigned>(left * static_cast<std::int8_t>(b >> shift));
    }
    return static_cast<int>(total);
}

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const std::uint64_t both = std::uint64_t(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) result |= unsigned(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

template <class T>
unsigned larger_of_bytes(unsigned a, unsigned b) {
    unsigned result = 0;
    for (int shift = 0; shift < 32; shift += 8) {
        const T larger = std::max(static_cast<T>(a >> shift), static_cast<T>(b >> shift));
        result |= unsigned(static_cast<std::uint8_t>(larger)) << shift;
    }
    return result;
}
inline unsigned __vmaxs4(unsigned a, unsigned b) { return larger_of_bytes<std::int8_t>(a, b); }
inline unsigned __vmaxu4(unsigned a, unsigned b) { return larger_of_bytes<std::uint8_t>(a, b); }

template <class Choose>
unsigned of_signed_pairs(unsigned a, unsigned b, Choose choose) {
    unsigned result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const auto one = choose(static_cast<std::int16_t>(a >> shift), static_cast<std::int16_t>(b >> shift));
        result |= unsigned(static_cast<std::uint16_t>(one)) << shift;
    }
    return result;
}
inline unsigned __vmaxs2(unsigned a, unsigned b) {
    return of_signed_pairs(a, b, [](std::int16_t x, std::int16_t y) { return std::max(x, y); });
}
inline unsigned __vmins2(unsigned a, unsigned b) {
    return of_signed_pairs(a, b, [](std::int16_t x, std::int16_t y) { return std::min(x, y); });
}

#ifdef INT8_EMULATED
// Copies that arrive as late as they may, when they are waited for; and mma.sync, whose lanes show each other what they
// have.
namespace int8_quant {

struct LateCopy {
    std::int8_t *to;
    const std::int8_t *from;
    bool take;
};
struct Copies {
    std::deque<std::vector<LateCopy>> groups{1};
};
inline Copies copies_of_threads[1024];
inline Copies &own_copies() { return copies_of_threads[host::block->current]; }

inline void copy_16(std::int8_t *to, const std::int8_t *from, bool take) {
    own_copies().groups.back().push_back({to, from, take});
}

inline void commit_copies() { own_copies().groups.emplace_back(); }

template <int kPending>
void wait_for_copies() {
    auto &groups = own_copies().groups;
    while (groups.size() > kPending + 1) {
        for (const LateCopy &one : groups.front()) {
            if (one.take) {
                std::memcpy(one.to, one.from, 16);
            } else {
                std::memset(one.to, 0, 16);
            }
        }
        groups.pop_front();
    }
}

struct Shown {
    const std::int8_t *row;
    unsigned a[4], b[2];
};
inline Shown shown[1024];

inline void read_matrices(unsigned (&to)[4], const std::int8_t *from) {
    const std::size_t self = host::block->current, warp = self / 32 * 32, lane = self % 32;
    shown[self].row = from;
    host::wait(host::State::kAtWarp);
    for (int i = 0; i < 4; i++) std::memcpy(&to[i], shown[warp + 8 * i + lane / 4].row + lane % 4 * 4, 4);
    host::wait(host::State::kAtWarp);
}

inline void multiply(bool is_unsigned, int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const std::size_t self = host::block->current, warp = self / 32 * 32, lane = self % 32;
    std::copy(a, a + 4, shown[self].a);
    shown[self].b[0] = b0, shown[self].b[1] = b1;
    host::wait(host::State::kAtWarp);
    for (int i = 0; i < 4; i++) {
        const std::size_t row = warp + lane / 4 * 4, column = warp + (lane % 4 * 2 + i % 2) * 4;
        for (int k = 0; k < 8; k++) {  // words of four along the depth
            const unsigned left = shown[row + k % 4].a[k / 4 * 2 + i / 2], right = shown[column + k % 4].b[k / 4];
            sums[i] = emulated_dot_4(is_unsigned, int(left), int(right), sums[i]);
        }
    }
    host::wait(host::State::kAtWarp);
}

inline void multiply_add(int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    multiply(false, sums, a, b0, b1);
}
inline void multiply_add_unsigned(int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    multiply(true, sums, a, b0, b1);
}

// wgmma on rows of 128 swizzled bytes, which are read as late as they may be.
struct LateProducts {
    int *sums;
    const std::int8_t *rows, *columns;
    int wide;
    bool is_unsigned;
};
struct Products {
    std::deque<std::vector<LateProducts>> groups{1};
};
inline Products products_of_threads[1024];
inline Products &own_products() { return products_of_threads[host::block->current]; }

template <int kWide, bool kUnsigned>
void multiply_rows(int (&d)[kWide / 8][4], const std::int8_t *rows, const std::int8_t *columns) {
    own_products().groups.back().push_back({&d[0][0], rows, columns, kWide, kUnsigned});
}

inline void copies_are_visible() {}
inline void wgmma_fence() {}
inline void wgmma_commit() { own_products().groups.emplace_back(); }

inline int word_at(const std::int8_t *rows, int row, int word) {
    int result;
    std::memcpy(&result, rows + row * 128 + ((word / 4) ^ (row & 7)) * 16 + word % 4 * 4, 4);
    return result;
}

inline void multiply_late(const LateProducts &one) {
    const int thread = int(host::block->current % 128), lane = thread % 32;
    for (int i = 0; i < one.wide / 2; i++) {
        const int row = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        for (int word = 0; word < 32; word++) {
            const int left = word_at(one.rows, row, word), right = word_at(one.columns, column, word);
            one.sums[i] = emulated_dot_4(one.is_unsigned, left, right, one.sums[i]);
        }
    }
}

template <int kPending>
void wgmma_wait() {
    auto &groups = own_products().groups;
    while (groups.size() > kPending + 1) {
        for (const LateProducts &one : groups.front()) multiply_late(one);
        groups.pop_front();
    }
}

}  // namespace int8_quant
#endif
