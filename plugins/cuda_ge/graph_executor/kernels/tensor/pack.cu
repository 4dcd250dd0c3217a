// Launches of pack.cuh.
//
// 1. by number: neighbouring threads write neighbours, and read them, too, where the inner axis has stride 1.
// 2. by square: where rows have stride 1 instead, 32 x 32 numbers change their order in shared memory.
#include "../../ge/kernel.cuh"
#include "pack.cuh"

namespace {

using namespace aicore;
using namespace aicore::tensor;

constexpr int kThreads = 256, kSide = 32, kStep = kThreads / kSide;

template <class Word>
__global__ void __launch_bounds__(kThreads) by_number(const PackRows p, const Word *from, Word *to) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t inner = i % p.padded, row = i / p.padded % p.rows, outer = i / p.padded / p.rows;
    if (outer < p.outer) to[i] = packed(p, from, outer, row, inner);
}

template <class Word>
__global__ void __launch_bounds__(kThreads) by_square(const PackRows p, const Word *from, Word *to) {
    __shared__ Word square[kSide][kSide + 1];
    let_next_begin();
    wait_for_previous();
    const std::int64_t across = (p.padded + kSide - 1) / kSide, down = (p.rows + kSide - 1) / kSide;
    const std::int64_t block = blockIdx.x, outer = block / across / down;
    const std::int64_t first_row = block / across % down * kSide, first_inner = block % across * kSide;
    const int fast = threadIdx.x % kSide, slow = threadIdx.x / kSide;
    for (int i = slow; i < kSide; i += kStep) {
        const std::int64_t row = first_row + fast;
        square[i][fast] = row < p.rows ? packed(p, from, outer, row, first_inner + i) : static_cast<Word>(0);
    }
    __syncthreads();
    for (int i = slow; i < kSide; i += kStep) {
        const std::int64_t row = first_row + i, inner = first_inner + fast;
        if (row < p.rows && inner < p.padded) to[(outer * p.rows + row) * p.padded + inner] = square[fast][i];
    }
}

template <class Word>
int launch(void *const *pointers, const PackRows &p, cudaStream_t stream) {
    const Word *from = static_cast<const Word *>(pointers[p.from_at]);
    Word *to = reinterpret_cast<Word *>(static_cast<char *>(pointers[p.to_at]) + p.to_byte);
    if (p.row_stride == 1 && p.inner_stride != 1) {
        const std::int64_t blocks = p.outer * ((p.rows + kSide - 1) / kSide) * ((p.padded + kSide - 1) / kSide);
        return launch_early(by_square<Word>, static_cast<unsigned>(blocks), kThreads, 0, stream, p, from, to);
    }
    const std::int64_t count = p.outer * p.rows * p.padded;
    return launch_early(by_number<Word>, blocks_for(count, kThreads), kThreads, 0, stream, p, from, to);
}

int pack_rows(void *const *pointers, const PackRows &p, cudaStream_t stream) {
    if (p.outer * p.rows * p.padded == 0) return cudaSuccess;
    return p.element_bytes == 2 ? launch<std::uint16_t>(pointers, p, stream) : launch<std::uint32_t>(pointers, p, stream);
}
AICORE_KERNEL(pack_rows, PackRows, 2, pack_rows);

}  // namespace
