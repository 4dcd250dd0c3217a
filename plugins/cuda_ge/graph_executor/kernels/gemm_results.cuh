// The end of gemm_tile.cuh: sums of threads, slices and blocks become results.
#pragma once

#include "../cnn/epilogue.cuh"
#include "gemm.cuh"
#include "scalars.cuh"

namespace aicore {

// Four neighbouring elements of y, of which `count` exist, from sums of the product.
template <class T>
__device__ __forceinline__ void store_four(const Gemm &gemm, const T *c, T *y, float4 sums, bool wide, int count) {
    float product[4] = {sums.x, sums.y, sums.z, sums.w};
    if (!gemm.partial) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            product[j] *= gemm.tail.alpha;
            if (c != nullptr && j < count)
                product[j] = fmaf(gemm.tail.beta, widen(c[j * gemm.tail.c_column]), product[j]);
        }
        sums = cnn::activated(gemm.tail.activation, make_float4(product[0], product[1], product[2], product[3]));
    }
    const float result[4] = {sums.x, sums.y, sums.z, sums.w};
    if constexpr (sizeof(T) == 4) {
        if (wide) {
            *reinterpret_cast<float4 *>(y) = make_float4(result[0], result[1], result[2], result[3]);
            return;
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (j < count) y[j * gemm.y_column] = narrow<T>(result[j]);
}

// What a block needs to know beside its sums.
struct TilePlace {
    std::int64_t row, column;  // of the tile
    int slice;
    int warp_row, warp_column, lane_row, lane_column;
    int share, shares;  // this block, and how many are in its cluster
};

// Of a block that has whole sums: eight threads side by side write 128 bytes of a row.
template <class T, class TILE>
__device__ __forceinline__ void store_own_sums(const Gemm &gemm, const TilePlace &at, const T *c, T *y,
                                               const float (&sums)[TILE::kThreadRows][TILE::kThreadColumns]) {
    const std::int64_t first_row = at.row + at.warp_row * TILE::kWarpHeight + at.lane_row * 4;
    const std::int64_t first_column = at.column + at.warp_column * TILE::kWarpWidth + at.lane_column * 4;
#pragma unroll
    for (int i = 0; i < TILE::kThreadRows; i++) {
        const std::int64_t row = first_row + i / 4 * TILE::kLaneRows * 4 + i % 4;
        if (row >= gemm.rows) continue;
#pragma unroll
        for (int j = 0; j < TILE::kThreadColumns; j += 4) {
            const std::int64_t column = first_column + j * TILE::kLaneColumns;
            if (column >= gemm.columns) continue;
            const std::int64_t exist = gemm.columns - column;
            store_four(gemm, c == nullptr ? nullptr : c + row * gemm.tail.c_row + column * gemm.tail.c_column,
                       y + row * gemm.y_row + column * gemm.y_column,
                       make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]), gemm.wide_y != 0,
                       exist < 4 ? static_cast<int>(exist) : 4);
        }
    }
}

// In passes over a part of the rows, so that sums of all slices fit what held the stages.
template <class T, class TILE>
__device__ __forceinline__ void store_results(const Gemm &gemm, const TilePlace &at, float *shared, const T *c, T *y,
                                              const float (&sums)[TILE::kThreadRows][TILE::kThreadColumns]) {
    using namespace cnn;
    if constexpr (TILE::kSlices == 1) {
        if (at.shares == 1) return store_own_sums<T, TILE>(gemm, at, c, y, sums);
    }
    constexpr int kFours = TILE::kColumns / 4, kFoursOfPass = TILE::kPassRows * kFours;
    const auto sum_of_slices = [&](int four) {
        float4 sum = as_four(shared + 4 * four);
#pragma unroll
        for (int other = 1; other < TILE::kSlices; other++)
            sum = sum_of(sum, as_four(shared + other * TILE::kPassFloats + 4 * four));
        return sum;
    };
#pragma unroll 1
    for (int pass = 0; pass < TILE::kPasses; pass++) {
#pragma unroll
        for (int q = 0; q < TILE::kPasses; q++) {
            if (q != pass) continue;  // so that the indices of sums are constants
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < TILE::kThreadColumns; j += 4) {
                    const float *four = &sums[q * 4 + i][j];
                    const int row = (at.warp_row * TILE::kLaneRows + at.lane_row) * 4 + i;
                    const int column = at.warp_column * TILE::kWarpWidth + (at.lane_column + j / 4 * TILE::kLaneColumns) * 4;
                    as_four(shared + at.slice * TILE::kPassFloats + row * TILE::kColumns + column) =
                        make_float4(four[0], four[1], four[2], four[3]);
                }
        }
        __syncthreads();
        if (at.shares > 1) {
            for (int i = threadIdx.x; TILE::kSlices > 1 && i < kFoursOfPass; i += TILE::kThreads)
                as_four(shared + 4 * i) = sum_of_slices(i);
            sync_cluster();
        }
#pragma unroll 1
        for (int i = at.share * TILE::kThreads + threadIdx.x; i < kFoursOfPass; i += at.shares * TILE::kThreads) {
            constexpr int kBandRows = TILE::kLaneRows * 4;
            const int pass_row = i / kFours;
            const std::int64_t row =
                at.row + pass_row / kBandRows * TILE::kWarpHeight + pass * kBandRows + pass_row % kBandRows;
            const std::int64_t column = at.column + i % kFours * 4;
            if (row >= gemm.rows || column >= gemm.columns) continue;
            float4 total = at.shares == 1 ? sum_of_slices(i) : read_of_block(shared + 4 * i, 0);
            for (int other = 1; other < at.shares; other++) total = sum_of(total, read_of_block(shared + 4 * i, other));
            const std::int64_t exist = gemm.columns - column;
            store_four(gemm, c == nullptr ? nullptr : c + row * gemm.tail.c_row + column * gemm.tail.c_column,
                       y + row * gemm.y_row + column * gemm.y_column, total, gemm.wide_y != 0,
                       exist < 4 ? static_cast<int>(exist) : 4);
        }
        if (at.shares > 1)
            sync_cluster();  // nobody overwrites, or leaves, what another still reads
        else
            __syncthreads();
    }
}

}  // namespace aicore
