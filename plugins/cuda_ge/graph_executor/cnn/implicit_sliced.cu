// Tiles of threads in slices: for the few output pixels of small images.
#include "implicit_launch.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

int conv_implicit_sliced(void *const *pointers, const ImplicitParams &params, cudaStream_t stream) {
    return launch_tile_of(SlicedTiles{}, pointers, params, stream);
}

AICORE_KERNEL(conv_implicit_sliced, ImplicitParams, 3, conv_implicit_sliced);

}  // namespace
