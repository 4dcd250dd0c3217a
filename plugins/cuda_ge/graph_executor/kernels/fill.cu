// One byte everywhere: the pattern of poison, and zeros.
#include "../ge/kernel.cuh"

namespace {

struct FillParams {
    std::int64_t bytes;
    std::int64_t value;  // of each byte
};

int fill(void *const *pointers, const FillParams &params, cudaStream_t stream) {
    return cudaMemsetAsync(pointers[0], static_cast<int>(params.value), static_cast<std::size_t>(params.bytes), stream);
}

AICORE_KERNEL(fill, FillParams, 1, fill);

}  // namespace
