// TopK along the middle of [outer][length][inner], for a few of a line.
//
// A block takes a line and finds one result after the other: each round is a search for the best element behind the one
// found before. Elements are in a strict order: by number, NaN being the largest, then by place.
#include "../ge/kernel.cuh"

#include <type_traits>

#include "../cnn/element_types.cuh"
#include "../kernels/scalars.cuh"

namespace {

using namespace aicore;

struct TopParams {
    std::int64_t element;  // cnn::Element
    std::int64_t outer, length, inner, count, largest;
};

constexpr int kThreads = 256;

template <class T>
using ComparedAs = typename std::conditional<
    std::is_integral<T>::value, typename std::conditional<std::is_signed<T>::value, std::int64_t, std::uint64_t>::type,
    typename std::conditional<sizeof(T) == 8, double, float>::type>::type;

template <class T>
__device__ __forceinline__ ComparedAs<T> compared(T x) {
    if constexpr (std::is_integral<T>::value || sizeof(T) == 8)
        return static_cast<ComparedAs<T>>(x);
    else
        return widen(x);
}

// place: below 0 for none.
template <class N>
struct Candidate {
    N number;
    std::int64_t place;
};

// Whether a comes before b in the result.
template <class N>
__device__ __forceinline__ bool comes_before(const Candidate<N> &a, const Candidate<N> &b, bool largest) {
    if (b.place < 0) return a.place >= 0;
    if (a.place < 0) return false;
    const bool a_is_nan = a.number != a.number, b_is_nan = b.number != b.number;
    if (a_is_nan || b_is_nan) return a_is_nan && b_is_nan ? a.place < b.place : a_is_nan == largest;
    if (a.number == b.number) return a.place < b.place;
    return (a.number > b.number) == largest;
}

template <class T>
__global__ void __launch_bounds__(kThreads) top_of_lines(const T *x, T *y, std::int64_t *places, const TopParams p) {
    using N = ComparedAs<T>;
    __shared__ Candidate<N> found[kThreads];
    wait_for_previous();
    let_next_begin();
    const bool largest = p.largest != 0;
    for (std::int64_t line = blockIdx.x; line < p.outer * p.inner; line += gridDim.x) {
        const T *from = x + line / p.inner * p.length * p.inner + line % p.inner;
        const std::int64_t to = line / p.inner * p.count * p.inner + line % p.inner;
        Candidate<N> last = {N(0), -1};
        for (std::int64_t round = 0; round < p.count; round++) {
            Candidate<N> best = {N(0), -1};
            for (std::int64_t i = threadIdx.x; i < p.length; i += kThreads) {
                const Candidate<N> one = {compared(from[i * p.inner]), i};
                const bool is_left = round == 0 || comes_before(last, one, largest);
                if (is_left && comes_before(one, best, largest)) best = one;
            }
            found[threadIdx.x] = best;
            __syncthreads();
            for (int half = kThreads / 2; half > 0; half /= 2) {
                if (static_cast<int>(threadIdx.x) < half) {
                    const Candidate<N> other = found[threadIdx.x + half];
                    if (comes_before(other, found[threadIdx.x], largest)) found[threadIdx.x] = other;
                }
                __syncthreads();
            }
            last = found[0];
            __syncthreads();  // nobody overwrites it before all have read it
            if (threadIdx.x == 0) {
                y[to + round * p.inner] = from[last.place * p.inner];
                places[to + round * p.inner] = last.place;
            }
        }
    }
}

int top(void *const *pointers, const TopParams &p, cudaStream_t stream) {
    const std::int64_t lines = p.outer * p.inner;
    if (lines * p.count == 0) return cudaSuccess;
    const unsigned blocks = static_cast<unsigned>(lines < (1 << 20) ? lines : 1 << 20);
    return cnn::for_number(p.element, [&](auto type) {
        using T = typename decltype(type)::Type;
        return static_cast<int>(launch_early(top_of_lines<T>, blocks, kThreads, 0, stream,
                                             static_cast<const T *>(pointers[0]), static_cast<T *>(pointers[1]),
                                             static_cast<std::int64_t *>(pointers[2]), p));
    });
}
AICORE_KERNEL(top, TopParams, 3, top);

}  // namespace
