// The maximum of windows over images of bytes whose channels come last: a thread takes 16 channels, or four, of one
// place of the result.
#include "kernel.cuh"

namespace {
using namespace int8_quant;

constexpr unsigned kThreads = 128;

struct PoolParams {
    std::int64_t images, channels, height, width, out_height, out_width;
    std::int64_t kernel_y, kernel_x, stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    std::int64_t is_unsigned;
};

template <bool kUnsigned>
__device__ __forceinline__ unsigned larger_bytes(unsigned a, unsigned b) {
    return kUnsigned ? __vmaxu4(a, b) : __vmaxs4(a, b);
}

template <int kWords>
struct alignas(4 * kWords) Words {
    unsigned of[kWords];
};

template <int kWords, bool kUnsigned>
__global__ void __launch_bounds__(kThreads) pool_bytes(const __grid_constant__ PoolParams p, const std::int8_t *x,
                                                       std::int8_t *out) {
    wait_for_previous();
    let_next_begin();
    using Some = Words<kWords>;
    const unsigned each = unsigned(p.channels) / (4 * kWords), width = unsigned(p.out_width);
    const std::int64_t index = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (index >= p.images * p.out_height * p.out_width * each) return;
    const unsigned at = unsigned(index), place = at / each, some = at - place * each, line = place / width;
    const unsigned image = line / unsigned(p.out_height);
    const int top = int(line - image * unsigned(p.out_height)) * int(p.stride_y) - int(p.pad_y);
    const int left = int(place - line * width) * int(p.stride_x) - int(p.pad_x);
    const auto *from = reinterpret_cast<const Some *>(x) + std::int64_t(image) * p.height * p.width * each + some;
    Some result;
    for (int i = 0; i < kWords; i++) result.of[i] = kUnsigned ? 0u : 0x80808080u;  // of a window that has no element
    for (int i = 0; i < p.kernel_y; i++) {
        const int y = top + i * int(p.dilation_y);
        if (unsigned(y) >= unsigned(p.height)) continue;
        for (int j = 0; j < p.kernel_x; j++) {
            const int across = left + j * int(p.dilation_x);
            if (unsigned(across) >= unsigned(p.width)) continue;
            const Some more = from[(y * int(p.width) + across) * int(each)];
            for (int k = 0; k < kWords; k++) result.of[k] = larger_bytes<kUnsigned>(result.of[k], more.of[k]);
        }
    }
    reinterpret_cast<Some *>(out)[index] = result;
}

int pool(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    const int words = p.channels % 16 == 0 ? 4 : 1;
    const std::int64_t threads = p.images * p.out_height * p.out_width * (p.channels / (4 * words));
    if (threads == 0) return cudaSuccess;  // no elements, no launch
    const dim3 grid(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
    const auto run = [&](auto kernel) {
        return launch(kernel, grid, kThreads, 0, stream, 1, p, static_cast<const std::int8_t *>(pointers[0]),
                      static_cast<std::int8_t *>(pointers[1]));
    };
    if (words == 4) return p.is_unsigned ? run(pool_bytes<4, true>) : run(pool_bytes<4, false>);
    return p.is_unsigned ? run(pool_bytes<1, true>) : run(pool_bytes<1, false>);
}
INT8_KERNEL(int8_max_pool, PoolParams, 2, pool);

}  // namespace
