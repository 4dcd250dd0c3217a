// The launch of channels.cuh.
#include "channels.cuh"

namespace {

using namespace aicore;
using namespace aicore::pooling;

constexpr std::size_t kShared = kChannelThreads * sizeof(float);

template <bool Max, class T>
int launch(const T *x, T *y, const PoolParams &p, cudaStream_t stream) {
    const int pixels = static_cast<int>(product(p.window.size));
    const std::int64_t all = p.images * p.channels;
    if (p.x.channel == 1) {  // and at most 65,535 images; see pooling.py
        const dim3 blocks(blocks_for(p.channels, 32), static_cast<unsigned>(p.images));
        return launch_early(last_kernel<Max, T>, blocks, kChannelThreads, kShared, stream, x, y, pixels,
                            static_cast<int>(p.channels));
    }
    const dim3 blocks(blocks_for(all, kChannelWarps));
    return launch_early(first_kernel<Max, T>, blocks, kChannelThreads, kShared, stream, x, y, pixels, all);
}

int pool_channels(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    if (outputs_of(p) == 0) return cudaSuccess;
    return for_float(p.element, [&](auto type) -> int {
        using T = typename decltype(type)::Type;
        const auto *x = static_cast<const T *>(pointers[0]);
        auto *y = static_cast<T *>(pointers[1]);
        return p.kind == kMaxPool ? launch<true>(x, y, p, stream) : launch<false>(x, y, p, stream);
    });
}

AICORE_KERNEL(pool_channels, PoolParams, 2, pool_channels);

}  // namespace
