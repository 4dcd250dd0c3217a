// Products on dp4a, by tile; the order is that of DP4A in aicore_int8_quant/cuda/tiles.py.
#include "int8_gemm_dp4a.cuh"

namespace {
using namespace int8_quant;

int gemm(void *const *pointers, const Params &p, cudaStream_t stream) {
    using Launch = int (*)(const Gemm &, int, cudaStream_t);
    static const Launch tiles[] = {launch_dp4a<Dp4a128x256, false>,  launch_dp4a<Dp4a128x128, false>,
                                   launch_dp4a<Dp4a64x128, false>,   launch_dp4a<Dp4a64x128x2, false>,
                                   launch_dp4a<Dp4a64x64x2, false>,  launch_dp4a<Dp4a16x64x4, false>};
    return tiles[p.tile](gemm_of(pointers, p), int(p.split), stream);
}
INT8_KERNEL(int8_gemm_dp4a, Params, 3, gemm);

}  // namespace
