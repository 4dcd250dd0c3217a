// Results whose elements depend on where they are: Trilu and OneHot. A thread for each element.
#include "../ge/kernel.cuh"

#include <type_traits>

#include "../cnn/element_types.cuh"
#include "scalars.cuh"

namespace {

using namespace aicore;

constexpr int kThreads = 256;

struct TriluParams {
    std::int64_t bytes;  // of an element
    std::int64_t count, rows, columns, upper;
    std::int64_t diagonal;  // where there is no second pointer
};

template <class Word>
__global__ void __launch_bounds__(kThreads) keep_triangle(const Word *x, const std::int64_t *diagonal, Word *y,
                                                          const TriluParams p) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= p.count) return;
    const std::int64_t offset = i % p.columns - i / p.columns % p.rows;
    const std::int64_t k = diagonal == nullptr ? p.diagonal : *diagonal;
    const bool kept = p.upper ? offset >= k : offset <= k;
    y[i] = kept ? x[i] : Word(0);
}

int trilu(void *const *pointers, const TriluParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    return cnn::for_word(p.bytes, [&](auto type) {
        using Word = typename decltype(type)::Type;
        return static_cast<int>(launch_early(keep_triangle<Word>, blocks_for(p.count, kThreads), kThreads, 0, stream,
                                             static_cast<const Word *>(pointers[0]),
                                             static_cast<const std::int64_t *>(pointers[1]),
                                             static_cast<Word *>(pointers[2]), p));
    });
}
AICORE_KERNEL(trilu, TriluParams, 3, trilu);

// y[outer][depth][inner] = values[index[outer][inner] is this depth, or this depth counted from the back]
struct OneHotParams {
    std::int64_t bytes;    // of a value
    std::int64_t element;  // of indices: cnn::Element
    std::int64_t count, depth, inner;
};

template <class Index, class Word>
__global__ void __launch_bounds__(kThreads) set_one(const Index *indices, const Word *values, Word *y,
                                                    const OneHotParams p) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= p.count) return;
    const std::int64_t depth = i / p.inner % p.depth;
    const Index index = indices[i / p.inner / p.depth * p.inner + i % p.inner];
    bool hit;
    if constexpr (std::is_integral<Index>::value) {
        const auto wide = static_cast<std::int64_t>(index);
        hit = (wide == depth && !(std::is_same<Index, std::uint64_t>::value && wide < 0)) ||
              (std::is_signed<Index>::value && wide == depth - p.depth);
    } else if constexpr (sizeof(Index) == 8) {
        hit = index == static_cast<double>(depth) || index == static_cast<double>(depth - p.depth);
    } else {
        const double wide = widen(index);
        hit = wide == static_cast<double>(depth) || wide == static_cast<double>(depth - p.depth);
    }
    y[i] = values[hit ? 1 : 0];
}

int one_hot(void *const *pointers, const OneHotParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    return cnn::for_number(p.element, [&](auto index) {
        using Index = typename decltype(index)::Type;
        return cnn::for_word(p.bytes, [&](auto type) {
            using Word = typename decltype(type)::Type;
            return static_cast<int>(launch_early(set_one<Index, Word>, blocks_for(p.count, kThreads), kThreads, 0,
                                                 stream, static_cast<const Index *>(pointers[0]),
                                                 static_cast<const Word *>(pointers[1]),
                                                 static_cast<Word *>(pointers[2]), p));
        });
    });
}
AICORE_KERNEL(one_hot, OneHotParams, 3, one_hot);

}  // namespace
