// Convolutions on tensor cores, by tile; the order is that of MMA in aicore_int8_quant/cuda/tiles.py.
#include "int8_gemm_mma.cuh"

namespace {
using namespace int8_quant;

int conv(void *const *pointers, const Params &p, cudaStream_t stream) {
    using Launch = int (*)(const Gemm &, int, cudaStream_t);
    static const Launch tiles[] = {launch_mma<Mma256x128, true>, launch_mma<Mma128x256, true>,
                                   launch_mma<Mma128x128, true>, launch_mma<Mma64x64, true>};
    if (p.tile > 3) return launch_short_mma(int(p.tile) - 4, true, gemm_of(pointers, p), int(p.split), stream);
    return tiles[p.tile](gemm_of(pointers, p), int(p.split), stream);
}
INT8_KERNEL(int8_conv_mma, Params, 3, conv);

}  // namespace
