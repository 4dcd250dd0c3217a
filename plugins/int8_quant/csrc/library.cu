// Sums of products by cuBLASLt, where its library is present: neither linked nor included. Python loads it, describes
// the product and has it choose an algorithm (aicore_int8_quant/cuda/library.py), and hands functions and objects over
// as numbers; what is left to do while a graph is captured is one call. int8_epilogue makes results of the sums.
#include "problem.cuh"

namespace {
using namespace int8_quant;

// cublasLtMatmul of version 12 and 13; 0 says success.
using Matmul = int (*)(void *handle, void *product, const void *alpha, const void *left, void *left_layout,
                       const void *right, void *right_layout, const void *beta, const void *c, void *c_layout, void *y,
                       void *y_layout, const void *algorithm, void *workspace, std::size_t bytes, cudaStream_t stream);
constexpr std::uintptr_t kAlignment = 256;  // of the library's workspace

struct LibraryParams {
    std::int64_t matmul, handle, product, left_layout, right_layout, y_layout;
    std::int64_t algorithm[8];
    std::int64_t bytes;  // of the workspace
    std::int64_t a_at, b_at, sums_at, room_at;
};

// The library may load its kernels when it is first called, which a capture of this thread would not allow.
class Relaxed {
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;

  public:
    const cudaError_t status = cudaThreadExchangeStreamCaptureMode(&mode_);
    ~Relaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
};

// By columns, as the library sees matrices: the sums' transpose is b a', where b is stored as its own transpose.
int multiply(void *const *pointers, const LibraryParams &p, cudaStream_t stream) {
    const auto object = [](std::int64_t address) { return reinterpret_cast<void *>(address); };
    const Relaxed relaxed;
    if (relaxed.status != cudaSuccess) return relaxed.status;
    const std::int32_t one = 1, zero = 0;
    void *sums = pointer<void>(pointers, p.sums_at);
    const auto room = reinterpret_cast<std::uintptr_t>(pointer<char>(pointers, p.room_at)) + kAlignment - 1;
    const auto matmul = reinterpret_cast<Matmul>(p.matmul);
    const int status = matmul(object(p.handle), object(p.product), &one, pointer<const char>(pointers, p.b_at),
                              object(p.left_layout), pointer<const char>(pointers, p.a_at), object(p.right_layout),
                              &zero, sums, object(p.y_layout), sums, object(p.y_layout), p.algorithm,
                              reinterpret_cast<void *>(room / kAlignment * kAlignment),
                              static_cast<std::size_t>(p.bytes), stream);
    return status == 0 ? cudaSuccess : cudaErrorUnknown;
}
INT8_KERNEL(int8_gemm_library, LibraryParams, 3, multiply);

}  // namespace
