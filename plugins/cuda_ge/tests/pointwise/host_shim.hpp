// Lets a host compiler take generated CUDA source: one thread after the other, block by block.
#include <math.h>

#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(THREADS)

struct Coordinates {
    unsigned x;
};
static Coordinates threadIdx, blockIdx, gridDim;

// The bits that PTX's cvt gives, from a compiler that rounds as IEEE 754 asks.
namespace aicore {

template <class F> inline unsigned short half_of(F x) {
    union {
        _Float16 half;
        unsigned short bits;
    } both;
    both.half = static_cast<_Float16>(x);
    return both.bits;
}

inline float of_half(unsigned short bits) {
    union {
        unsigned short bits;
        _Float16 half;
    } both;
    both.bits = bits;
    return static_cast<float>(both.half);
}

// Calls a kernel for every thread of a grid; its parameters are pointers, then the number of elements.
template <class... P, std::size_t... I>
void for_each_thread(void (*kernel)(P...), void **pointers, long long count, unsigned blocks, unsigned threads,
                     std::index_sequence<I...>) {
    typedef std::tuple<P...> Parameters;
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++) {
            kernel(static_cast<std::tuple_element_t<I, Parameters>>(pointers[I])..., count);
        }
    }
}

}  // namespace aicore

#define HOST_LAUNCH(NAME)                                                                                         \
    extern "C" void NAME##_launch(void **pointers, long long count, unsigned blocks, unsigned threads) {            \
        host_launch(aicore::NAME, pointers, count, blocks, threads);                                                \
    }

template <class... P>
void host_launch(void (*kernel)(P...), void **pointers, long long count, unsigned blocks, unsigned threads) {
    aicore::for_each_thread(kernel, pointers, count, blocks, threads, std::make_index_sequence<sizeof...(P) - 1>());
}
