// A tile of a product of bytes on the tensor cores of sm_90, by wgmma: everything around it is that of the tiles on
// mma.sync, windows of images, residuals and shared depths included.
//
// Two groups of four warps have 64 rows each and multiply straight from shared memory, where rows of 128 bytes lie
// swizzled as both cp.async and wgmma want them. While a stage is multiplied, the groups see to it that the one before is
// done with, and ask for one that takes the place of the one before that.
#pragma once

#include "codes.cuh"
#ifndef INT8_EMULATED  // on the CPU, tests say what these instructions do
#include "wgmma.cuh"
#endif

#if INT8_WGMMA || defined(INT8_EMULATED)
#define INT8_WARPGROUPS 1
#else
#define INT8_WARPGROUPS 0
#endif

namespace int8_quant {

#if INT8_WGMMA
#define INT8_WGMMA_64X64X32(TYPES)                                                                                    \
    asm volatile(                                                                                                     \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                                  \
        "wgmma.mma_async.sync.aligned.m64n64k32.s32." TYPES " {"                                                      \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                      \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31 "                             \
        "}, %32, %33, p;\n}"                                                                                          \
        : "+r"(d[0][0]), "+r"(d[0][1]), "+r"(d[0][2]), "+r"(d[0][3]), "+r"(d[1][0]), "+r"(d[1][1]),                   \
          "+r"(d[1][2]), "+r"(d[1][3]), "+r"(d[2][0]), "+r"(d[2][1]), "+r"(d[2][2]), "+r"(d[2][3]),                   \
          "+r"(d[3][0]), "+r"(d[3][1]), "+r"(d[3][2]), "+r"(d[3][3]), "+r"(d[4][0]), "+r"(d[4][1]),                   \
          "+r"(d[4][2]), "+r"(d[4][3]), "+r"(d[5][0]), "+r"(d[5][1]), "+r"(d[5][2]), "+r"(d[5][3]),                   \
          "+r"(d[6][0]), "+r"(d[6][1]), "+r"(d[6][2]), "+r"(d[6][3]), "+r"(d[7][0]), "+r"(d[7][1]),                   \
          "+r"(d[7][2]), "+r"(d[7][3])                                                                                \
        : "l"(a), "l"(b), "r"(1))

#define INT8_WGMMA_64X128X32(TYPES)                                                                                   \
    asm volatile(                                                                                                     \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                                  \
        "wgmma.mma_async.sync.aligned.m64n128k32.s32." TYPES " {"                                                     \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                      \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                            \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                            \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63 "                             \
        "}, %64, %65, p;\n}"                                                                                          \
        : "+r"(d[0][0]), "+r"(d[0][1]), "+r"(d[0][2]), "+r"(d[0][3]), "+r"(d[1][0]), "+r"(d[1][1]),                   \
          "+r"(d[1][2]), "+r"(d[1][3]), "+r"(d[2][0]), "+r"(d[2][1]), "+r"(d[2][2]), "+r"(d[2][3]),                   \
          "+r"(d[3][0]), "+r"(d[3][1]), "+r"(d[3][2]), "+r"(d[3][3]), "+r"(d[4][0]), "+r"(d[4][1]),                   \
          "+r"(d[4][2]), "+r"(d[4][3]), "+r"(d[5][0]), "+r"(d[5][1]), "+r"(d[5][2]), "+r"(d[5][3]),                   \
          "+r"(d[6][0]), "+r"(d[6][1]), "+r"(d[6][2]), "+r"(d[6][3]), "+r"(d[7][0]), "+r"(d[7][1]),                   \
          "+r"(d[7][2]), "+r"(d[7][3]), "+r"(d[8][0]), "+r"(d[8][1]), "+r"(d[8][2]), "+r"(d[8][3]),                   \
          "+r"(d[9][0]), "+r"(d[9][1]), "+r"(d[9][2]), "+r"(d[9][3]), "+r"(d[10][0]), "+r"(d[10][1]),                 \
          "+r"(d[10][2]), "+r"(d[10][3]), "+r"(d[11][0]), "+r"(d[11][1]), "+r"(d[11][2]), "+r"(d[11][3]),             \
          "+r"(d[12][0]), "+r"(d[12][1]), "+r"(d[12][2]), "+r"(d[12][3]), "+r"(d[13][0]), "+r"(d[13][1]),             \
          "+r"(d[13][2]), "+r"(d[13][3]), "+r"(d[14][0]), "+r"(d[14][1]), "+r"(d[14][2]), "+r"(d[14][3]),             \
          "+r"(d[15][0]), "+r"(d[15][1]), "+r"(d[15][2]), "+r"(d[15][3])                                              \
        : "l"(a), "l"(b), "r"(1))

// d += a b^T over 128 bytes of depth; a has 64 rows, b 64 or 128. They begin at multiples of 1024.
template <int kWide, bool kUnsigned>
__device__ __forceinline__ void multiply_rows(int (&d)[kWide / 8][4], const std::int8_t *rows,
                                              const std::int8_t *columns) {
    static_assert(kWide == 64 || kWide == 128, "as written");
    std::uint64_t a = matrix_of(shared_address(rows)), b = matrix_of(shared_address(columns));
#pragma unroll
    for (int k = 0; k < 4; k++, a += 2, b += 2) {
        if constexpr (kWide == 64) {
            if constexpr (kUnsigned) {
                INT8_WGMMA_64X64X32("u8.s8");
            } else {
                INT8_WGMMA_64X64X32("s8.s8");
            }
        } else {
            if constexpr (kUnsigned) {
                INT8_WGMMA_64X128X32("u8.s8");
            } else {
                INT8_WGMMA_64X128X32("s8.s8");
            }
        }
    }
}

// What this thread copied or wrote to shared memory is seen by wgmma once a barrier was passed.
__device__ __forceinline__ void copies_are_visible() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif

// kBlocks: of a multiprocessor at a time.
template <int kColumns_, int kStages_, int kBlocks_>
struct WarpgroupTile {
    static constexpr int kRows = 128, kColumns = kColumns_, kDepth = 128, kStages = kStages_, kBlocks = kBlocks_;
    static constexpr int kThreads = 256, kTall = 16, kWide = kColumns;  // of a warp
    static constexpr int kStage = (kRows + kColumns) * kDepth, kAll = kStages * kStage;
    static constexpr int kCodes = kRows * codes_pitch(kColumns);
    // 1024 more, since stages begin at a multiple of that.
    static constexpr int kShared = tile_bytes<kRows, kColumns>(kAll + kCodes), kTaken = kShared + 1024;
};

template <class Tile, bool kImages, bool kUnsigned>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) gemm_warpgroups(const __grid_constant__ Gemm g) {
#if INT8_WARPGROUPS
    constexpr int kDepth = Tile::kDepth, kStages = Tile::kStages, kRows = Tile::kRows, kColumns = Tile::kColumns;
    constexpr int kThreads = Tile::kThreads;
    INT8_SHARED(raw);
    unsigned char *shared = raw + (1024 - reinterpret_cast<std::uintptr_t>(raw) % 1024) % 1024;
    auto *stages = reinterpret_cast<std::int8_t *>(shared);
    let_next_begin();
    if (kImages) wait_for_previous();  // a zero point is read at once

    const int thread = threadIdx.x, lane = thread % 32, group = thread / 128;
    const Place p = place_of<kRows, kColumns>(g.s, blockIdx.x);
    const Share share = share_of(g.s, kDepth);
    const int point = kImages && g.e.x_point != nullptr ? g.e.x_point[0] & 255 : 0;
    RowCopies<kRows, kDepth, kThreads, kImages> copies_a(g.s, g.a + p.group * g.s.a_group, g.s.a_row, p.row,
                                                         int(g.s.rows), share.first * kDepth, point, thread);
    RowCopies<kColumns, kDepth, kThreads, false> copies_b(g.s, g.b + p.group * g.s.columns * g.s.b_row, g.s.b_row,
                                                          p.column, int(g.s.columns), share.first * kDepth, 0, thread);
    auto begin = [&](int stage) {
        copies_a.begin(g.s, stages + stage * Tile::kStage);
        copies_b.begin(g.s, stages + stage * Tile::kStage + kRows * kDepth);
    };

    if (!kImages) wait_for_previous();
    const bool in_codes = gives_codes(g, gridDim.z), adds = in_codes && g.e.addend != nullptr;
    auto *codes = stages + Tile::kAll;
#pragma unroll
    for (int stage = 0; stage < kStages - 2; stage++) {
        if (stage < share.count) begin(stage);
        if (adds && stage == kStages - 3) begin_addend<kRows, kColumns, kThreads>(g, p, codes, thread);
        commit_copies();
    }
    using Parameters = Known<kColumns>;
    auto *known = reinterpret_cast<Parameters *>(shared + Tile::kShared - int(sizeof(Parameters)));
    get_known<kColumns, kThreads>(g, p, known, thread);

    int sums[1][Tile::kWide / 8][4] = {};
    int reading = 0, writing = kStages - 2;
    for (int step = 0; step < share.count; step++) {
        wait_for_copies<kStages - 3>();
        copies_are_visible();
        __syncthreads();
        const std::int8_t *from = stages + reading * Tile::kStage;
        wgmma_fence();
        multiply_rows<Tile::kWide, kUnsigned>(sums[0], from + group * 64 * kDepth, from + kRows * kDepth);
        wgmma_commit();
        // Of the other group, too, the stage before the last one is no longer read: it has passed the barrier.
        if (step + kStages - 2 < share.count) begin(writing);
        commit_copies();
        wgmma_wait<1>();
        reading = reading + 1 == kStages ? 0 : reading + 1;
        writing = writing + 1 == kStages ? 0 : writing + 1;
    }
    wgmma_wait<0>();
    wait_for_copies<0>();
    __syncthreads();  // the sums take the place of the stages

    const int row = thread / 32 * 16;
    if (in_codes) {
        const Coder coder(g, known->target);
        if (adds) {
            put_codes<Tile, true>(coder, known, sums, codes, row, 0, lane);
        } else {
            put_codes<Tile, false>(coder, known, sums, codes, row, 0, lane);
        }
        __syncthreads();
        store_codes<kRows, kColumns, kThreads>(g, p, codes, thread);
        return;
    }
    int *tile = reinterpret_cast<int *>(shared);
    put_sums<Tile>(sums, tile, row, 0, lane);
    finish_tile<kRows, kColumns, kThreads>(g, p, tile, known, thread);
#endif
}

template <class Tile, bool kImages>
int launch_warpgroups(const Gemm &g, int split, cudaStream_t stream) {
    const auto run = [&](auto kernel) {
        return launch_tiles(kernel, g, Tile::kRows, Tile::kColumns, Tile::kThreads, Tile::kTaken, split, stream);
    };
    return g.s.a_unsigned ? run(gemm_warpgroups<Tile, kImages, true>) : run(gemm_warpgroups<Tile, kImages, false>);
}

//                               columns, stages, blocks
using Warpgroup128x128 = WarpgroupTile<128, 5, 1>;
using Warpgroup128x64 = WarpgroupTile<64, 4, 2>;

}  // namespace int8_quant
