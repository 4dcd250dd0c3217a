// The launch of depthwise.cuh.
#include "depthwise.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

int conv_depthwise(void *const *pointers, const DepthwiseParams &params, cudaStream_t stream) {
    if (outputs_of(params.conv) == 0) return cudaSuccess;
    return run_depthwise(pointers, params, [&](auto kernel, std::int64_t threads, const auto &p) -> int {
        return launch_early(kernel, blocks_for(threads, kDepthwiseThreads), kDepthwiseThreads, 0, stream, p, threads);
    });
}

AICORE_KERNEL(conv_depthwise, DepthwiseParams, 3, conv_depthwise);

}  // namespace
