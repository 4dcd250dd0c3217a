// x @ w' of recurrent layers in 16 bits, on tensor cores, left as the float32 numbers that their sums are.
#include "../ge/kernel.cuh"

#include "../kernels/tensor/product.cuh"

namespace {

using namespace aicore;
using namespace aicore::tensor;

template <class T>
int project(void *const *pointers, const TensorGemm &params, cudaStream_t stream) {
    const Gemm &gemm = params.gemm;
    if (gemm.rows == 0 || gemm.columns == 0) return cudaSuccess;
    const TensorProduct<T, float> product = tensor_product<T, float>(pointers, params);
    return launch_tensor<TileNumber<2>::Type>(product, static_cast<int>(gemm.rows), gemm.batch, 1, stream);
}

int recurrent_project_float16(void *const *pointers, const TensorGemm &params, cudaStream_t stream) {
    return project<__half>(pointers, params, stream);
}
AICORE_KERNEL(recurrent_project_float16, TensorGemm, 5, recurrent_project_float16);

int recurrent_project_bfloat16(void *const *pointers, const TensorGemm &params, cudaStream_t stream) {
    return project<__nv_bfloat16>(pointers, params, stream);
}
AICORE_KERNEL(recurrent_project_bfloat16, TensorGemm, 5, recurrent_project_bfloat16);

}  // namespace
