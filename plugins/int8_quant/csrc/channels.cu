// Images of few channels of bytes, such as pictures, with their channels put last: a thread takes four pixels, a word of
// each channel, and writes as many words of pixels.
#include "kernel.cuh"

namespace {
using namespace int8_quant;

constexpr unsigned kThreads = 256;

struct ChannelsParams {
    std::int64_t images, channels, pixels;
};

template <int kChannels>
__global__ void __launch_bounds__(kThreads) put_last(const __grid_constant__ ChannelsParams p, const std::uint32_t *x,
                                                     std::uint32_t *out) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t index = std::int64_t(blockIdx.x) * kThreads + threadIdx.x, fours = p.pixels / 4;
    if (index >= p.images * fours) return;
    const std::int64_t image = index / fours;
    const std::uint32_t *from = x + image * kChannels * fours + (index - image * fours);
    std::uint32_t channels[kChannels], pixels[kChannels] = {};
#pragma unroll
    for (int i = 0; i < kChannels; i++) channels[i] = from[i * fours];
#pragma unroll
    for (int i = 0; i < 4 * kChannels; i++) {  // byte i of the four pixels
        const std::uint32_t byte = channels[i % kChannels] >> (i / kChannels * 8) & 255u;
        pixels[i / 4] |= byte << (i % 4 * 8);
    }
#pragma unroll
    for (int i = 0; i < kChannels; i++) out[index * kChannels + i] = pixels[i];
}

int last(void *const *pointers, const ChannelsParams &p, cudaStream_t stream) {
    const std::int64_t threads = p.images * (p.pixels / 4);
    if (threads == 0) return cudaSuccess;  // no elements, no launch
    const dim3 grid(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
    const auto run = [&](auto kernel) {
        return launch(kernel, grid, kThreads, 0, stream, 1, p, static_cast<const std::uint32_t *>(pointers[0]),
                      static_cast<std::uint32_t *>(pointers[1]));
    };
    return p.channels == 2 ? run(put_last<2>) : p.channels == 3 ? run(put_last<3>) : run(put_last<4>);
}
INT8_KERNEL(int8_channels_last, ChannelsParams, 2, last);

}  // namespace
