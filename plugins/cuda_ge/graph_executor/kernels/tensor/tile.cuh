// A matrix product in tiles on tensor cores: y = a b', where rows of a and of b have their numbers side by side.
//
// 1. A stage holds 128 bytes of each row of the tile's a and b: cp.async brings stages ahead of use, 16 bytes at a time.
// 2. Warps multiply what they read by ldmatrix, one part of a stage ahead of the arithmetic. One barrier a stage.
// 3. Sums go through shared memory to whoever asked for the product, four neighbours of a row at a time.
// Where tiles are few, the inner axis is cut twice, as in cnn/implicit.cuh: into slices, which are groups of warps of the
// block, and into the blocks of a cluster. The order of additions is fixed.
//
// What is multiplied is described by a PROBLEM:
//   Element: float for tf32, __half or __nv_bfloat16; sums are float32.
//   Left<TILE>: copies rows of a; made by Left(p, at, first row, first inner index), copy(stage) goes one stage on.
//   right(batch), right_pitch, columns, inner: rows of b, which are the columns of y, and how long they are.
//   tile_rows, tile_columns: how many there are; right_is_fixed: no kernel writes b while a program runs.
//   store(batch, row, column, sums): takes four sums; some, or all, may be beyond the end.
#pragma once

#include "../../cnn/epilogue.cuh"
#include "../gemm.cuh"
#include "fragments.cuh"

namespace aicore::tensor {

using namespace aicore::cnn;  // copies, barriers and clusters

constexpr int kBand = 8;  // rows of tiles that follow each other; see tile_at

template <int WARP_ROWS, int WARP_COLUMNS, int MMA_ROWS, int MMA_COLUMNS, int SLICES, int STAGES, int BLOCKS>
struct Tile {
    static constexpr int kWarpRows = WARP_ROWS, kWarpColumns = WARP_COLUMNS;  // how the warps of a slice lie
    static constexpr int kMmaRows = MMA_ROWS, kMmaColumns = MMA_COLUMNS;      // 16 x 8 tiles of a warp
    static constexpr int kSlices = SLICES, kStages = STAGES, kBlocks = BLOCKS;
    static constexpr int kRows = WARP_ROWS * MMA_ROWS * 16, kColumns = WARP_COLUMNS * MMA_COLUMNS * 8;
    static constexpr int kThreads = WARP_ROWS * WARP_COLUMNS * SLICES * 32;
    static constexpr int kWords = 32;           // of a row in a stage
    static constexpr int kPitch = kWords + 4;   // so that 8 rows of 16 bytes lie in different banks
    static constexpr int kParts = 4 / SLICES;   // of 32 bytes, for each slice
    static constexpr int kChunks = kWords / 4;  // of 16 bytes, in a row of a stage
    static constexpr int kRowStep = kThreads / kChunks;  // a thread copies the same chunk of every so many rows
    static constexpr int kLeft = kRows * kPitch, kStage = kLeft + kColumns * kPitch;
    static constexpr int kSumPitch = kColumns + 8;  // so that pairs of 8 rows lie in different banks
    static constexpr int kSums = kRows * kSumPitch;
    static constexpr int kSharedWords = STAGES * kStage > SLICES * kSums ? STAGES * kStage : SLICES * kSums;
    static_assert(4 % SLICES == 0 && MMA_COLUMNS % 2 == 0 && STAGES >= 2);
    static_assert(kRows % kRowStep == 0 && kColumns % kRowStep == 0, "each thread copies as many rows");
};

// So many elements of type T are 16 bytes.
template <class T>
constexpr int kChunk = 16 / sizeof(T);

// Copies rows of b, whole 16 bytes at a time.
template <class T, class TILE>
struct RightCopies {
    const T *from;
    std::int64_t step;  // between rows that this thread copies
    int inner, end;
    unsigned exists;  // a bit for each row
    static constexpr int kCopies = TILE::kColumns / TILE::kRowStep;

    template <class Problem>
    __device__ __forceinline__ RightCopies(const Problem &p, std::uint32_t batch, int first_column, int first_inner,
                                           int thread) {
        const int row = thread / TILE::kChunks;
        inner = first_inner + thread % TILE::kChunks * kChunk<T>;
        end = p.inner;
        from = p.right(batch) + static_cast<std::int64_t>(first_column + row) * p.right_pitch + inner;
        step = TILE::kRowStep * static_cast<std::int64_t>(p.right_pitch);
        exists = 0;
#pragma unroll
        for (int i = 0; i < kCopies; i++) exists |= (first_column + row + i * TILE::kRowStep < p.columns ? 1u : 0u) << i;
    }

    __device__ __forceinline__ void copy(float *stage, int thread) {
        float *to = stage + TILE::kLeft + thread / TILE::kChunks * TILE::kPitch + thread % TILE::kChunks * 4;
#pragma unroll
        for (int i = 0; i < kCopies; i++) {
            const bool take = (exists >> i & 1u) != 0 && inner < end;
            copy_floats<4>(to + i * TILE::kRowStep * TILE::kPitch, reinterpret_cast<const float *>(from + i * step), take);
        }
        from += TILE::kChunks * kChunk<T>;
        inner += TILE::kChunks * kChunk<T>;
    }
};

#if defined(__CUDACC__) || defined(AICORE_EMULATED_DEVICE)

template <class TILE, class Problem>
__global__ void __launch_bounds__(TILE::kThreads, TILE::kBlocks) tensor_kernel(const Problem p) {
    using T = typename Problem::Element;
    constexpr int kStages = TILE::kStages, kMmaRows = TILE::kMmaRows, kMmaColumns = TILE::kMmaColumns;
    constexpr int kDepth = TILE::kChunks * kChunk<T>;
    AICORE_SHARED_WORDS(shared);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int slice = warp / (TILE::kWarpRows * TILE::kWarpColumns);
    const int warp_row = warp / TILE::kWarpColumns % TILE::kWarpRows, warp_column = warp % TILE::kWarpColumns;
    const TileAt at = tile_at(blockIdx.x, p.tile_rows, p.tile_columns, kBand);
    const int first_row = at.row * TILE::kRows, first_column = at.column * TILE::kColumns;
    const int rank = blockIdx.z, split = gridDim.z;
    const int all_stages = (p.inner + kDepth - 1) / kDepth;
    const int first_stage = static_cast<int>(static_cast<std::int64_t>(all_stages) * rank / split);
    const int stages = static_cast<int>(static_cast<std::int64_t>(all_stages) * (rank + 1) / split) - first_stage;

    typename Problem::template Left<TILE> left(p, at.batch, first_row, first_stage * kDepth, thread);
    RightCopies<T, TILE> right(p, at.batch, first_column, first_stage * kDepth, thread);

    let_next_begin();
    if (!p.right_is_fixed) wait_for_previous();
#pragma unroll
    for (int s = 0; s < kStages - 1; s++) {
        if (s < stages) right.copy(shared + s * TILE::kStage, thread);
    }
    wait_for_previous();
#pragma unroll
    for (int s = 0; s < kStages - 1; s++) {
        if (s < stages) left.copy(shared + s * TILE::kStage, thread);
        commit_copies();  // the first group holds all of b, too
    }

    float sums[kMmaRows][kMmaColumns][4] = {};
    unsigned of_a[2][kMmaRows][4], of_b[2][kMmaColumns / 2][4];
    const int row_a = warp_row * kMmaRows * 16 + lane % 16, row_b = warp_column * kMmaColumns * 8 + lane % 8 + lane / 16 * 8;
    const int from_a = row_a * TILE::kPitch + lane / 16 * 4 + slice * TILE::kParts * 8;
    const int from_b = TILE::kLeft + row_b * TILE::kPitch + lane / 8 % 2 * 4 + slice * TILE::kParts * 8;
    const auto read = [&](const float *stage, int part, int buffer) {
#pragma unroll
        for (int i = 0; i < kMmaRows; i++) load_matrices(of_a[buffer][i], stage + from_a + i * 16 * TILE::kPitch + part * 8);
#pragma unroll
        for (int j = 0; j < kMmaColumns / 2; j++)
            load_matrices(of_b[buffer][j], stage + from_b + j * 16 * TILE::kPitch + part * 8);
    };
    const auto round = [&](int buffer) {
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int word = 0; word < 4; word++) {
#pragma unroll
                for (int i = 0; i < kMmaRows; i++) of_a[buffer][i][word] = to_tf32(of_a[buffer][i][word]);
#pragma unroll
                for (int j = 0; j < kMmaColumns / 2; j++) of_b[buffer][j][word] = to_tf32(of_b[buffer][j][word]);
            }
        }
    };

    int read_slot = 0, write_slot = kStages - 1;
#pragma unroll 1
    for (int stage = 0; stage < stages; stage++) {
        wait_for_copies<kStages - 2>();
        sync_block();  // the stage is there for all, and all have done with the one that is overwritten next
        const float *from = shared + read_slot * TILE::kStage;
        read(from, 0, 0);
        if (stage + kStages - 1 < stages) {
            right.copy(shared + write_slot * TILE::kStage, thread);
            left.copy(shared + write_slot * TILE::kStage, thread);
        }
        commit_copies();
        write_slot = write_slot + 1 == kStages ? 0 : write_slot + 1;
#pragma unroll
        for (int part = 0; part < TILE::kParts; part++) {
            if (part + 1 < TILE::kParts) read(from, part + 1, (part + 1) % 2);
            round(part % 2);
#pragma unroll
            for (int i = 0; i < kMmaRows; i++) {
#pragma unroll
                for (int j = 0; j < kMmaColumns; j++) {
                    const unsigned(&b)[4] = of_b[part % 2][j / 2];
                    multiply<T>(sums[i][j], of_a[part % 2][i], b[j % 2 * 2], b[j % 2 * 2 + 1]);
                }
            }
        }
        read_slot = read_slot + 1 == kStages ? 0 : read_slot + 1;
    }

    wait_for_copies<0>();
    sync_block();  // the stages are done with: their memory takes the sums, slice by slice
#pragma unroll
    for (int i = 0; i < kMmaRows; i++) {
        const int row = (warp_row * kMmaRows + i) * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < kMmaColumns; j++) {
            const int column = (warp_column * kMmaColumns + j) * 8 + lane % 4 * 2;
            float *to = shared + slice * TILE::kSums + row * TILE::kSumPitch + column;
            *reinterpret_cast<float2 *>(to) = make_float2(sums[i][j][0], sums[i][j][1]);
            *reinterpret_cast<float2 *>(to + 8 * TILE::kSumPitch) = make_float2(sums[i][j][2], sums[i][j][3]);
        }
    }
    sync_block();
    constexpr int kFours = TILE::kColumns / 4, kFoursOfTile = TILE::kRows * kFours;
    const auto place = [](int four) { return four / kFours * TILE::kSumPitch + four % kFours * 4; };
    const auto sum_of_slices = [&](int four) {
        float4 sum = as_four(shared + place(four));
#pragma unroll
        for (int other = 1; other < TILE::kSlices; other++) {
            sum = sum_of(sum, as_four(shared + other * TILE::kSums + place(four)));
        }
        return sum;
    };
    // With others in the cluster: each block adds up a share of the tile, in the order of ranks.
    if (split > 1 && TILE::kSlices > 1) {
        for (int four = thread; four < kFoursOfTile; four += TILE::kThreads) as_four(shared + place(four)) = sum_of_slices(four);
    }
    if (split > 1) sync_cluster();
    const int end = kFoursOfTile * (rank + 1) / split;
    for (int four = kFoursOfTile * rank / split + thread; four < end; four += TILE::kThreads) {
        float4 sum = split == 1 ? sum_of_slices(four) : read_of_block(shared + place(four), 0);
        for (int other = 1; other < split; other++) sum = sum_of(sum, read_of_block(shared + place(four), other));
        p.store(at.batch, first_row + four / kFours, first_column + four % kFours * 4, sum);
    }
    if (split > 1) sync_cluster();  // nobody leaves while others read its shared memory
}

#endif

}  // namespace aicore::tensor
