// Matrix products on tensor cores in tf32.
#include "product.cuh"

namespace {

using namespace aicore;

int gemm_tensor_tf32(void *const *pointers, const tensor::TensorGemm &params, cudaStream_t stream) {
    return tensor::launch_product<float>(pointers, params, stream);
}
AICORE_KERNEL(gemm_tensor_tf32, tensor::TensorGemm, 3, gemm_tensor_tf32);

}  // namespace
