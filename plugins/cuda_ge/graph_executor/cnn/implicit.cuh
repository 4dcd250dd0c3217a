// Convolution of channels-last images as a matrix product whose left factor is never stored, in float32.
//
// Rows are output pixels of all images, columns the maps of a group, and the sum runs over depth = taps * channels.
// A block computes a tile of rows x columns. Stages of a few steps of depth are copied to shared memory while earlier
// ones are multiplied; pixels that a tap finds outside of the image become zeros. A thread keeps a small tile of sums.
//
// Small images give few tiles, so the depth is cut twice: into slices, each of which is a group of threads of the block
// with sums of its own, and into the blocks of a cluster, which add up what each finds in the others' shared memory.
// The order of the additions is fixed. Bias, residual and activation are applied to the sums before they are stored.
//
// Tiles of 7, 28, 56 or 112 rows fit the images of 7, 14, 28, 56 pixels a side that are common.
#pragma once

#include "epilogue.cuh"
#include "geometry.cuh"

namespace aicore::cnn {

struct ImplicitConv : ConvGeometry {
    const float *x, *w, *bias, *residual;
    float *y;
    int column_tiles;        // of a group
    int packed_columns, packed_depth;
    int w_is_fixed;          // no kernel writes w, so that it may be read before the previous one has ended
    int y_first, y_image, y_line, y_step;  // as in Scattered
    Activation activation;
};

// Where results lie that are not side by side: elements before the first, between images, lines and pixels. An image
// distance of 0 says that they are side by side. The gradient of the images of a strided convolution is made so: a
// convolution for each of the places that a stride steps over.
struct Scattered {
    std::int64_t first, image, line, pixel;
};

struct ImplicitParams {
    ConvParams conv;
    Scattered scattered;
    std::int64_t tile;   // in its list of implicit_tiles.cuh, and in aicore_cuda_ge/kernels/_conv_tiles.py
    std::int64_t split;  // at most so many blocks share the depth of a tile; one before compute capability 9.0
    std::int64_t packed_columns, packed_depth;
    std::int64_t w_is_fixed;
    std::int64_t x_byte, w_byte;  // where images and packed weights begin behind their pointers
};

// What the kernel takes, for tiles of so many columns.
inline ImplicitConv implicit_conv(void *const *pointers, const ImplicitParams &params, int columns) {
    const ConvParams &c = params.conv;
    const ConvPointers<float> t = conv_pointers<float>(pointers, c);
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    ImplicitConv p = {};
    p.set_geometry(c);
    p.x = t.x + params.x_byte / 4, p.w = t.w + params.w_byte / 4, p.bias = t.bias, p.residual = t.residual, p.y = t.y;
    p.column_tiles = (p.maps + columns - 1) / columns;
    p.packed_columns = narrow(params.packed_columns), p.packed_depth = narrow(params.packed_depth);
    p.w_is_fixed = params.w_is_fixed != 0;
    p.y_first = narrow(params.scattered.first), p.y_image = narrow(params.scattered.image);
    p.y_line = narrow(params.scattered.line), p.y_step = narrow(params.scattered.pixel);
    p.activation = c.activation;
    return p;
}

template <int Rows_, int Columns_, int Depth_, int ThreadRows_, int ThreadColumns_, int Slices_, int Stages_,
          int Vector_>
struct ImplicitTile {
    static constexpr int kRows = Rows_, kColumns = Columns_, kDepth = Depth_, kSlices = Slices_, kStages = Stages_;
    static constexpr int kThreadRows = ThreadRows_, kThreadColumns = ThreadColumns_;
    static constexpr int kVector = Vector_;  // floats in one copy of x
    static constexpr int kAcross = kColumns / kThreadColumns, kDown = kRows / kThreadRows;
    static constexpr int kSliceThreads = kAcross * kDown;
    static constexpr int kThreads = kSliceThreads * kSlices, kSliceDepth = kDepth / kSlices;
    // Rows of x in shared memory are 16 bytes apart from a multiple of all banks.
    static constexpr int kPitch = kDepth + 4, kLeft = kRows * kPitch, kStage = kLeft + kDepth * kColumns;
    // A thread copies the same columns of each stage: every kRowStep-th row of x, every kDepthStep-th of w.
    static constexpr int kRowStep = kThreads / (kDepth / kVector), kRowCopies = (kRows + kRowStep - 1) / kRowStep;
    static constexpr int kDepthStep = kThreads / (kColumns / 4), kDepthCopies = kDepth / kDepthStep;
    static constexpr int kSums = kRows * kColumns;
    // Of a multiprocessor: with 56 sums a thread, 128 registers are enough.
    static constexpr int kBlocks = kVector == 4 && kThreadRows * kThreadColumns <= 56 ? 512 / kThreads : 1;
    static constexpr int kSharedWords = kStages * kStage > kSlices * kSums ? kStages * kStage : kSlices * kSums;
    static_assert(kAcross * kThreadColumns == kColumns && kDown * kThreadRows == kRows && kThreadColumns % 4 == 0);
    static_assert(kThreads % 32 == 0 && kSliceDepth % 4 == 0 && kStages >= 2);
    static_assert(kRowStep * (kDepth / kVector) == kThreads && kDepthStep * (kColumns / 4) == kThreads);
    static_assert(kDepthCopies * kDepthStep == kDepth, "each thread copies as many rows of w");
};

#if defined(__CUDACC__) || defined(AICORE_EMULATED_DEVICE)

// Stores four sums of one row; those of maps that do not exist are dropped.
__device__ __forceinline__ void store_sums(const ImplicitConv &p, int row, int group, int map, float4 sums) {
    if (row >= p.rows || map >= p.maps) return;
    const int column = group * p.maps + map;
    std::int64_t at = static_cast<std::int64_t>(row) * p.y_pixel + column;
    if (p.y_image != 0) {
        const int image = row / p.out_pixels, pixel = row - image * p.out_pixels, line = pixel / p.out_width;
        at = p.y_first + image * p.y_image + line * p.y_line + (pixel - line * p.out_width) * p.y_step + column;
    }
    store_four(p.activation, sums, p.bias == nullptr ? nullptr : p.bias + column,
               p.residual == nullptr ? nullptr : p.residual + at, p.y + at, p.maps - map, p.maps % 4 == 0);
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) implicit_kernel(const ImplicitConv p) {
    constexpr int kVector = Tile::kVector, kDepth = Tile::kDepth, kColumns = Tile::kColumns, kStages = Tile::kStages;
    constexpr int kThreadRows = Tile::kThreadRows, kFours = Tile::kThreadColumns / 4;
    AICORE_SHARED_WORDS(shared);
    const int thread = threadIdx.x, slice = thread / Tile::kSliceThreads, in_slice = thread % Tile::kSliceThreads;
    const int across = in_slice % Tile::kAcross, down = in_slice / Tile::kAcross;
    const int first_row = blockIdx.x * Tile::kRows, group = blockIdx.y / p.column_tiles;
    const int first_map = (blockIdx.y - group * p.column_tiles) * kColumns;
    const int rank = blockIdx.z, split = gridDim.z;
    const int all_stages = (p.depth + kDepth - 1) / kDepth;
    const int first_stage = static_cast<int>(static_cast<std::int64_t>(all_stages) * rank / split);
    const int stages = static_cast<int>(static_cast<std::int64_t>(all_stages) * (rank + 1) / split) - first_stage;

    // What this thread copies of x: column x_column of rows x_row, x_row + kRowStep, ...
    const int x_column = thread % (kDepth / kVector) * kVector, x_row = thread / (kDepth / kVector);
    RowOrigin origins[Tile::kRowCopies];
#pragma unroll
    for (int i = 0; i < Tile::kRowCopies; i++) {
        const int in_tile = x_row + i * Tile::kRowStep, row = first_row + in_tile;
        origins[i].start(p, row, in_tile < Tile::kRows && row < p.rows);
    }
    DepthCursor cursor;
    cursor.start(p, first_stage * kDepth + x_column);
    const float *x = p.x + group * p.channels;
    const auto copy_x = [&](int slot) {
        float *to = shared + slot * Tile::kStage + x_row * Tile::kPitch + x_column;
#pragma unroll
        for (int i = 0; i < Tile::kRowCopies; i++) {
            if (Tile::kRows % Tile::kRowStep != 0 && x_row + i * Tile::kRowStep >= Tile::kRows) continue;
            const bool inside = (origins[i].mask & cursor.bit) == cursor.bit;
            const int at = inside ? origins[i].offset + cursor.offset : 0;
            copy_floats<kVector>(to + i * Tile::kRowStep * Tile::kPitch, x + at, inside);
        }
        cursor.advance(p, kDepth);
    };

    // And of w: four maps at w_column, of every kDepthStep-th step.
    const int w_column = thread % (kColumns / 4) * 4, w_row = thread / (kColumns / 4);
    const bool w_exists = first_map + w_column < p.packed_columns;
    const float *w = p.w;
    if (w_exists) {
        const std::int64_t step = static_cast<std::int64_t>(group) * p.packed_depth + first_stage * kDepth + w_row;
        w += step * p.packed_columns + first_map + w_column;
    }
    const int w_step = w_exists ? Tile::kDepthStep * p.packed_columns : 0;
    const auto copy_w = [&](int slot) {
        float *to = shared + slot * Tile::kStage + Tile::kLeft + w_row * kColumns + w_column;
#pragma unroll
        for (int i = 0; i < Tile::kDepthCopies; i++, w += w_step) {
            copy_floats<4>(to + i * Tile::kDepthStep * kColumns, w, w_exists);
        }
    };

    let_next_begin();
    if (!p.w_is_fixed) wait_for_previous();
#pragma unroll
    for (int s = 0; s < kStages - 1; s++) {
        if (s < stages) copy_w(s);
    }
    wait_for_previous();
#pragma unroll
    for (int s = 0; s < kStages - 1; s++) {
        if (s < stages) copy_x(s);
        commit_copies();  // the first group holds all the weights too
    }

    float sums[kThreadRows][4 * kFours];
#pragma unroll
    for (int i = 0; i < kThreadRows; i++) {
#pragma unroll
        for (int j = 0; j < 4 * kFours; j++) sums[i][j] = 0.0f;
    }
    int read_slot = 0, write_slot = kStages - 1;
    for (int stage = 0; stage < stages; stage++) {
        wait_for_copies<kStages - 2>();
        sync_block();  // the stage is there for all, and all have done with the one that is overwritten next
        const float *left = shared + read_slot * Tile::kStage + down * Tile::kPitch + slice * Tile::kSliceDepth;
        const float *right =
            shared + read_slot * Tile::kStage + Tile::kLeft + slice * Tile::kSliceDepth * kColumns + across * 4;
#pragma unroll
        for (int q = 0; q < Tile::kSliceDepth; q += 4) {
            float4 a[kThreadRows];
#pragma unroll
            for (int i = 0; i < kThreadRows; i++) a[i] = as_four(left + i * Tile::kDown * Tile::kPitch + q);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float4 b[kFours];
#pragma unroll
                for (int h = 0; h < kFours; h++) b[h] = as_four(right + (q + k) * kColumns + h * Tile::kAcross * 4);
#pragma unroll
                for (int i = 0; i < kThreadRows; i++) {
                    const float factor = k == 0 ? a[i].x : k == 1 ? a[i].y : k == 2 ? a[i].z : a[i].w;
#pragma unroll
                    for (int h = 0; h < kFours; h++) {
                        sums[i][4 * h] = fmaf(factor, b[h].x, sums[i][4 * h]);
                        sums[i][4 * h + 1] = fmaf(factor, b[h].y, sums[i][4 * h + 1]);
                        sums[i][4 * h + 2] = fmaf(factor, b[h].z, sums[i][4 * h + 2]);
                        sums[i][4 * h + 3] = fmaf(factor, b[h].w, sums[i][4 * h + 3]);
                    }
                }
                if (q == 0 && k == 0) {  // by now the pipes are busy, and the copies hide behind them
                    if (stage + kStages - 1 < stages) {
                        copy_w(write_slot);
                        copy_x(write_slot);
                    }
                    commit_copies();
                    write_slot = write_slot + 1 == kStages ? 0 : write_slot + 1;
                }
            }
        }
        read_slot = read_slot + 1 == kStages ? 0 : read_slot + 1;
    }

    wait_for_copies<0>();
    sync_block();  // the stages are done with: their memory takes the sums, slice by slice
#pragma unroll
    for (int i = 0; i < kThreadRows; i++) {
        float *to = shared + slice * Tile::kSums + (down + i * Tile::kDown) * kColumns + across * 4;
#pragma unroll
        for (int h = 0; h < kFours; h++) {
            as_four(to + h * Tile::kAcross * 4) =
                make_float4(sums[i][4 * h], sums[i][4 * h + 1], sums[i][4 * h + 2], sums[i][4 * h + 3]);
        }
    }
    sync_block();
    const auto sum_of_slices = [&](int four) {
        float4 sum = as_four(shared + 4 * four);
#pragma unroll
        for (int other = 1; other < Tile::kSlices; other++) {
            sum = sum_of(sum, as_four(shared + other * Tile::kSums + 4 * four));
        }
        return sum;
    };
    // With others in the cluster: each block adds up a share of the tile, in the order of ranks.
    constexpr int kFoursOfTile = Tile::kSums / 4;
    if (split > 1 && Tile::kSlices > 1) {
        for (int four = thread; four < kFoursOfTile; four += Tile::kThreads) {
            as_four(shared + 4 * four) = sum_of_slices(four);
        }
    }
    if (split > 1) sync_cluster();
    const int end = kFoursOfTile * (rank + 1) / split;
    for (int four = kFoursOfTile * rank / split + thread; four < end; four += Tile::kThreads) {
        float4 sum = split == 1 ? sum_of_slices(four) : read_of_block(shared + 4 * four, 0);
        for (int other = 1; other < split; other++) sum = sum_of(sum, read_of_block(shared + 4 * four, other));
        store_sums(p, first_row + 4 * four / kColumns, group, first_map + 4 * four % kColumns, sum);
    }
    if (split > 1) sync_cluster();  // nobody leaves while others read its shared memory
}

#endif

}  // namespace aicore::cnn
