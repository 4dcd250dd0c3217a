// A tile of a product of bytes on tensor cores, by mma.sync m16n8k32, for sm_80 and later.
//
// The stages are those of the kernel on dp4a. A warp reads 16x32 pieces of a and 16x32 of b (two of eight columns) with
// ldmatrix, the next ones while it multiplies these.
#pragma once

#include "copying.cuh"
#include "tile.cuh"

namespace int8_quant {

#if INT8_ASYNC_COPIES
__device__ __forceinline__ void read_matrices(unsigned (&to)[4], const std::int8_t *from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ void multiply_add(int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_add_unsigned(int (&sums)[4], const unsigned (&a)[4], unsigned b0,
                                                      unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

template <int kWarpsDown_, int kWarpsAcross_, int kRows_, int kColumns_, int kDepth_, int kStages_, int kBlocks_>
struct MmaTile {
    static constexpr int kWarpsDown = kWarpsDown_, kWarpsAcross = kWarpsAcross_, kRows = kRows_, kColumns = kColumns_;
    static constexpr int kDepth = kDepth_, kStages = kStages_, kBlocks = kBlocks_;
    static constexpr int kThreads = 32 * kWarpsDown * kWarpsAcross;
    static constexpr int kTall = kRows / kWarpsDown, kWide = kColumns / kWarpsAcross;  // of a warp
    static constexpr int kStage = (kRows + kColumns) * kDepth, kShared = tile_bytes<kRows, kColumns>(kStages * kStage);
};

template <class Tile, bool kImages, bool kUnsigned>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) gemm_mma(const __grid_constant__ Gemm g) {
#if INT8_ASYNC_COPIES
    constexpr int kDepth = Tile::kDepth, kStages = Tile::kStages, kPieces = kDepth / 32;
    constexpr int kDown = Tile::kTall / 16, kAcross = Tile::kWide / 8;
    static_assert(kPieces % 2 == 0 && kAcross % 2 == 0, "pieces alternate between two sets of registers");
    INT8_SHARED(shared);
    auto *stages = reinterpret_cast<std::int8_t *>(shared);
    let_next_begin();
    if (kImages) wait_for_previous();  // a zero point is read at once

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int row = warp / Tile::kWarpsAcross * Tile::kTall, column = warp % Tile::kWarpsAcross * Tile::kWide;
    const Place p = place_of<Tile::kRows, Tile::kColumns>(g.s, blockIdx.x);
    const Share share = share_of(g.s, kDepth);
    const int point = kImages && g.e.x_point != nullptr ? g.e.x_point[0] & 255 : 0;
    RowCopies<Tile::kRows, kDepth, Tile::kThreads, kImages> copies_a(
        g.s, g.a + p.group * g.s.a_group, g.s.a_row, p.row, int(g.s.rows), share.first * kDepth, point, thread);
    RowCopies<Tile::kColumns, kDepth, Tile::kThreads, false> copies_b(
        g.s, g.b + p.group * g.s.columns * g.s.b_row, g.s.b_row, p.column, int(g.s.columns), share.first * kDepth, 0,
        thread);
    auto begin = [&](int stage) {
        copies_a.begin(g.s, stages + stage * Tile::kStage);
        copies_b.begin(g.s, stages + stage * Tile::kStage + Tile::kRows * kDepth);
    };

    if (!kImages) wait_for_previous();
#pragma unroll
    for (int stage = 0; stage < kStages - 1; stage++) {
        if (stage < share.count) begin(stage);
        commit_copies();
    }
    using Parameters = Known<Tile::kColumns>;
    auto *known = reinterpret_cast<Parameters *>(shared + Tile::kShared - int(sizeof(Parameters)));
    get_known<Tile::kColumns, Tile::kThreads>(g, p, known, thread);
    wait_for_copies<kStages - 2>();
    __syncthreads();

    int sums[kDown][kAcross][4] = {};
    unsigned a[2][kDown][4], b[2][kAcross / 2][4];
    const int row_a = row + lane % 16, chunk_a = lane / 16;
    const int row_b = column + lane % 8 + lane / 16 * 8, chunk_b = lane / 8 % 2;
    auto read = [&](int stage, int piece, int set) {
        const std::int8_t *from = stages + stage * Tile::kStage;
#pragma unroll
        for (int i = 0; i < kDown; i++)
            read_matrices(a[set][i], from + swizzled<kDepth>(row_a + 16 * i, 2 * piece + chunk_a));
        from += Tile::kRows * kDepth;
#pragma unroll
        for (int j = 0; j < kAcross / 2; j++)
            read_matrices(b[set][j], from + swizzled<kDepth>(row_b + 16 * j, 2 * piece + chunk_b));
    };
    read(0, 0, 0);
    int reading = 0, writing = kStages - 1;
    for (int step = 0; step < share.count; step++) {
#pragma unroll
        for (int piece = 0; piece < kPieces; piece++) {
            if (piece == kPieces - 1) {
                wait_for_copies<kStages - 2>();
                __syncthreads();
                reading = reading + 1 == kStages ? 0 : reading + 1;
            }
            read(reading, (piece + 1) % kPieces, (piece + 1) % 2);
            if (piece == 0) {
                if (step + kStages - 1 < share.count) begin(writing);
                commit_copies();
                writing = writing + 1 == kStages ? 0 : writing + 1;
            }
#pragma unroll
            for (int i = 0; i < kDown; i++) {
#pragma unroll
                for (int j = 0; j < kAcross; j++) {
                    const unsigned *right = b[piece % 2][j / 2] + j % 2 * 2;
                    if (kUnsigned) {
                        multiply_add_unsigned(sums[i][j], a[piece % 2][i], right[0], right[1]);
                    } else {
                        multiply_add(sums[i][j], a[piece % 2][i], right[0], right[1]);
                    }
                }
            }
        }
    }

    wait_for_copies<0>();
    __syncthreads();  // the sums take the place of the stages
    int *tile = reinterpret_cast<int *>(shared);
#pragma unroll
    for (int i = 0; i < kDown; i++) {
#pragma unroll
        for (int j = 0; j < kAcross; j++) {
            int *to = tile + (row + 16 * i + lane / 4) * pitch_of(Tile::kColumns) + column + 8 * j + lane % 4 * 2;
            *reinterpret_cast<int2 *>(to) = make_int2(sums[i][j][0], sums[i][j][1]);
            *reinterpret_cast<int2 *>(to + 8 * pitch_of(Tile::kColumns)) = make_int2(sums[i][j][2], sums[i][j][3]);
        }
    }
    finish_tile<Tile::kRows, Tile::kColumns, Tile::kThreads>(g, p, tile, known, thread);
#endif
}

template <class Tile, bool kImages>
int launch_mma(const Gemm &g, int split, cudaStream_t stream) {
    const auto run = [&](auto kernel) {
        return launch_tiles(kernel, g, Tile::kRows, Tile::kColumns, Tile::kThreads, Tile::kShared, split, stream);
    };
    return g.s.a_unsigned ? run(gemm_mma<Tile, kImages, true>) : run(gemm_mma<Tile, kImages, false>);
}

//                       warps, rows, columns, depth, stages, blocks
using Mma256x128 = MmaTile<4, 2, 256, 128, 128, 4, 1>;
using Mma128x256 = MmaTile<2, 4, 128, 256, 128, 4, 1>;
using Mma128x128 = MmaTile<2, 2, 128, 128, 128, 3, 2>;
using Mma64x64 = MmaTile<2, 2, 64, 64, 128, 4, 3>;

}  // namespace int8_quant
