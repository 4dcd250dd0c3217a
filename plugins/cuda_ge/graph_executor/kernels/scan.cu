// CumSum and CumProd along the middle of [outer][length][inner]: a thread walks a line, neighbours beside each other.
//
// Narrow floats are added up in float32; integers wrap, so they are computed as unsigned ones.
#include "../ge/kernel.cuh"

#include <type_traits>

#include "../cnn/element_types.cuh"
#include "scalars.cuh"

namespace {

using namespace aicore;

struct ScanParams {
    std::int64_t element;  // cnn::Element
    std::int64_t outer, length, inner;
    std::int64_t multiplies, exclusive, reverse;
};

constexpr int kThreads = 128;

template <class T>
using RunningOf = typename std::conditional<std::is_integral<T>::value, std::uint64_t,
                                            typename std::conditional<sizeof(T) == 8, double, float>::type>::type;

template <class T>
__device__ __forceinline__ RunningOf<T> taken(T x) {
    if constexpr (std::is_integral<T>::value || sizeof(T) == 8)
        return static_cast<RunningOf<T>>(x);
    else
        return widen(x);
}

template <class T>
__device__ __forceinline__ T given(RunningOf<T> x) {
    if constexpr (std::is_integral<T>::value || sizeof(T) == 8)
        return static_cast<T>(x);
    else
        return narrow<T>(x);
}

template <class T>
__global__ void __launch_bounds__(kThreads) scan_lines(const T *x, T *y, const ScanParams p) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (line >= p.outer * p.inner) return;
    const std::int64_t first = line / p.inner * p.length * p.inner + line % p.inner;
    RunningOf<T> running = p.multiplies ? 1 : 0;
    for (std::int64_t i = 0; i < p.length; i++) {
        const std::int64_t at = first + (p.reverse ? p.length - 1 - i : i) * p.inner;
        const RunningOf<T> before = running, next = taken(x[at]);
        running = p.multiplies ? running * next : running + next;
        y[at] = given<T>(p.exclusive ? before : running);
    }
}

int scan(void *const *pointers, const ScanParams &p, cudaStream_t stream) {
    if (p.outer * p.length * p.inner == 0) return cudaSuccess;
    return cnn::for_number(p.element, [&](auto type) {
        using T = typename decltype(type)::Type;
        return static_cast<int>(launch_early(scan_lines<T>, blocks_for(p.outer * p.inner, kThreads), kThreads, 0,
                                             stream, static_cast<const T *>(pointers[0]), static_cast<T *>(pointers[1]),
                                             p));
    });
}
AICORE_KERNEL(scan, ScanParams, 2, scan);

}  // namespace
