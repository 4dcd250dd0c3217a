// A batch of matrix products with a fused tail, as all gemm kernels take it: y = activation(alpha * a @ b + beta * c).
//
// Transposes, vectors and broadcast batch axes are nothing but strides. The functions here are index arithmetic that
// host tests compile too.
#pragma once

#include "../bias/tail.cuh"

namespace aicore {

constexpr int kBatchAxes = 6;

struct Gemm {
    std::int64_t rows;     // of y
    std::int64_t columns;  // of y
    std::int64_t inner;
    std::int64_t a_row;  // strides in elements
    std::int64_t a_inner;
    std::int64_t b_inner;
    std::int64_t b_column;
    std::int64_t y_row;
    std::int64_t y_column;
    std::int64_t batch;               // product of batch_sizes
    std::int64_t batch_sizes[kBatchAxes];  // outermost first, padded with 1 in front
    std::int64_t a_batch[kBatchAxes];
    std::int64_t b_batch[kBatchAxes];
    std::int64_t c_batch[kBatchAxes];
    Tail tail;
    std::int64_t splits;      // parts that the inner axis is cut into
    std::int64_t wide;        // how operands may be read 16 bytes at a time: as each kernel numbers it, 0 for not at all
    std::int64_t wide_y;      // 1: y may be written 16 bytes at a time
    std::int64_t b_constant;  // 1: no kernel writes b, so that it can be read before the kernels before have ended
    std::int64_t partial;     // 1: y is the workspace, float[splits][batch][rows][columns], without the tail
    std::int64_t swapped;     // 1: the first pointer is b, the second a
    std::int64_t c_at;        // which pointer is c; below 0: there is none
    std::int64_t y_at;        // which pointer is y; the one behind it is the workspace, if one is declared
};

// The pointers of a launch by what they mean to the kernel.
template <class T>
struct GemmPointers {
    const T *a, *b, *c;
    T *y;
    float *workspace;

    GemmPointers(void *const *pointers, const Gemm &gemm) {
        a = static_cast<const T *>(pointers[gemm.swapped ? 1 : 0]);
        b = static_cast<const T *>(pointers[gemm.swapped ? 0 : 1]);
        c = gemm.c_at < 0 ? nullptr : static_cast<const T *>(pointers[gemm.c_at]);
        y = static_cast<T *>(pointers[gemm.y_at]);
        workspace = gemm.partial ? static_cast<float *>(pointers[gemm.y_at + 1]) : nullptr;
    }
};

struct BatchOffsets {
    std::int64_t a, b, c;
};

// Where the matrices of one product of the batch begin. Counts of blocks and of matrices fit 31 bits; 64-bit divisions
// would take longer than a small product.
AICORE_HOST_DEVICE BatchOffsets batch_offsets(const Gemm &gemm, std::uint32_t index) {
    BatchOffsets at = {0, 0, 0};
    if (gemm.batch == 1) return at;
    for (int axis = kBatchAxes - 1; axis >= 0; axis--) {
        const std::uint32_t size = static_cast<std::uint32_t>(gemm.batch_sizes[axis]);
        const std::uint32_t i = index % size;
        index /= size;
        at.a += i * gemm.a_batch[axis];
        at.b += i * gemm.b_batch[axis];
        at.c += i * gemm.c_batch[axis];
    }
    return at;
}

struct TileAt {
    std::uint32_t batch, row, column;  // row and column in tiles
};

// Tiles in bands of `band` rows of tiles: neighbours in time share rows of a and columns of b in the L2 cache.
AICORE_HOST_DEVICE TileAt tile_at(std::uint32_t block, std::uint32_t tile_rows, std::uint32_t tile_columns,
                                  std::uint32_t band) {
    const std::uint32_t tiles = tile_rows * tile_columns;
    const std::uint32_t within = block % tiles, in_band = band * tile_columns;
    const std::uint32_t first = within / in_band * band, rest = within % in_band;
    const std::uint32_t height = tile_rows - first < band ? tile_rows - first : band;
    return {block / tiles, first + rest % height, rest / height};
}

struct InnerRange {
    std::uint32_t begin, end;
};

// The part of the inner axis that split number `split` sums: whole steps, as even as can be; the last may be empty.
AICORE_HOST_DEVICE InnerRange split_range(std::uint32_t inner, std::uint32_t splits, std::uint32_t split,
                                          std::uint32_t step) {
    if (splits == 1) return {0, inner};
    const std::uint32_t steps = (inner + step - 1) / step;
    const std::uint32_t each = (steps + splits - 1) / splits * step;
    const std::uint32_t begin = split * each < inner ? split * each : inner;
    return {begin, begin + each < inner ? begin + each : inner};
}

}  // namespace aicore
