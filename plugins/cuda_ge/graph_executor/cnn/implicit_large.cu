// Large tiles, one slice: for many output pixels.
#include "implicit_launch.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

int conv_implicit_large(void *const *pointers, const ImplicitParams &params, cudaStream_t stream) {
    return launch_tile_of(LargeTiles{}, pointers, params, stream);
}

AICORE_KERNEL(conv_implicit_large, ImplicitParams, 3, conv_implicit_large);

}  // namespace
