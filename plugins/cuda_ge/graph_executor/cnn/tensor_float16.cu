// Convolutions on tensor cores in float16.
#include "tensor_conv.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

int conv_tensor_float16(void *const *pointers, const TensorConvParams &params, cudaStream_t stream) {
    if (outputs_of(params.conv) == 0) return cudaSuccess;
    const TensorConv<__half> p = tensor_conv<__half>(pointers, params);
    return tensor::launch_tensor(params.tile, p, p.rows, params.conv.groups, params.split, stream);
}
AICORE_KERNEL(conv_tensor_float16, TensorConvParams, 3, conv_tensor_float16);

}  // namespace
