// The gradient of a convolution's weights from channels-last images, in float32: a matrix product whose right factor is
// never stored.
//
// dw[map][tap, channel] = sum over output pixels of dy[pixel][map] * x[pixel under the tap][channel]
//
// Rows are the maps of a group, columns its depth = taps * channels, and the sum runs over the output pixels of all
// images. Both factors come as [pixel][row or column] with neighbours side by side, which is how they lie in memory: a
// thread keeps its columns, so that tap and channel never change, and walks over pixels. Where a tap lies outside of
// the image, zeros are copied. Stages of kStep pixels are copied ahead of the arithmetic, one barrier a stage.
//
// Weights are few and pixels many, so pixels are cut into splits. Each leaves its sums in the workspace,
// [split][group][map][depth], and a second launch adds them up, in order, and turns them to [map][channel][tap].
#pragma once

#include "../ge/kernel.cuh"
#include "block.cuh"
#include "epilogue.cuh"
#include "geometry.cuh"

namespace aicore {

struct WeightGradientParams {
    cnn::ConvParams conv;  // of the convolution itself; x and y with their channels last
    std::int64_t tile;     // in kWeightGradientTiles of weight_gradient.cu
    std::int64_t splits;
    // Which pointers, and bytes behind them: images, gradients of results, partial sums.
    std::int64_t x_at, x_byte, dy_at, dy_byte, partial_at, partial_byte;
};

struct WeightGradient : cnn::ConvGeometry {
    const float *x, *dy;
    float *partial;
    int groups, row_tiles, column_tiles, splits;
    int out_height, step_lines, step_columns;  // the pixels of a stage as whole lines, and what is left of them

    // Pixels that one split sums: whole steps of all of them.
    AICORE_HOST_DEVICE int first_pixel(int split, int step) const {
        const std::int64_t steps = (rows + step - 1) / step;
        const std::int64_t first = steps * split / splits * step;
        return static_cast<int>(first < rows ? first : rows);
    }
};

// For tiles of so many rows, columns and, in a stage, pixels.
inline WeightGradient weight_gradient(void *const *pointers, const WeightGradientParams &params, int rows, int columns,
                                      int step) {
    const auto place = [&](std::int64_t at, std::int64_t byte) {
        return reinterpret_cast<float *>(static_cast<char *>(pointers[at]) + byte);
    };
    WeightGradient p = {};
    p.set_geometry(params.conv);
    p.x = place(params.x_at, params.x_byte), p.dy = place(params.dy_at, params.dy_byte);
    p.partial = place(params.partial_at, params.partial_byte);
    p.groups = static_cast<int>(params.conv.groups), p.splits = static_cast<int>(params.splits);
    p.row_tiles = (p.maps + rows - 1) / rows, p.column_tiles = (p.depth + columns - 1) / columns;
    p.out_height = p.out_pixels / p.out_width;
    p.step_lines = step / p.out_width, p.step_columns = step - p.step_lines * p.out_width;
    return p;
}

// WARP_ROWS x WARP_COLUMNS warps of 4 x 8 lanes, THREAD_ROWS x THREAD_COLUMNS sums a thread; floats in one copy of dy
// and of x; blocks of a multiprocessor that registers should allow.
template <int WARP_ROWS, int WARP_COLUMNS, int THREAD_ROWS, int THREAD_COLUMNS, int DY_VECTOR, int X_VECTOR, int BLOCKS>
struct WeightGradientTile {
    static constexpr int kStep = 16, kStages = 3, kBlocks = BLOCKS;
    static constexpr int kWarpColumns = WARP_COLUMNS, kThreadRows = THREAD_ROWS, kThreadColumns = THREAD_COLUMNS;
    static constexpr int kWarpHeight = 4 * THREAD_ROWS, kWarpWidth = 8 * THREAD_COLUMNS;
    static constexpr int kRows = WARP_ROWS * kWarpHeight, kColumns = WARP_COLUMNS * kWarpWidth;
    static constexpr int kThreads = 32 * WARP_ROWS * WARP_COLUMNS;
    static constexpr int kStage = kStep * (kRows + kColumns), kSharedBytes = 4 * kStages * kStage;
    // dy: a thread copies the same columns of every kDyStep-th pixel.
    static constexpr int kDyVector = DY_VECTOR, kDyAcross = kRows / DY_VECTOR, kDyStep = kThreads / kDyAcross;
    static constexpr int kDyCopies = kStep / kDyStep;
    // x: a thread copies every kXStep-th column of one pixel.
    static constexpr int kXVector = X_VECTOR, kXAcross = kThreads / kStep, kXStep = kXAcross * X_VECTOR;
    static constexpr int kXCopies = kColumns / kXStep;
    static_assert(THREAD_ROWS % 4 == 0 && THREAD_COLUMNS % 4 == 0 && kThreads % kStep == 0);
    static_assert(kDyCopies * kDyStep == kStep && kDyStep * kDyAcross == kThreads && kXCopies * kXStep == kColumns);
};

#if defined(__CUDACC__)

// The output pixel that a thread copies for: moved on by the same number each time, without a division.
struct PixelCursor {
    int pixel, line, column, image;

    __device__ __forceinline__ void start(const WeightGradient &p, int first) {
        pixel = first;
        image = first / p.out_pixels;
        const int at = first - image * p.out_pixels;
        line = at / p.out_width;
        column = at - line * p.out_width;
    }

    // lines, columns: the number of pixels as whole lines and what is left of them.
    __device__ __forceinline__ void advance(const WeightGradient &p, int lines, int columns, int height) {
        pixel += lines * p.out_width + columns;
        column += columns;
        line += lines;
        if (column >= p.out_width) {
            column -= p.out_width;
            line++;
        }
        while (line >= height) {
            line -= height;
            image++;
        }
    }
};

template <class TILE>
__global__ void __launch_bounds__(TILE::kThreads, TILE::kBlocks) weight_gradient_tile(const WeightGradient p) {
    using namespace cnn;
    extern __shared__ __align__(16) float shared[];
    constexpr int kStep = TILE::kStep, kStages = TILE::kStages, kRows = TILE::kRows, kColumns = TILE::kColumns;
    constexpr int kThreadRows = TILE::kThreadRows, kThreadColumns = TILE::kThreadColumns;
    const int thread = threadIdx.x, tiles = p.row_tiles * p.column_tiles;
    const int group = blockIdx.x / tiles, tile = blockIdx.x - group * tiles;
    const int first_map = tile % p.row_tiles * kRows, first_column = tile / p.row_tiles * kColumns;
    const int split = blockIdx.y, first = p.first_pixel(split, kStep), end = p.first_pixel(split + 1, kStep);
    const int stages = (end - first + kStep - 1) / kStep;

    const int dy_column = thread % TILE::kDyAcross * TILE::kDyVector, dy_row = thread / TILE::kDyAcross;
    const bool dy_exists = first_map + dy_column < p.maps;
    int dy_pixel = first + dy_row, dy_offset = dy_pixel * p.y_pixel + group * p.maps + first_map + dy_column;
    const auto copy_dy = [&](float *stage) {
#pragma unroll
        for (int i = 0; i < TILE::kDyCopies; i++) {
            const bool take = dy_exists && dy_pixel + i * TILE::kDyStep < end;
            copy_floats<TILE::kDyVector>(stage + (dy_row + i * TILE::kDyStep) * kRows + dy_column,
                                         p.dy + (take ? dy_offset + i * TILE::kDyStep * p.y_pixel : 0), take);
        }
        dy_pixel += kStep;
        dy_offset += kStep * p.y_pixel;
    };

    const int x_column = thread % TILE::kXAcross * TILE::kXVector, x_row = thread / TILE::kXAcross;
    // Of each column: how far down and right its tap lies, in halves of a word, and its element from that of the first
    // tap's first channel; below 0 there is no such column.
    int tap_at[TILE::kXCopies], offset[TILE::kXCopies];
#pragma unroll
    for (int i = 0; i < TILE::kXCopies; i++) {
        const int column = first_column + x_column + i * TILE::kXStep;
        const int tap = column / p.channels, row = tap / p.kernel_width;
        const int down = row * p.dilation_height, right = (tap - row * p.kernel_width) * p.dilation_width;
        const int element = (down * p.width + right) * p.pixel + group * p.channels + column - tap * p.channels;
        tap_at[i] = down << 16 | right;
        offset[i] = column < p.depth ? element : -1;
    }
    PixelCursor at;
    at.start(p, first + x_row);
    const auto copy_x = [&](float *stage) {
        const int top = at.line * p.stride_height - p.begin_height, left = at.column * p.stride_width - p.begin_width;
        const int origin = ((at.image * p.height + top) * p.width + left) * p.pixel;
        const bool exists = at.pixel < end;
#pragma unroll
        for (int i = 0; i < TILE::kXCopies; i++) {
            const bool inside = exists && offset[i] >= 0 &&
                                static_cast<unsigned>(top + (tap_at[i] >> 16)) < static_cast<unsigned>(p.height) &&
                                static_cast<unsigned>(left + (tap_at[i] & 0xffff)) < static_cast<unsigned>(p.width);
            copy_floats<TILE::kXVector>(stage + kStep * kRows + x_row * kColumns + x_column + i * TILE::kXStep,
                                        p.x + (inside ? origin + offset[i] : 0), inside);
        }
        at.advance(p, p.step_lines, p.step_columns, p.out_height);
    };

    let_next_begin();
    wait_for_previous();
#pragma unroll
    for (int s = 0; s < kStages - 1; s++) {
        if (s < stages) {
            copy_dy(shared + s * TILE::kStage);
            copy_x(shared + s * TILE::kStage);
        }
        commit_copies();
    }

    const int lane = thread % 32, warp = thread / 32;
    const int row = warp / TILE::kWarpColumns * TILE::kWarpHeight + lane / 8 * 4;
    const int column = warp % TILE::kWarpColumns * TILE::kWarpWidth + lane % 8 * 4;
    float sums[kThreadRows][kThreadColumns] = {};
    int read_slot = 0, write_slot = kStages - 1;
#pragma unroll 1
    for (int stage = 0; stage < stages; stage++) {
        wait_for_copies<kStages - 2>();
        sync_block();  // the stage is there for all, and all have done with the one that is overwritten next
        const float *from = shared + read_slot * TILE::kStage;
#pragma unroll
        for (int k = 0; k < kStep; k++) {
            float left[kThreadRows], right_of[kThreadColumns];
#pragma unroll
            for (int q = 0; q < kThreadRows; q += 4) {
                const float4 four = as_four(from + k * kRows + row + 4 * q);
                left[q] = four.x, left[q + 1] = four.y, left[q + 2] = four.z, left[q + 3] = four.w;
            }
#pragma unroll
            for (int q = 0; q < kThreadColumns; q += 4) {
                const float4 four = as_four(from + kStep * kRows + k * kColumns + column + 8 * q);
                right_of[q] = four.x, right_of[q + 1] = four.y, right_of[q + 2] = four.z, right_of[q + 3] = four.w;
            }
#pragma unroll
            for (int i = 0; i < kThreadRows; i++)
#pragma unroll
                for (int j = 0; j < kThreadColumns; j++) sums[i][j] = fmaf(left[i], right_of[j], sums[i][j]);
            if (k == 0) {  // by now the pipes are busy, and the copies hide behind them
                if (stage + kStages - 1 < stages) {
                    copy_dy(shared + write_slot * TILE::kStage);
                    copy_x(shared + write_slot * TILE::kStage);
                }
                commit_copies();
                write_slot = write_slot + 1 == kStages ? 0 : write_slot + 1;
            }
        }
        read_slot = read_slot + 1 == kStages ? 0 : read_slot + 1;
    }
    wait_for_copies<0>();

    float *to = p.partial + static_cast<std::int64_t>(split * p.groups + group) * p.maps * p.depth;
#pragma unroll
    for (int i = 0; i < kThreadRows; i++) {
        const int map = first_map + row + i / 4 * 16 + i % 4;
        if (map >= p.maps) continue;
#pragma unroll
        for (int j = 0; j < kThreadColumns; j += 4) {
            const int d = first_column + column + j * 8;
            float *four = to + static_cast<std::int64_t>(map) * p.depth + d;
            if constexpr (TILE::kXVector == 4) {
                if (d < p.depth) as_four(four) = make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (d + e < p.depth) four[e] = sums[i][j + e];
            }
        }
    }
}

#endif

}  // namespace aicore
