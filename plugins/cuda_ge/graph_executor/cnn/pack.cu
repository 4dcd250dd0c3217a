// The launch of pack.cuh, for weights that are not constant; constant ones are packed once, by Python.
#include "pack.cuh"

#include "../ge/kernel.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

constexpr int kLanes = 32, kChannels = 8;
constexpr std::int64_t kMost = 65535;  // blocks along the second and third axis of a grid

__global__ void __launch_bounds__(kLanes *kChannels) pack_kernel(const PackParams p, const float *w, float *to) {
    let_next_begin();
    wait_for_previous();
    const int column = static_cast<int>(blockIdx.x) * kLanes + threadIdx.x;
    if (column >= p.columns) return;
    for (int group = blockIdx.z; group < p.groups; group += gridDim.z) {
        for (int channel = blockIdx.y * kChannels + threadIdx.y; channel <= p.channels; channel += gridDim.y * kChannels)
            pack_taps(p, w, to, group, channel, column);
    }
}

int conv_pack(void *const *pointers, const PackParams &p, cudaStream_t stream) {
    if (p.groups * p.depth * p.columns == 0) return cudaSuccess;
    const auto most = [](std::int64_t blocks) { return static_cast<unsigned>(blocks < kMost ? blocks : kMost); };
    const dim3 grid(blocks_for(p.columns, kLanes), most(blocks_for(p.channels + 1, kChannels)), most(p.groups));
    auto *to = reinterpret_cast<float *>(static_cast<char *>(pointers[p.to_at]) + p.to_byte);
    return launch_early(pack_kernel, grid, dim3(kLanes, kChannels), 0, stream, p,
                        static_cast<const float *>(pointers[1]), to);
}

AICORE_KERNEL(conv_pack, PackParams, 3, conv_pack);

}  // namespace
