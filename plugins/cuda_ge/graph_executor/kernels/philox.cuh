// Philox4x32-10: random words as a function of a key and a counter. Source: Salmon et al., Parallel random numbers: as
// easy as 1, 2, 3 (2011), section 3.4; plugins/cpu_numpy/aicore_cpu_numpy/reference/random.py computes the same.
#pragma once

#include <cstdint>

namespace aicore {

struct PhiloxWords {
    std::uint32_t word[4];
};

// The four words of block `block` of a stream.
__host__ __device__ __forceinline__ PhiloxWords philox(std::uint32_t key0, std::uint32_t key1, std::uint32_t block,
                                                       std::uint32_t stream) {
    std::uint32_t c0 = block, c1 = 0, c2 = stream, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const std::uint64_t p0 = static_cast<std::uint64_t>(c0) * 0xD2511F53u;
        const std::uint64_t p1 = static_cast<std::uint64_t>(c2) * 0xCD9E8D57u;
        c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key0;
        c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key1;
        c1 = static_cast<std::uint32_t>(p1);
        c3 = static_cast<std::uint32_t>(p0);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

}  // namespace aicore
