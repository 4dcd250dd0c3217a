// The tile for products that are too small to give every multiprocessor one of 128 x 256.
#include "gemm_tile.cuh"

namespace {

using namespace aicore;

int gemm_64x128(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_float<Tile<2, 2, 8, 8, 16, 3, 3>>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_64x128, Gemm, 3, gemm_64x128);

}  // namespace
