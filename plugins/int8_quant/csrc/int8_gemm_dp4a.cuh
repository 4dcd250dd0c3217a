// A tile of a product of bytes by dp4a, four products an instruction, for any GPU since sm_61.
//
// Rows of a and b lie in shared memory as they do in global memory, k along a row. A warp is four rows by eight columns
// of threads; a thread has kTall x kWide results, four rows and eight columns apart, so that the 16-byte reads of a
// warp meet no bank twice. For each 16 bytes of depth a thread holds its kTall rows and passes over its columns: the
// next column is read while this one is multiplied, and at the last column each row makes room for its next 16 bytes.
// So reads are always ahead of their use, at the cost of few registers. kSlices groups of warps share a stage's depth.
#pragma once

#include "copying.cuh"
#include "dot.cuh"
#include "tile.cuh"

namespace int8_quant {

template <int kWarpsDown_, int kWarpsAcross_, int kTall_, int kWide_, int kSlices_, int kDepth_, int kStages_,
          int kBlocks_>
struct Dp4aTile {
    static constexpr int kWarpsDown = kWarpsDown_, kWarpsAcross = kWarpsAcross_, kTall = kTall_, kWide = kWide_;
    static constexpr int kSlices = kSlices_, kDepth = kDepth_, kStages = kStages_, kBlocks = kBlocks_;
    static constexpr int kRows = 4 * kTall * kWarpsDown, kColumns = 8 * kWide * kWarpsAcross;
    static constexpr int kThreads = 32 * kWarpsDown * kWarpsAcross * kSlices;
    static constexpr int kStage = (kRows + kColumns) * kDepth, kShared = tile_bytes<kRows, kColumns>(kStages * kStage);
    static_assert(kTall % 2 == 0 && kWide % 2 == 0, "two columns are in flight, and swizzles repeat after eight rows");
};

template <class Tile, bool kImages, bool kUnsigned>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) gemm_dp4a(const __grid_constant__ Gemm g) {
    constexpr int kDepth = Tile::kDepth, kTall = Tile::kTall, kWide = Tile::kWide, kStages = Tile::kStages;
    constexpr int kChunks = kDepth / 16, kOwn = kChunks / Tile::kSlices, kWarps = Tile::kWarpsDown * Tile::kWarpsAcross;
    INT8_SHARED(shared);
    auto *stages = reinterpret_cast<std::int8_t *>(shared);
    let_next_begin();
    if (kImages) wait_for_previous();  // a zero point is read at once

    const int thread = threadIdx.x, lane = thread % 32, down = lane / 8, across = lane % 8;
    const int slice = thread / 32 / kWarps, warp = thread / 32 % kWarps;
    const int row = warp / Tile::kWarpsAcross * 4 * kTall + down;
    const int column = warp % Tile::kWarpsAcross * 8 * kWide + across;
    const Place p = place_of<Tile::kRows, Tile::kColumns>(g.s, blockIdx.x);
    const Share share = share_of(g.s, kDepth);
    const int point = kImages && g.e.x_point != nullptr ? g.e.x_point[0] & 255 : 0;
    RowCopies<Tile::kRows, kDepth, Tile::kThreads, kImages> copies_a(
        g.s, g.a + p.group * g.s.a_group, g.s.a_row, p.row, int(g.s.rows), share.first * kDepth, point, thread);
    RowCopies<Tile::kColumns, kDepth, Tile::kThreads, false> copies_b(
        g.s, g.b + p.group * g.s.columns * g.s.b_row, g.s.b_row, p.column, int(g.s.columns), share.first * kDepth, 0,
        thread);

    auto begin = [&](int stage) {
        std::int8_t *to = stages + stage * Tile::kStage;
        copies_a.begin(g.s, to);
        copies_b.begin(g.s, to + Tile::kRows * kDepth);
    };
    auto end = [&](int stage) {
        std::int8_t *to = stages + stage * Tile::kStage;
        copies_a.end(to);
        copies_b.end(to + Tile::kRows * kDepth);
    };
    // Where this thread's first row and column have a chunk: what differs among lanes is one exclusive or.
    const int swizzle_a = (kDepth == 64 ? down >> 1 : down) ^ slice * kOwn;
    const int swizzle_b = (kDepth == 64 ? across >> 1 : across) ^ slice * kOwn;
    const std::int8_t *at_a[kChunks], *at_b[kChunks];
    auto go_to = [&](int stage) {
        const std::int8_t *from = stages + stage * Tile::kStage;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; chunk++) {
            at_a[chunk] = from + row * kDepth + ((chunk ^ swizzle_a) << 4);
            at_b[chunk] = from + (Tile::kRows + column) * kDepth + ((chunk ^ swizzle_b) << 4);
        }
    };
    auto read_a = [&](int i, int chunk) {
        const int flip = kDepth == 64 ? 2 * i & 3 : 4 * i & 7;
        return *reinterpret_cast<const int4 *>(at_a[chunk ^ flip] + 4 * i * kDepth);
    };
    auto read_b = [&](int j, int chunk) {
        return *reinterpret_cast<const int4 *>(at_b[chunk] + 8 * j * kDepth);
    };

    if (!kImages) wait_for_previous();
#pragma unroll
    for (int stage = 0; stage < kStages - 1; stage++) {
        if (stage < share.count) {
            begin(stage);
            end(stage);
        }
        commit_copies();
    }
    using Parameters = Known<Tile::kColumns>;
    auto *known = reinterpret_cast<Parameters *>(shared + Tile::kShared - int(sizeof(Parameters)));
    get_known<Tile::kColumns, Tile::kThreads>(g, p, known, thread);
    wait_for_copies<kStages - 2>();
    __syncthreads();

    int sums[kTall][kWide] = {};
    int4 a[kTall], b[2];
    go_to(0);
#pragma unroll
    for (int i = 0; i < kTall; i++) a[i] = read_a(i, 0);
    b[0] = read_b(0, 0);
    int reading = 0, writing = kStages - 1;
    for (int step = 0; step < share.count; step++) {
        const bool more = step + kStages - 1 < share.count;
        if (more) begin(writing);
        commit_copies();
#pragma unroll
        for (int chunk = 0; chunk < kOwn; chunk++) {
#pragma unroll
            for (int j = 0; j < kWide; j++) {
                const bool last_column = j == kWide - 1;
                const int next_chunk = last_column ? (chunk + 1) % kOwn : chunk;
                if (last_column && chunk == kOwn - 1) {
                    if (more) end(writing);
                    wait_for_copies<kStages - 2>();
                    __syncthreads();
                    writing = writing + 1 == kStages ? 0 : writing + 1;
                    reading = reading + 1 == kStages ? 0 : reading + 1;
                    go_to(reading);
                }
                b[(j + 1) % 2] = read_b(last_column ? 0 : j + 1, next_chunk);
#pragma unroll
                for (int i = 0; i < kTall; i++) {
                    const int4 left = a[i], right = b[j % 2];
                    int sum = dot_4<kUnsigned>(left.x, right.x, sums[i][j]);
                    sum = dot_4<kUnsigned>(left.y, right.y, sum);
                    sum = dot_4<kUnsigned>(left.z, right.z, sum);
                    sums[i][j] = dot_4<kUnsigned>(left.w, right.w, sum);
                    if (last_column) a[i] = read_a(i, next_chunk);
                }
            }
        }
    }

    wait_for_copies<0>();
    __syncthreads();  // the sums take the place of the stages
    int *tile = reinterpret_cast<int *>(shared);
#pragma unroll
    for (int turn = 0; turn < Tile::kSlices; turn++) {
        if (turn > 0) __syncthreads();
        if (turn != slice) continue;
#pragma unroll
        for (int i = 0; i < kTall; i++) {
#pragma unroll
            for (int j = 0; j < kWide; j++) {
                int *to = tile + (row + 4 * i) * pitch_of(Tile::kColumns) + column + 8 * j;
                *to = turn == 0 ? sums[i][j] : *to + sums[i][j];
            }
        }
    }
    finish_tile<Tile::kRows, Tile::kColumns, Tile::kThreads>(g, p, tile, known, thread);
}

template <class Tile, bool kImages>
int launch_dp4a(const Gemm &g, int split, cudaStream_t stream) {
    const auto run = [&](auto kernel) {
        return launch_tiles(kernel, g, Tile::kRows, Tile::kColumns, Tile::kThreads, Tile::kShared, split, stream);
    };
    return g.s.a_unsigned ? run(gemm_dp4a<Tile, kImages, true>) : run(gemm_dp4a<Tile, kImages, false>);
}

//                          warps   results  slices, depth, stages, blocks
using Dp4a128x256 = Dp4aTile<4, 2, 8, 16, 1, 64, 3, 1>;
using Dp4a128x128 = Dp4aTile<4, 2, 8, 8, 1, 64, 3, 2>;
using Dp4a64x128 = Dp4aTile<2, 2, 8, 8, 1, 64, 3, 3>;
using Dp4a64x128x2 = Dp4aTile<2, 2, 8, 8, 2, 128, 3, 1>;
using Dp4a64x64x2 = Dp4aTile<2, 1, 8, 8, 2, 128, 3, 2>;
using Dp4a16x64x4 = Dp4aTile<1, 2, 4, 4, 4, 128, 4, 2>;

}  // namespace int8_quant
