// The tile for the smallest products.
#include "gemm_tile.cuh"

namespace {

using namespace aicore;

int gemm_32x32x4(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_float<Tile<2, 1, 4, 4, 32, 3, 2, 4>>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_32x32x4, Gemm, 3, gemm_32x32x4);

}  // namespace
