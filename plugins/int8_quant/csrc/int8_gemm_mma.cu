// Products on tensor cores, by tile; the order is that of MMA in aicore_int8_quant/cuda/tiles.py.
#include "int8_gemm_mma.cuh"

namespace {
using namespace int8_quant;

int gemm(void *const *pointers, const Params &p, cudaStream_t stream) {
    using Launch = int (*)(const Gemm &, int, cudaStream_t);
    static const Launch tiles[] = {launch_mma<Mma256x128, false>, launch_mma<Mma128x256, false>,
                                   launch_mma<Mma128x128, false>, launch_mma<Mma64x64, false>};
    if (p.tile > 3) return launch_short_mma(int(p.tile) - 4, false, gemm_of(pointers, p), int(p.split), stream);
    return tiles[p.tile](gemm_of(pointers, p), int(p.split), stream);
}
INT8_KERNEL(int8_gemm_mma, Params, 3, gemm);

}  // namespace
