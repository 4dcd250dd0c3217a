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

// What finishing a tile reads besides its sums: read while the first stage is on its way, not when the last has come.
template <int kColumns>
struct alignas(16) Known {
    Column columns[kColumns];
    Target target;
};

// Bytes of shared memory: stages of the operands, then in their place the sums; behind both, what is Known.
template <int kRows, int kColumns>
__host__ __device__ constexpr int tile_bytes(int stage_bytes) {
    return larger(kRows * pitch_of(kColumns) * 4, stage_bytes) + int(sizeof(Known<kColumns>));
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

// Adds what the other blocks of the cluster have in the same places, `step` words apart.
template <int kCount>
__device__ __forceinline__ void join(int4 (&sums)[kCount], int *from, int step, int count, int blocks) {
#if INT8_CLUSTERS
    namespace cg = cooperative_groups;
    const int self = blocks > 1 ? int(cg::this_cluster().block_rank()) : 0;
    for (int other = 0; other < blocks; other++) {
        if (other == self) continue;
        const int *there = cg::this_cluster().map_shared_rank(from, other);
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            if (i >= count) continue;
            const int4 more = *reinterpret_cast<const int4 *>(there + i * step), sum = sums[i];
            sums[i] = make_int4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
        }
    }
#endif
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

// Fills `known`; a barrier must follow before it is read.
template <int kColumns, int kThreads>
__device__ __forceinline__ void get_known(const Gemm &g, const Place &p, Known<kColumns> *known, int thread) {
    const Sizes &s = g.s;
    if (g.partial != nullptr) return;
    for (int i = thread; i < kColumns; i += kThreads) {
        const std::int64_t column = p.column + i < s.columns ? p.column + i : s.columns - 1;
        known->columns[i] = column_of(g.e, p.group * s.columns + column, p.group * s.column_group + column);
    }
    if (thread == 0) known->target = target_of(g.e);
}

// Whether results are whole words of codes, row by row, by no more than scale, an addend of such codes, clamp and
// rounding: the usual case.
__device__ __forceinline__ bool is_usual(const Gemm &g) {
    const Sizes &s = g.s;
    const EpilogueParams &p = g.e.p;
    const bool bytes = p.out_type == kInt8 || p.out_type == kUint8;
    const bool words = s.y_column == 1 && (s.columns | s.y_row | s.y_group | s.y_image) % 4 == 0;
    const bool adds = g.e.addend != nullptr;
    const bool codes = p.addend_full && (p.addend_type == kInt8 || p.addend_type == kUint8);
    return bytes && words && (!adds || codes) && g.e.row_sums == nullptr && p.activation <= kClip;
}

// Rows `first` and `rows - 1` more of the tile, of all blocks of the cluster. A thread keeps its four columns.
template <int kColumns, int kThreads>
__device__ __forceinline__ void finish_usual(const Gemm &g, const Place &p, int *tile, const Known<kColumns> *known,
                                             int first, int rows, int blocks, int thread) {
    constexpr int kPitch = pitch_of(kColumns), kWide = kColumns / 4, kDown = kThreads / kWide, kTurn = 4;
    static_assert(kThreads % kWide == 0, "a thread stays in its columns");
    const Sizes &s = g.s;
    const int x = thread % kWide * 4;
    if (p.column + x >= s.columns) return;
    const Target t = known->target;
    Column own[4];
    for (int i = 0; i < 4; i++) own[i] = known->columns[x + i];
    auto *out = static_cast<std::int8_t *>(g.e.out);
    const bool adds = g.e.addend != nullptr;
    for (int y = thread / kWide; y < rows; y += kTurn * kDown) {
        const int left = (rows - y + kDown - 1) / kDown;
        int *from = tile + (first + y) * kPitch + x;
        int4 sums[kTurn];
#pragma unroll
        for (int i = 0; i < kTurn; i++)
            if (i < left) sums[i] = *reinterpret_cast<const int4 *>(from + i * kDown * kPitch);
        if (blocks > 1) join(sums, from, kDown * kPitch, left, blocks);
#pragma unroll
        for (int i = 0; i < kTurn; i++) {
            const int row = p.row + first + y + i * kDown;
            if (i >= left || row >= s.rows) continue;
            const int four[4] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
            const std::int64_t at = result_at(s, p.group, row, p.column + x);
            std::uint32_t codes = 0, added = 0;
            if (adds) added = *reinterpret_cast<const std::uint32_t *>(static_cast<const std::int8_t *>(g.e.addend) + at);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int sum = wrapped(unsigned(four[j]) + unsigned(own[j].base));
                float real = __fmul_rn(__int2float_rn(sum), own[j].scale);
                if (adds) {
                    const int byte = int(added >> (8 * j) & 255u);
                    const float code = float(g.e.p.addend_type == kUint8 ? byte : static_cast<std::int8_t>(byte));
                    real = __fadd_rn(real, __fmul_rn(__fadd_rn(code, -t.addend_point), t.addend_scale));
                }
                real = clamp_of(g.e.p, t, real);
                codes |= (std::uint32_t(code_of(real, t)) & 255u) << (8 * j);
            }
            *reinterpret_cast<std::uint32_t *>(out + at) = codes;
        }
    }
}

// The same for every kind of result.
template <int kColumns, int kThreads>
__device__ __forceinline__ void finish_any(const Gemm &g, const Place &p, int *tile, const Known<kColumns> *known,
                                           int first, int rows, int blocks, int thread) {
    const Sizes &s = g.s;
    const Target t = known->target;
    const bool by_row = s.y_column == 1, bytes = g.e.p.out_type == kInt8 || g.e.p.out_type == kUint8;
    const bool aligned = by_row && bytes && (s.y_row | s.y_group | s.y_image) % 4 == 0;
    for (int i = thread; i < rows * kColumns / 4; i += kThreads) {
        const int y = first + (by_row ? i / (kColumns / 4) : i % rows);
        const int x = 4 * (by_row ? i % (kColumns / 4) : i / rows);
        const int left = int(s.columns) - (p.column + x);
        if (p.row + y >= s.rows || left <= 0) continue;
        int *from = tile + y * pitch_of(kColumns) + x;
        int4 four[1] = {*reinterpret_cast<const int4 *>(from)};
        if (blocks > 1) join(four, from, 0, 1, blocks);
        const int sums[4] = {four[0].x, four[0].y, four[0].z, four[0].w};
        const bool wide = aligned && left >= 4;
        store_four(g, t, known->columns + x, sums, p, p.row + y, p.column + x, left < 4 ? left : 4, wide);
    }
}

// Finishes the tile whose sums lie in shared memory, with `pitch_of(kColumns)` words to a row.
template <int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void finish_tile(const Gemm &g, const Place &p, int *tile, const Known<kColumns> *known,
                                            int thread) {
    const Sizes &s = g.s;
    if (g.partial != nullptr) {
        __syncthreads();
        for (int i = thread; i < kRows * kColumns; i += kThreads) {
            const int row = p.row + i / kColumns, column = p.column + i % kColumns;
            if (row >= s.rows || column >= s.columns) continue;
            std::int32_t *to = g.partial + (p.group * s.rows + row) * s.columns + column;
            atomicAdd(to, tile[i / kColumns * pitch_of(kColumns) + i % kColumns]);
        }
        return;
    }
    const int blocks = int(gridDim.z), rows = kRows / blocks, first = int(blockIdx.z) * rows;
    wait_for_cluster(blocks);
    if (is_usual(g)) {
        finish_usual<kColumns, kThreads>(g, p, tile, known, first, rows, blocks, thread);
    } else {
        finish_any<kColumns, kThreads>(g, p, tile, known, first, rows, blocks, thread);
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
