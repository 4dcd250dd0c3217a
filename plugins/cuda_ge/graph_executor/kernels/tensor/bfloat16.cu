// Matrix products on tensor cores in bfloat16.
#include "product.cuh"

namespace {

using namespace aicore;

int gemm_tensor_bfloat16(void *const *pointers, const tensor::TensorGemm &params, cudaStream_t stream) {
    return tensor::launch_product<__nv_bfloat16>(pointers, params, stream);
}
AICORE_KERNEL(gemm_tensor_bfloat16, tensor::TensorGemm, 3, gemm_tensor_bfloat16);

}  // namespace
