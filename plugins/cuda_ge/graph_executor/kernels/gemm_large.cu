// The tile for large products: it reads each number from memory least often. One block fills a multiprocessor.
#include "gemm_tile.cuh"

namespace {

using namespace aicore;

// 8 x 16 sums a thread: 128 multiplications for six 16-byte reads of shared memory.
int gemm_128x256(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_float<Tile<4, 2, 8, 16, 16, 3, 1>>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_128x256, Gemm, 3, gemm_128x256);

}  // namespace
