// float16 and bfloat16 become float32 on their way into shared memory; the arithmetic is that of float32.
#include "gemm_tile.cuh"

namespace {

using namespace aicore;

using Large = Tile<4, 2, 8, 8, 8, 3, 2>;
using Small = Tile<2, 2, 8, 4, 16, 3, 4>;

int gemm_128x128_float16(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_tile<__half, Large, false>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_128x128_float16, Gemm, 3, gemm_128x128_float16);

int gemm_64x64_float16(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_tile<__half, Small, false>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_64x64_float16, Gemm, 3, gemm_64x64_float16);

int gemm_128x128_bfloat16(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_tile<__nv_bfloat16, Large, false>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_128x128_bfloat16, Gemm, 3, gemm_128x128_bfloat16);

int gemm_64x64_bfloat16(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_gemm_tile<__nv_bfloat16, Small, false>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_64x64_bfloat16, Gemm, 3, gemm_64x64_bfloat16);

}  // namespace
