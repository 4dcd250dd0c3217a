// The fast matrix product: a block computes a tile of y, step by step along the inner axis, from shared memory.
//
// 1. gemm_loads.cuh brings kStages steps of a and b into shared memory ahead of use, both as [inner][row or column].
// 2. A thread multiplies a column of kThreadRows numbers by a row of kThreadColumns, in groups of 4 that it reads 16
//    bytes at a time, one inner index ahead of the arithmetic. One barrier a step.
// 3. The tail (bias, activation) is applied and results are stored: gemm_results.cuh.
// Where tiles are few, the inner axis is cut twice. Slices are groups of warps of a block, each of which takes a part of
// every step. Splits are blocks: those of one tile form a cluster and add each other's sums, in a fixed order, by reading
// each other's shared memory; before compute capability 9 they write partial sums for gemm_reduce.cu.
#pragma once

#include <type_traits>

#include "../ge/kernel.cuh"
#include "gemm.cuh"
#include "gemm_loads.cuh"
#include "gemm_results.cuh"

namespace aicore {

template <int WARP_ROWS, int WARP_COLUMNS, int THREAD_ROWS, int THREAD_COLUMNS, int STEP, int STAGES, int BLOCKS,
          int SLICES = 1>
struct Tile {
    static constexpr int kLaneRows = 4, kLaneColumns = 8;                     // how the lanes of a warp lie
    static constexpr int kWarpRows = WARP_ROWS, kWarpColumns = WARP_COLUMNS;  // how the warps of a slice lie
    static constexpr int kThreadRows = THREAD_ROWS, kThreadColumns = THREAD_COLUMNS;
    static constexpr int kWarpHeight = kLaneRows * THREAD_ROWS, kWarpWidth = kLaneColumns * THREAD_COLUMNS;
    static constexpr int kRows = WARP_ROWS * kWarpHeight, kColumns = WARP_COLUMNS * kWarpWidth;
    static constexpr int kSlices = SLICES, kThreads = WARP_ROWS * WARP_COLUMNS * 32 * SLICES;
    static constexpr int kStep = STEP, kStages = STAGES, kSliceStep = STEP / SLICES;
    static constexpr int kBlocks = BLOCKS;                                  // of an SM, that registers should allow
    static constexpr int kPitchA = kRows + 4, kPitchB = kColumns + 4;       // 4 more spread transposed writes over banks
    static constexpr int kStageA = STEP * kPitchA, kStageB = STEP * kPitchB;  // floats
    static constexpr int kPasses = THREAD_ROWS / 4;                         // of the tail, each over a part of the rows
    static constexpr int kPassRows = kRows / kPasses, kPassFloats = kPassRows * kColumns;
    static constexpr int kLoadFloats = STAGES * (kStageA + kStageB), kSumFloats = SLICES * kPassFloats;
    static constexpr int kSharedBytes = 4 * (kLoadFloats > kSumFloats ? kLoadFloats : kSumFloats);
    static constexpr int kBand = 8;  // rows of tiles that follow each other; see tile_at

    static_assert(THREAD_ROWS % 4 == 0 && THREAD_COLUMNS % 4 == 0 && kSliceStep * SLICES == STEP && kSliceStep % 2 == 0);
    static_assert(kThreads % STEP == 0 && kThreads % kRows == 0 && kThreads % kColumns == 0);
};

template <class T, class TILE, Along ALONG_A, Along ALONG_B>
__global__ void __launch_bounds__(TILE::kThreads, TILE::kBlocks)
    gemm_tile(const T *a, const T *b, const T *c, T *y, const Gemm gemm, bool clustered) {
    extern __shared__ __align__(16) float shared[];
    using namespace cnn;
    constexpr int kStages = TILE::kStages, kStep = TILE::kStep, kSliceStep = TILE::kSliceStep;
    constexpr int kThreadRows = TILE::kThreadRows, kThreadColumns = TILE::kThreadColumns;
    float *shared_a = shared;
    float *shared_b = shared + kStages * TILE::kStageA;

    const std::uint32_t rows = static_cast<std::uint32_t>(gemm.rows), columns = static_cast<std::uint32_t>(gemm.columns);
    const std::uint32_t tile_rows = (rows + TILE::kRows - 1) / TILE::kRows;
    const std::uint32_t tile_columns = (columns + TILE::kColumns - 1) / TILE::kColumns;
    const TileAt at = tile_at(blockIdx.x, tile_rows, tile_columns, TILE::kBand);
    const BatchOffsets offsets = batch_offsets(gemm, at.batch);
    const std::int64_t row = static_cast<std::int64_t>(at.row) * TILE::kRows;
    const std::int64_t column = static_cast<std::int64_t>(at.column) * TILE::kColumns;
    const InnerRange range = split_range(static_cast<std::uint32_t>(gemm.inner),
                                         static_cast<std::uint32_t>(gemm.splits), blockIdx.y, kStep);
    const int length = static_cast<int>(range.end - range.begin);
    const int steps = (length + kStep - 1) / kStep;

    typename LoadsOf<T, TILE::kRows, kStep, TILE::kThreads, ALONG_A>::Type loads_a(
        a + offsets.a + row * gemm.a_row + range.begin * gemm.a_inner, gemm.a_row, gemm.a_inner, gemm.rows - row);
    typename LoadsOf<T, TILE::kColumns, kStep, TILE::kThreads, ALONG_B>::Type loads_b(
        b + offsets.b + column * gemm.b_column + range.begin * gemm.b_inner, gemm.b_column, gemm.b_inner,
        gemm.columns - column);
    auto load_a = [&](int step, int stage) {
        loads_a.load(shared_a + stage * TILE::kStageA, step, length - step * kStep);
    };
    auto load_b = [&](int step, int stage) {
        loads_b.load(shared_b + stage * TILE::kStageB, step, length - step * kStep);
    };

    if (!gemm.b_constant) wait_for_previous();
#pragma unroll
    for (int s = 0; s < kStages - 1; s++) {
        if (s >= steps) continue;
        load_b(s, s);
        loads_b.store(shared_b + s * TILE::kStageB);
    }
    if (gemm.b_constant) wait_for_previous();
    let_next_begin();
#pragma unroll
    for (int s = 0; s < kStages - 1; s++) {
        if (s < steps) {
            load_a(s, s);
            loads_a.store(shared_a + s * TILE::kStageA);
        }
        commit_copies();
    }

    constexpr int kSliceWarps = TILE::kWarpRows * TILE::kWarpColumns;
    const int lane = threadIdx.x % 32, slice = threadIdx.x / 32 / kSliceWarps, warp = threadIdx.x / 32 % kSliceWarps;
    const int lane_row = lane / TILE::kLaneColumns, lane_column = lane % TILE::kLaneColumns;
    const int warp_row = warp / TILE::kWarpColumns, warp_column = warp % TILE::kWarpColumns;
    const int offset_a = slice * kSliceStep * TILE::kPitchA + warp_row * TILE::kWarpHeight + lane_row * 4;
    const int offset_b = slice * kSliceStep * TILE::kPitchB + warp_column * TILE::kWarpWidth + lane_column * 4;

    float sums[kThreadRows][kThreadColumns] = {};
    float4 fragment_a[2][kThreadRows / 4], fragment_b[2][kThreadColumns / 4];
    const float *from_a = shared_a + offset_a, *from_b = shared_b + offset_b;
    auto read_fragments = [&](int inner, int buffer) {
#pragma unroll
        for (int q = 0; q < kThreadRows / 4; q++)
            fragment_a[buffer][q] = as_four(from_a + inner * TILE::kPitchA + q * TILE::kLaneRows * 4);
#pragma unroll
        for (int q = 0; q < kThreadColumns / 4; q++)
            fragment_b[buffer][q] = as_four(from_b + inner * TILE::kPitchB + q * TILE::kLaneColumns * 4);
    };

    wait_for_copies<kStages - 2>();
    __syncthreads();
    if (steps > 0) read_fragments(0, 0);
    int reading = 0, writing = kStages - 1;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const bool more = step + kStages - 1 < steps;
#pragma unroll
        for (int inner = 0; inner < kSliceStep; inner++) {
            if (inner == kSliceStep - 1) {  // the next fragments come from the next stage: see that it is there
                if (more) {
                    loads_a.store(shared_a + writing * TILE::kStageA);
                    loads_b.store(shared_b + writing * TILE::kStageB);
                }
                writing = writing + 1 == kStages ? 0 : writing + 1;
                wait_for_copies<kStages - 2>();
                __syncthreads();
                reading = reading + 1 == kStages ? 0 : reading + 1;
                from_a = shared_a + reading * TILE::kStageA + offset_a;
                from_b = shared_b + reading * TILE::kStageB + offset_b;
            }
            read_fragments((inner + 1) % kSliceStep, (inner + 1) % 2);
            if (inner == 0) {  // into the stage that all threads finished before the latest barrier
                if (more) {
                    load_a(step + kStages - 1, writing);
                    load_b(step + kStages - 1, writing);
                }
                commit_copies();
            }
            const float *left = reinterpret_cast<const float *>(fragment_a[inner % 2]);
            const float *right = reinterpret_cast<const float *>(fragment_b[inner % 2]);
#pragma unroll
            for (int i = 0; i < kThreadRows; i++)
#pragma unroll
                for (int j = 0; j < kThreadColumns; j++) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
    }

    wait_for_copies<0>();
    __syncthreads();
    TilePlace place = {row, column, slice, warp_row, warp_column, lane_row, lane_column, 0, 1};
    if (clustered) {
        place.share = static_cast<int>(blockIdx.y);  // a cluster holds all splits of its tile
        place.shares = static_cast<int>(gridDim.y);
    }
    const std::int64_t part = gemm.partial ? (blockIdx.y * gemm.batch + at.batch) : at.batch;
    store_results<T, TILE>(gemm, place, shared, c == nullptr || gemm.partial ? nullptr : c + offsets.c,
                           y + part * gemm.rows * gemm.columns, sums);
}

// Launches over all tiles and splits; splits become a cluster where partial sums are not asked for.
template <class T, class TILE, Along ALONG_A, Along ALONG_B>
int launch_gemm_tile(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    const auto kernel = gemm_tile<T, TILE, ALONG_A, ALONG_B>;
    const cudaError_t error = cnn::allow_shared(kernel, TILE::kSharedBytes);
    if (error != cudaSuccess) return error;
    const bool clustered = gemm.splits > 1 && !gemm.partial;
    const std::int64_t tiles = (gemm.rows + TILE::kRows - 1) / TILE::kRows *
                               ((gemm.columns + TILE::kColumns - 1) / TILE::kColumns);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(tiles * gemm.batch), static_cast<unsigned>(gemm.splits), 1);
    config.blockDim = dim3(TILE::kThreads, 1, 1);
    config.dynamicSmemBytes = TILE::kSharedBytes;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = 1;
    attributes[1].val.clusterDim.y = static_cast<unsigned>(gemm.splits);
    attributes[1].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = clustered ? 2 : 1;
    const GemmPointers<T> on(pointers, gemm);
    T *y = on.y;
    if constexpr (std::is_same<T, float>::value) {
        if (gemm.partial) y = on.workspace;
    } else if (gemm.partial) {
        return cudaErrorInvalidValue;  // partial sums are float32
    }
    return cudaLaunchKernelEx(&config, kernel, on.a, on.b, on.c, y, gemm, clustered);
}

// For what bind saw to be aligned; see Product.reads in aicore_cuda_ge/kernels/_product.py.
template <class TILE>
int launch_gemm_float(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    if (gemm.rows == 0 || gemm.columns == 0 || gemm.batch == 0) return cudaSuccess;
    switch (gemm.wide) {
        case 1: return launch_gemm_tile<float, TILE, Along::kInner, Along::kOuter>(pointers, gemm, stream);
        case 2: return launch_gemm_tile<float, TILE, Along::kInner, Along::kInner>(pointers, gemm, stream);
        case 3: return launch_gemm_tile<float, TILE, Along::kOuter, Along::kOuter>(pointers, gemm, stream);
        default: return launch_gemm_tile<float, TILE, Along::kNone, Along::kNone>(pointers, gemm, stream);
    }
}

}  // namespace aicore
