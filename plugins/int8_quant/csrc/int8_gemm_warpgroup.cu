// Products on tensor cores of sm_90, by tile; the order is that of WARPGROUP in aicore_int8_quant/cuda/tiles.py.
#include "int8_gemm_warpgroup.cuh"

namespace {
using namespace int8_quant;

int gemm(void *const *pointers, const Params &p, cudaStream_t stream) {
    using Launch = int (*)(const Gemm &, int, cudaStream_t);
    static const Launch tiles[] = {launch_warpgroups<Warpgroup128x128, false>, launch_warpgroups<Warpgroup128x64, false>};
    return tiles[p.tile](gemm_of(pointers, p), int(p.split), stream);
}
INT8_KERNEL(int8_gemm_warpgroup, Params, 3, gemm);

}  // namespace
