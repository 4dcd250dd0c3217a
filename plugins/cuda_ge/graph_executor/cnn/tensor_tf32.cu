// Convolutions on tensor cores in tf32.
#include "tensor_conv.cuh"

namespace {

using namespace aicore;
using namespace aicore::cnn;

int conv_tensor_tf32(void *const *pointers, const TensorConvParams &params, cudaStream_t stream) {
    if (outputs_of(params.conv) == 0) return cudaSuccess;
    const TensorConv<float> p = tensor_conv<float>(pointers, params);
    return tensor::launch_tensor(params.tile, p, p.rows, params.conv.groups, params.split, stream);
}
AICORE_KERNEL(conv_tensor_tf32, TensorConvParams, 3, conv_tensor_tf32);

}  // namespace
