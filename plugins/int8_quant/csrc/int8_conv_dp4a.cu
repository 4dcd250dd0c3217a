// Convolutions on dp4a: the same tiles, whose rows of a are windows of images. The places in the list are those of
// DP4A_IMAGES in aicore_int8_quant/cuda/tiles.py.
#include "int8_gemm_dp4a.cuh"

namespace {
using namespace int8_quant;

int conv(void *const *pointers, const Params &p, cudaStream_t stream) {
    using Launch = int (*)(const Gemm &, int, cudaStream_t);
    // Without those that take longest to compile: where convolutions are large there are tensor cores.
    static const Launch tiles[] = {nullptr, launch_dp4a<Dp4a128x128, true>, launch_dp4a<Dp4a64x128, true>,
                                   nullptr, launch_dp4a<Dp4a64x64x2, true>, launch_dp4a<Dp4a16x64x4, true>};
    return tiles[p.tile](gemm_of(pointers, p), int(p.split), stream);
}
INT8_KERNEL(int8_conv_dp4a, Params, 3, conv);

}  // namespace
