// Products and convolutions on tensor cores in tiles with short stages, apart from the others for the compiler's sake.
#include "int8_gemm_mma.cuh"

namespace int8_quant {

int launch_short_mma(int tile, bool images, const Gemm &g, int split, cudaStream_t stream) {
    using Launch = int (*)(const Gemm &, int, cudaStream_t);
    static const Launch tiles[][2] = {{launch_mma<Mma128x128s, false>, launch_mma<Mma128x128s, true>},
                                      {launch_mma<Mma128x64s, false>, launch_mma<Mma128x64s, true>},
                                      {launch_mma<Mma64x64s, false>, launch_mma<Mma64x64s, true>}};
    return tiles[tile][images](g, split, stream);
}

}  // namespace int8_quant
