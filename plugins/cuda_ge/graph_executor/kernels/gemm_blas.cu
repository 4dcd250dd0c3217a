// Matrix products by cuBLASLt, where its library is present: neither linked nor included.
//
// Python loads the library, describes the product to it and chooses its algorithm, all while a step is bound
// (aicore_cuda_ge/kernels/_blas.py), and hands over functions and objects as numbers. What is left to do while a graph
// is captured is one call. Activations follow in a kernel of their own, in place: those of the library are fewer, and
// its ReLU need not keep NaN.
#include "../ge/kernel.cuh"

#include <mutex>

#include "../cnn/fours.cuh"
#include "../executor/relaxed_capture.cuh"

namespace {

using namespace aicore;

// cublasLtMatmul and cublasLtMatmulDescSetAttribute of version 12 and 13; 0 says success.
using Matmul = int (*)(void *handle, void *product, const void *alpha, const void *a, void *a_layout, const void *b,
                       void *b_layout, const void *beta, const void *c, void *c_layout, void *y, void *y_layout,
                       const void *algorithm, void *workspace, std::size_t workspace_bytes, cudaStream_t stream);
using SetAttribute = int (*)(void *product, int attribute, const void *value, std::size_t size);
constexpr int kBiasPointer = 8;              // of cublasLtMatmulDescAttributes_t
constexpr std::uintptr_t kWorkspaceAlignment = 256;

// For the library matrices are stored by columns, so that it computes y' = b' a'.
struct BlasProduct {
    std::int64_t matmul, set_attribute;                        // functions
    std::int64_t handle, product, a_layout, b_layout, y_layout;  // objects; c has the layout of y
    std::int64_t algorithm[8];
    std::int64_t workspace_bytes;
    std::int64_t bias_at, c_at, y_at;  // which pointers; below 0: there is none. The workspace is behind y
    float alpha, unused_alpha;
    float beta, unused_beta;
};

// Programs may be captured by several threads, and the address of a bias is part of the described product.
std::mutex &products() {
    static std::mutex mutex;
    return mutex;
}

int gemm_blas(void *const *pointers, const BlasProduct &p, cudaStream_t stream) {
    const auto object = [](std::int64_t address) { return reinterpret_cast<void *>(address); };
    const std::lock_guard<std::mutex> lock(products());
    const RelaxedCapture relaxed;
    if (relaxed.status != cudaSuccess) return relaxed.status;
    if (p.bias_at >= 0) {
        const void *bias = pointers[p.bias_at];
        const auto set = reinterpret_cast<SetAttribute>(p.set_attribute);
        if (set(object(p.product), kBiasPointer, &bias, sizeof bias) != 0) return cudaErrorInvalidValue;
    }
    void *y = pointers[p.y_at];
    const void *c = p.c_at < 0 ? y : pointers[p.c_at];
    const std::uintptr_t room = reinterpret_cast<std::uintptr_t>(pointers[p.y_at + 1]) + kWorkspaceAlignment - 1;
    void *workspace = reinterpret_cast<void *>(room / kWorkspaceAlignment * kWorkspaceAlignment);
    const auto multiply = reinterpret_cast<Matmul>(p.matmul);
    const int status = multiply(object(p.handle), object(p.product), &p.alpha, pointers[1], object(p.b_layout),
                                pointers[0], object(p.a_layout), &p.beta, c, object(p.y_layout), y, object(p.y_layout),
                                p.algorithm, workspace, static_cast<std::size_t>(p.workspace_bytes), stream);
    return status == 0 ? cudaSuccess : cudaErrorUnknown;
}
AICORE_KERNEL(gemm_blas, BlasProduct, 4, gemm_blas);

struct ActivateParams {
    std::int64_t count;
    std::int64_t element;
    std::int64_t y_at;
    Activation activation;
};

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) activate_fours(T *y, std::int64_t count, Activation activation) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 4;
    if (at >= count) return;
    const int exist = count - at < 4 ? static_cast<int>(count - at) : 4;
    const float4 v = cnn::read_four(y + at, exist, exist == 4);
    cnn::write_four(y + at, cnn::activated(activation, v), exist, exist == 4);
}

int activate_in_place(void *const *pointers, const ActivateParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    return cnn::for_float(p.element, [&](auto type) {
        using T = typename decltype(type)::Type;
        return static_cast<int>(launch_early(activate_fours<T>, blocks_for(p.count, 4 * kThreads), kThreads, 0, stream,
                                             static_cast<T *>(pointers[p.y_at]), p.count, p.activation));
    });
}
AICORE_KERNEL(activate_in_place, ActivateParams, 3, activate_in_place);

}  // namespace
