// Matrix products on tensor cores in float16.
#include "product.cuh"

namespace {

using namespace aicore;

int gemm_tensor_float16(void *const *pointers, const tensor::TensorGemm &params, cudaStream_t stream) {
    return tensor::launch_product<__half>(pointers, params, stream);
}
AICORE_KERNEL(gemm_tensor_float16, tensor::TensorGemm, 3, gemm_tensor_float16);

}  // namespace
