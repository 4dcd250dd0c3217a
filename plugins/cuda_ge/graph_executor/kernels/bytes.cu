// Bytes as they are: one value everywhere (the pattern of poison, and zeros), and copies. They are kernels and no memset
// or memcpy nodes, so that the launches around them may overlap as everywhere in a graph.
//
// 1. Each thread takes one byte.
// 2. Where all addresses allow it, words of 16 bytes instead, and the few bytes at the end one by one.
#include "../ge/kernel.cuh"

namespace {
using namespace aicore;

constexpr int threads = 256;
constexpr unsigned most_blocks = 1u << 16;
constexpr std::int64_t word = sizeof(uint4);

struct FillParams {
    std::int64_t bytes;
    std::int64_t value;  // of each byte
};

struct CopyParams {
    std::int64_t bytes;
};

unsigned blocks_of(std::int64_t words, std::int64_t bytes) {
    const unsigned blocks = blocks_for(words > 0 ? words : bytes, threads);
    return blocks < most_blocks ? blocks : most_blocks;
}

std::int64_t words_of(std::uintptr_t addresses, std::int64_t bytes) { return addresses % word ? 0 : bytes / word; }

__global__ void fill_bytes(unsigned char *target, std::int64_t words, std::int64_t bytes, unsigned value) {
    wait_for_previous();
    const std::int64_t first = std::int64_t(blockIdx.x) * threads + threadIdx.x, step = std::int64_t(gridDim.x) * threads;
    const unsigned four = value * 0x01010101u;
    for (std::int64_t i = first; i < words; i += step) {
        reinterpret_cast<uint4 *>(target)[i] = make_uint4(four, four, four, four);
    }
    for (std::int64_t i = words * word + first; i < bytes; i += step) target[i] = static_cast<unsigned char>(value);
}

__global__ void copy_bytes(const unsigned char *source, unsigned char *target, std::int64_t words, std::int64_t bytes) {
    wait_for_previous();
    const std::int64_t first = std::int64_t(blockIdx.x) * threads + threadIdx.x, step = std::int64_t(gridDim.x) * threads;
    for (std::int64_t i = first; i < words; i += step) {
        reinterpret_cast<uint4 *>(target)[i] = reinterpret_cast<const uint4 *>(source)[i];
    }
    for (std::int64_t i = words * word + first; i < bytes; i += step) target[i] = source[i];
}

int fill(void *const *pointers, const FillParams &p, cudaStream_t stream) {
    if (p.bytes <= 0) return cudaSuccess;
    const std::int64_t words = words_of(reinterpret_cast<std::uintptr_t>(pointers[0]), p.bytes);
    return launch_early(fill_bytes, blocks_of(words, p.bytes), threads, 0, stream,
                        static_cast<unsigned char *>(pointers[0]), words, p.bytes,
                        static_cast<unsigned>(p.value & 0xff));
}

int copy(void *const *pointers, const CopyParams &p, cudaStream_t stream) {
    if (p.bytes <= 0) return cudaSuccess;
    const auto both = reinterpret_cast<std::uintptr_t>(pointers[0]) | reinterpret_cast<std::uintptr_t>(pointers[1]);
    const std::int64_t words = words_of(both, p.bytes);
    return launch_early(copy_bytes, blocks_of(words, p.bytes), threads, 0, stream,
                        static_cast<const unsigned char *>(pointers[0]), static_cast<unsigned char *>(pointers[1]),
                        words, p.bytes);
}

AICORE_KERNEL(fill, FillParams, 1, fill);
AICORE_KERNEL(copy, CopyParams, 2, copy);

}  // namespace
