// Tiles of 256 threads in slices, for few rows or columns: one block keeps a multiprocessor busy.
#include "gemm_tile.cuh"

namespace {

using namespace aicore;

int gemm_64x128x2(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_float<Tile<2, 2, 8, 8, 32, 3, 1, 2>>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_64x128x2, Gemm, 3, gemm_64x128x2);

int gemm_32x64x4(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_float<Tile<2, 1, 4, 8, 32, 3, 2, 4>>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_32x64x4, Gemm, 3, gemm_32x64x4);

}  // namespace
