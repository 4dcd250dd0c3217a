// Dropout in training: a thread draws four words, which decide on four elements side by side.
#include "../ge/kernel.cuh"

#include "../cnn/fours.cuh"
#include "philox.cuh"
#include "scalars.cuh"

namespace {

using namespace aicore;

struct DropoutParams {
    std::int64_t element;  // cnn::Element
    std::int64_t count;
    std::int64_t stream;
    std::int64_t least;  // elements whose word is at least this are kept
    float kept;          // 1 - ratio, by which they are divided
    float unused;
};

constexpr int kThreads = 256, kEach = 4;

// mask: null where nobody asks for it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    drop(const T *x, const std::uint32_t *key, T *y, std::uint8_t *mask, const DropoutParams p) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x, first = block * kEach;
    if (first >= p.count) return;
    const bool whole = first + kEach <= p.count;
    const PhiloxWords words =
        philox(key[0], key[1], static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(p.stream));
    cnn::Four<T> four = {};
    cnn::Four<std::uint8_t> kept;
    if (whole) four = *reinterpret_cast<const cnn::Four<T> *>(x + first);
#pragma unroll
    for (int i = 0; i < kEach; i++) {
        if (!whole && first + i < p.count) four.of[i] = x[first + i];
        kept.of[i] = words.word[i] >= static_cast<std::uint32_t>(p.least);
        four.of[i] = kept.of[i] ? narrow<T>(widen(four.of[i]) / p.kept) : narrow<T>(0.0f);
    }
    if (whole) {
        *reinterpret_cast<cnn::Four<T> *>(y + first) = four;
        if (mask != nullptr) *reinterpret_cast<cnn::Four<std::uint8_t> *>(mask + first) = kept;
        return;
    }
#pragma unroll
    for (int i = 0; i < kEach; i++) {
        if (first + i >= p.count) continue;
        y[first + i] = four.of[i];
        if (mask != nullptr) mask[first + i] = kept.of[i];
    }
}

// Pointers: x, key, y, mask.
int dropout(void *const *pointers, const DropoutParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    return cnn::for_float(p.element, [&](auto type) -> int {
        using T = typename decltype(type)::Type;
        return launch_early(drop<T>, blocks_for(p.count, kThreads * kEach), kThreads, 0, stream,
                            static_cast<const T *>(pointers[0]), static_cast<const std::uint32_t *>(pointers[1]),
                            static_cast<T *>(pointers[2]), static_cast<std::uint8_t *>(pointers[3]), p);
    });
}
AICORE_KERNEL(dropout, DropoutParams, 4, dropout);

}  // namespace
