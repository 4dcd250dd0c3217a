// Which tile of the result a block computes, and how it finishes the tile: sums go to shared memory as they are, and a
// short loop takes them from there to results, whichever way the threads held them. Blocks that share the depth of a
// tile are a cluster and read each other's sums (sm_90), or add them up in global memory for another kernel to finish.
#pragma once

#include "epilogue_kernels.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#include <cooperative_groups.h>
#define INT8_CLUSTERS 1
#else
#define INT8_CLUSTERS 0
#endif

namespace int8_quant {

// Words between rows of sums: rows next to each other lie eight banks apart.
__host__ __device__ constexpr int pitch_of(int columns) { return columns + 8; }

__host__ __device__ constexpr int larger(int a, int b) { return a > b ? a : b; }

// Bytes of shared memory: stages of the operands, then in their place the sums; behind both, what columns have.
__host__ __device__ constexpr int tile_bytes(int rows, int columns, int stage_bytes) {
    return larger(rows * pitch_of(columns) * 4, stage_bytes) + columns * int(sizeof(Column));
}

struct Place {
    int row, column, group;
};

// Blocks that run at a time share rows and columns: eight tiles down, then the next column.
template <int kRows, int kColumns>
__device__ __forceinline__ Place place_of(const Sizes &s, int number) {
    const int down = int((s.rows + kRows - 1) / kRows), across = int((s.columns + kColumns - 1) / kColumns);
    constexpr int kBand = 8;
    const int band = number / (kBand * across), first = band * kBand;
    const int height = down - first < kBand ? down - first : kBand;
    const int rest = number - first * across;
    return {(first + rest % height) * kRows, rest / height * kColumns, int(blockIdx.y)};
}

// The share of the depth of one of the blocks of a tile, in stages.
struct Share {
    int first, count;
};

__device__ __forceinline__ Share share_of(const Sizes &s, int stage_depth) {
    const int stages = int((s.depth + stage_depth - 1) / stage_depth), splits = int(gridDim.z);
    const int each = (stages + splits - 1) / splits, first = int(blockIdx.z) * each;
    const int left = stages - first;
    return {first, left < 0 ? 0 : left < each ? left : each};
}

// The sums of one place in all blocks of the cluster.
__device__ __forceinline__ int4 joined(int *tile, int at, int blocks) {
    int4 sum = *reinterpret_cast<const int4 *>(tile + at);
#if INT8_CLUSTERS
    if (blocks == 1) return sum;
    namespace cg = cooperative_groups;
    const int self = int(cg::this_cluster().block_rank());
    for (int other = 0; other < blocks; other++) {
        if (other == self) continue;
        const int4 more = *reinterpret_cast<const int4 *>(cg::this_cluster().map_shared_rank(tile, other) + at);
        sum = make_int4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
#endif
    return sum;
}

__device__ __forceinline__ void wait_for_cluster(int blocks) {
#if INT8_CLUSTERS
    if (blocks > 1) {
        cooperative_groups::this_cluster().sync();
        return;
    }
#endif
    __syncthreads();
}

// Four results of neighbouring columns; only `count` of them are there.
__device__ __forceinline__ void store_four(const Gemm &g, const Target &t, const Column *columns, const int *sums,
                                           const Place &p, int row, int column, int count, bool wide) {
    const Sizes &s = g.s;
    const Epilogue &e = g.e;
    const std::int64_t at = result_at(s, p.group, row, column);
    const unsigned row_sum = e.row_sums == nullptr ? 0u : unsigned(e.row_sums[p.group * s.rows + row]);
    std::uint32_t codes = 0;
    for (int i = 0; i < 4; i++) {
        if (i >= count) break;
        const std::int64_t parameter = p.group * s.column_group + column + i;
        unsigned sum = unsigned(sums[i]) + unsigned(columns[i].base);
        if (e.row_sums != nullptr) sum -= unsigned(weight_point(e, parameter)) * row_sum;
        const std::int64_t place = at + i * s.y_column, added = e.p.addend_full ? place : parameter;
        if (!wide) {
            store_result(e, t, wrapped(sum), columns[i].scale, place, added);
            continue;
        }
        const float real = real_of(e, t, wrapped(sum), columns[i].scale, added);
        codes |= (std::uint32_t(code_of(real, t)) & 255u) << (8 * i);
    }
    if (wide) *reinterpret_cast<std::uint32_t *>(static_cast<std::int8_t *>(e.out) + at) = codes;
}

// Finishes the tile whose sums lie in shared memory, with `pitch_of(kColumns)` words to a row.
template <int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void finish_tile(const Gemm &g, const Place &p, int *tile, Column *columns, int thread) {
    const Sizes &s = g.s;
    constexpr int kPitch = pitch_of(kColumns);
    if (g.partial != nullptr) {
        __syncthreads();
        for (int i = thread; i < kRows * kColumns; i += kThreads) {
            const int row = p.row + i / kColumns, column = p.column + i % kColumns;
            if (row >= s.rows || column >= s.columns) continue;
            std::int32_t *to = g.partial + (p.group * s.rows + row) * s.columns + column;
            atomicAdd(to, tile[i / kColumns * kPitch + i % kColumns]);
        }
        return;
    }
    for (int i = thread; i < kColumns; i += kThreads) {
        const std::int64_t column = p.column + i < s.columns ? p.column + i : s.columns - 1;
        columns[i] = column_of(g.e, p.group * s.columns + column, p.group * s.column_group + column);
    }
    const int blocks = int(gridDim.z);
    wait_for_cluster(blocks);
    const Target t = target_of(g.e);
    const bool by_row = s.y_column == 1, bytes = g.e.p.out_type == kInt8 || g.e.p.out_type == kUint8;
    const bool aligned = by_row && bytes && (s.y_row | s.y_group | s.y_image) % 4 == 0;
    const int rows = kRows / blocks, first = int(blockIdx.z) * rows;
    for (int i = thread; i < rows * kColumns / 4; i += kThreads) {
        const int y = first + (by_row ? i / (kColumns / 4) : i % rows);
        const int x = 4 * (by_row ? i % (kColumns / 4) : i / rows);
        const int left = int(s.columns) - (p.column + x);
        if (p.row + y >= s.rows || left <= 0) continue;
        const int4 four = joined(tile, y * kPitch + x, blocks);
        const int sums[4] = {four.x, four.y, four.z, four.w};
        store_four(g, t, columns + x, sums, p, p.row + y, p.column + x, left < 4 ? left : 4, aligned && left >= 4);
    }
    if (blocks > 1) wait_for_cluster(blocks);  // nobody leaves while others read its sums
}

template <class Kernel>
int launch_tiles(Kernel kernel, const Gemm &g, int rows, int columns, int threads, int shared, int split,
                 cudaStream_t stream) {
    const std::int64_t tiles = ((g.s.rows + rows - 1) / rows) * ((g.s.columns + columns - 1) / columns);
    if (tiles == 0 || g.s.groups == 0) return cudaSuccess;  // no elements, no launch
    cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (status != cudaSuccess) return status;
    if (g.partial != nullptr) {
        const std::size_t bytes = 4 * g.s.groups * g.s.rows * g.s.columns;
        status = cudaMemsetAsync(g.partial, 0, bytes, stream);
        if (status != cudaSuccess) return status;
    }
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(g.s.groups), static_cast<unsigned>(split));
    return launch(kernel, grid, threads, shared, stream, g.partial == nullptr ? split : 1, g);
}

}  // namespace int8_quant
