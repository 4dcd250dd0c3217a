// float16 and bfloat16 become float32 on their way into shared memory; the arithmetic is that of float32. For GPUs whose
// tensor cores tensor/ does not serve.
#include "gemm_tile.cuh"

namespace {

using namespace aicore;

// Narrow numbers are read one by one.
template <class T, class TILE>
int launch_narrow(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    if (gemm.rows == 0 || gemm.columns == 0 || gemm.batch == 0) return cudaSuccess;
    return launch_gemm_tile<T, TILE, Along::kNone, Along::kNone>(pointers, gemm, stream);
}

using Large = Tile<2, 2, 8, 8, 16, 3, 2>;
using Small = Tile<2, 1, 4, 8, 32, 3, 2, 4>;

int gemm_64x128_float16(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_narrow<__half, Large>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_64x128_float16, Gemm, 3, gemm_64x128_float16);

int gemm_32x64x4_float16(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_narrow<__half, Small>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_32x64x4_float16, Gemm, 3, gemm_32x64x4_float16);

int gemm_64x128_bfloat16(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_narrow<__nv_bfloat16, Large>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_64x128_bfloat16, Gemm, 3, gemm_64x128_bfloat16);

int gemm_32x64x4_bfloat16(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return launch_narrow<__nv_bfloat16, Small>(pointers, gemm, stream);
}
AICORE_KERNEL(gemm_32x64x4_bfloat16, Gemm, 3, gemm_32x64x4_bfloat16);

}  // namespace
