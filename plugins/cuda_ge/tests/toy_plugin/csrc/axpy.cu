// alpha * x + y, an element for each thread; behind the launch header, and nothing else of aicore.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "aicore_cuda_launch.h"

namespace {

struct Params {  // as `struct.pack("<qff", ...)` makes it
    std::int64_t count;
    float alpha, unused;
};

__global__ void axpy(const float *x, const float *y, float *result, Params p) {
    const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < p.count) result[i] = fmaf(p.alpha, x[i], y[i]);
}

int launch(void *const *pointers, std::size_t, const void *bytes, std::size_t, void *stream) {
    Params p;
    std::memcpy(&p, bytes, sizeof p);
    if (p.count == 0) return cudaSuccess;  // no elements, no launch
    const unsigned blocks = static_cast<unsigned>((p.count + 255) / 256);
    axpy<<<blocks, 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float *>(pointers[0]), static_cast<const float *>(pointers[1]),
        static_cast<float *>(pointers[2]), p);
    return cudaGetLastError();
}

}  // namespace

extern "C" const aicore_cuda_kernel toy_axpy = {AICORE_CUDA_LAUNCH_VERSION, sizeof(Params), 3, 0, "toy_axpy", &launch};
