// Convolutions on tensor cores in bfloat16.
#include "tensor_conv.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

int conv_tensor_bfloat16(void *const *pointers, const TensorConvParams &params, cudaStream_t stream) {
    if (outputs_of(params.conv) == 0) return cudaSuccess;
    const TensorConv<__nv_bfloat16> p = tensor_conv<__nv_bfloat16>(pointers, params);
    return tensor::launch_tensor(params.tile, p, p.rows, params.conv.groups, params.split, stream);
}
AICORE_KERNEL(conv_tensor_bfloat16, TensorConvParams, 3, conv_tensor_bfloat16);

}  // namespace
