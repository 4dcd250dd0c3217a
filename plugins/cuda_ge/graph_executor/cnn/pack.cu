// The launch of pack.cuh, for weights that are not constant; constant ones are packed once, by Python.
#include "pack.cuh"

#include "../ge/kernel.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) pack_kernel(const PackParams p, const float *w, float *to) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (index < p.groups * p.depth * p.columns) to[index] = packed_weight(p, w, index);
}

int conv_pack(void *const *pointers, const PackParams &p, cudaStream_t stream) {
    const std::int64_t count = p.groups * p.depth * p.columns;
    if (count == 0) return cudaSuccess;
    return launch_early(pack_kernel, blocks_for(count, kThreads), kThreads, 0, stream, p,
                        static_cast<const float *>(pointers[1]), static_cast<float *>(pointers[p.to_at]));
}

AICORE_KERNEL(conv_pack, PackParams, 3, conv_pack);

}  // namespace
