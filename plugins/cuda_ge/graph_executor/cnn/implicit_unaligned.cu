// Tiles that copy single floats of x: for numbers of channels that are no multiple of 4, as of pictures.
#include "implicit_launch.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

int conv_implicit_unaligned(void *const *pointers, const ImplicitParams &params, cudaStream_t stream) {
    return launch_tile_of(UnalignedTiles{}, pointers, params, stream);
}

AICORE_KERNEL(conv_implicit_unaligned, ImplicitParams, 3, conv_implicit_unaligned);

}  // namespace
