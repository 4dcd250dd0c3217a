// ArgMax and ArgMin over the middle of [outer][length][inner].
//
// rows:    inner is 1, a row is contiguous: a warp takes it, and lanes agree by shuffles.
// columns: a thread for each result; neighbours lie beside each other.
// NaN counts as the extreme, and the first of equals wins, or the last if that is asked for; as in the reference.
#include <type_traits>

#include "rows.cuh"

namespace {

using namespace aicore;

struct ArgParams {
    std::int64_t outer, length, inner, largest, last;
};

// Integers are compared as such: float32 holds no more than 24 bits.
template <class T> struct ComparedAs {
    using Type = std::int64_t;
};
template <> struct ComparedAs<float> {
    using Type = float;
};
template <> struct ComparedAs<__half> {
    using Type = float;
};
template <> struct ComparedAs<__nv_bfloat16> {
    using Type = float;
};
template <> struct ComparedAs<double> {
    using Type = double;
};
template <> struct ComparedAs<std::uint64_t> {
    using Type = std::uint64_t;
};

template <class T> __device__ __forceinline__ typename ComparedAs<T>::Type compared(T x) {
    if constexpr (sizeof(T) == 2 && !std::is_integral<T>::value)
        return Number<T>::widen(x);
    else
        return x;
}

template <class N> struct Candidate {
    N number;
    std::int64_t place;
};

// The better of two, whichever comes first.
template <class N>
__device__ __forceinline__ Candidate<N> better(Candidate<N> a, Candidate<N> b, const ArgParams &p) {
    const bool a_is_nan = a.number != a.number, b_is_nan = b.number != b.number;
    const bool equal = a_is_nan ? b_is_nan : a.number == b.number;
    if (equal) return (a.place < b.place) == (p.last == 0) ? a : b;
    if (a_is_nan || b_is_nan) return a_is_nan ? a : b;
    return (a.number > b.number) == (p.largest != 0) ? a : b;
}

template <class T> __global__ void __launch_bounds__(256) arg_of_rows(const T *x, std::int64_t *y, const ArgParams p) {
    using N = typename ComparedAs<T>::Type;
    let_next_begin();
    wait_for_previous();
    const int lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * warps; first < p.outer;
         first += static_cast<std::int64_t>(gridDim.x) * warps) {
        const std::int64_t row = first + threadIdx.x / WARP, there = row < p.outer ? row : p.outer - 1;
        const T *from = x + there * p.length;
        Candidate<N> best = {compared(from[0]), 0};
        for (std::int64_t i = lane; i < p.length; i += WARP) best = better<N>(best, {compared(from[i]), i}, p);
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2) {
            const N number = __shfl_xor_sync(EVERYBODY, best.number, step);
            best = better<N>(best, {number, __shfl_xor_sync(EVERYBODY, best.place, step)}, p);
        }
        if (lane == 0 && row < p.outer) y[row] = best.place;
    }
}

template <class T> __global__ void arg_of_columns(const T *x, std::int64_t *y, const ArgParams p) {
    using N = typename ComparedAs<T>::Type;
    let_next_begin();
    wait_for_previous();
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < p.outer * p.inner; e += step) {
        const T *from = x + e / p.inner * p.length * p.inner + e % p.inner;
        Candidate<N> best = {compared(from[0]), 0};
        for (std::int64_t i = 1; i < p.length; i++) best = better<N>(best, {compared(from[i * p.inner]), i}, p);
        y[e] = best.place;
    }
}

template <class T> int arg(void *const *pointers, const ArgParams &p, cudaStream_t stream) {
    const T *x = static_cast<const T *>(pointers[0]);
    std::int64_t *y = static_cast<std::int64_t *>(pointers[1]);
    if (p.outer * p.inner == 0) return cudaSuccess;
    if (p.inner > 1 || p.length < 8)
        return launch_early(arg_of_columns<T>, row_blocks(p.outer * p.inner, 128), 128, 0, stream, x, y, p);
    return launch_early(arg_of_rows<T>, row_blocks(p.outer, 4), 128, 0, stream, x, y, p);
}

constexpr auto arg_of_float32 = arg<float>;
constexpr auto arg_of_float16 = arg<__half>;
constexpr auto arg_of_bfloat16 = arg<__nv_bfloat16>;
constexpr auto arg_of_float64 = arg<double>;
constexpr auto arg_of_int8 = arg<std::int8_t>;
constexpr auto arg_of_uint8 = arg<std::uint8_t>;
constexpr auto arg_of_int16 = arg<std::int16_t>;
constexpr auto arg_of_uint16 = arg<std::uint16_t>;
constexpr auto arg_of_int32 = arg<std::int32_t>;
constexpr auto arg_of_uint32 = arg<std::uint32_t>;
constexpr auto arg_of_int64 = arg<std::int64_t>;
constexpr auto arg_of_uint64 = arg<std::uint64_t>;
AICORE_KERNEL(arg_extreme_float32, ArgParams, 2, arg_of_float32);
AICORE_KERNEL(arg_extreme_float16, ArgParams, 2, arg_of_float16);
AICORE_KERNEL(arg_extreme_bfloat16, ArgParams, 2, arg_of_bfloat16);
AICORE_KERNEL(arg_extreme_float64, ArgParams, 2, arg_of_float64);
AICORE_KERNEL(arg_extreme_int8, ArgParams, 2, arg_of_int8);
AICORE_KERNEL(arg_extreme_uint8, ArgParams, 2, arg_of_uint8);
AICORE_KERNEL(arg_extreme_int16, ArgParams, 2, arg_of_int16);
AICORE_KERNEL(arg_extreme_uint16, ArgParams, 2, arg_of_uint16);
AICORE_KERNEL(arg_extreme_int32, ArgParams, 2, arg_of_int32);
AICORE_KERNEL(arg_extreme_uint32, ArgParams, 2, arg_of_uint32);
AICORE_KERNEL(arg_extreme_int64, ArgParams, 2, arg_of_int64);
AICORE_KERNEL(arg_extreme_uint64, ArgParams, 2, arg_of_uint64);

}  // namespace
