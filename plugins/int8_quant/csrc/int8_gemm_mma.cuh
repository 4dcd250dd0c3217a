// A tile of a product of bytes on tensor cores, by mma.sync m16n8k32, for sm_80 and later.
//
// The stages are those of the kernel on dp4a. A warp reads 16x32 pieces of a and 16x32 of b (two of eight columns) with
// ldmatrix, the next ones while it multiplies these. Sums become codes where they are, if that is all; the addend's come
// along with the first stages. Everything else takes the way through shared memory of tile.cuh.
#pragma once

#include "codes.cuh"

namespace int8_quant {

#if INT8_ASYNC_COPIES && !defined(INT8_EMULATED)
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

// kSets: of registers for pieces of a and b. Two, so that the next pieces are read while these are multiplied; or one,
// where other blocks of the multiprocessor multiply meanwhile, and need the registers.
// kStreams: blocks of a multiprocessor that go from tile to tile, where results are codes; 0 for a block each tile.
// kAhead: codes have room of their own behind the stages, so that the addend's may come while the stages are in use.
template <int kWarpsDown_, int kWarpsAcross_, int kRows_, int kColumns_, int kDepth_, int kStages_, int kBlocks_,
          int kSets_ = 2, int kStreams_ = 0>
struct MmaTile {
    static constexpr int kWarpsDown = kWarpsDown_, kWarpsAcross = kWarpsAcross_, kRows = kRows_, kColumns = kColumns_;
    static constexpr int kDepth = kDepth_, kStages = kStages_, kBlocks = kBlocks_, kSets = kSets_;
    static constexpr int kThreads = 32 * kWarpsDown * kWarpsAcross, kStreams = kStreams_;
    static constexpr int kTall = kRows / kWarpsDown, kWide = kColumns / kWarpsAcross;  // of a warp
    static constexpr int kStage = (kRows + kColumns) * kDepth, kAll = kStages * kStage;
    static constexpr int kCodes = kRows * codes_pitch(kColumns);
    static constexpr bool kAhead = kSets == 1;
    static constexpr int kShared = tile_bytes<kRows, kColumns>(kAll + (kAhead ? kCodes : 0));
    static_assert(kAhead || kCodes <= kAll, "codes take the place of the stages");
};

template <class Tile, bool kImages, bool kUnsigned>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) gemm_mma(const __grid_constant__ Gemm g) {
#if INT8_ASYNC_COPIES
    constexpr int kDepth = Tile::kDepth, kStages = Tile::kStages, kPieces = kDepth / 32;
    constexpr int kDown = Tile::kTall / 16, kAcross = Tile::kWide / 8;
    static_assert(kPieces % Tile::kSets == 0 && kAcross % 2 == 0, "pieces alternate between two sets of registers");
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
    const bool in_codes = gives_codes(g, gridDim.z), adds = in_codes && g.e.addend != nullptr;
    auto *codes = stages + (Tile::kAhead ? Tile::kAll : 0);
#pragma unroll
    for (int stage = 0; stage < kStages - 1; stage++) {
        if (stage < share.count) begin(stage);
        if (Tile::kAhead && adds && stage == kStages - 2)
            begin_addend<Tile::kRows, Tile::kColumns, Tile::kThreads>(g, p, codes, thread);
        commit_copies();
    }
    using Parameters = Known<Tile::kColumns>;
    auto *known = reinterpret_cast<Parameters *>(shared + Tile::kShared - int(sizeof(Parameters)));
    get_known<Tile::kColumns, Tile::kThreads>(g, p, known, thread);
    wait_for_copies<kStages - 2>();
    __syncthreads();

    int sums[kDown][kAcross][4] = {};
    unsigned a[Tile::kSets][kDown][4], b[Tile::kSets][kAcross / 2][4];
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
    auto multiply = [&](int set) {
#pragma unroll
        for (int i = 0; i < kDown; i++) {
#pragma unroll
            for (int j = 0; j < kAcross; j++) {
                const unsigned *right = b[set][j / 2] + j % 2 * 2;
                if (kUnsigned) {
                    multiply_add_unsigned(sums[i][j], a[set][i], right[0], right[1]);
                } else {
                    multiply_add(sums[i][j], a[set][i], right[0], right[1]);
                }
            }
        }
    };
    int reading = 0, writing = kStages - 1;
    auto go_on = [&](int step) {
        if (step + kStages - 1 < share.count) begin(writing);
        commit_copies();
        writing = writing + 1 == kStages ? 0 : writing + 1;
    };
    auto next_stage = [&] {
        wait_for_copies<kStages - 2>();
        __syncthreads();
        reading = reading + 1 == kStages ? 0 : reading + 1;
    };
    if (Tile::kSets == 1) {
        for (int step = 0; step < share.count; step++) {
            go_on(step);
#pragma unroll
            for (int piece = 0; piece < kPieces; piece++) {
                read(reading, piece, 0);
                multiply(0);
            }
            next_stage();
        }
    } else {
        read(0, 0, 0);
        for (int step = 0; step < share.count; step++) {
#pragma unroll
            for (int piece = 0; piece < kPieces; piece++) {
                if (piece == kPieces - 1) next_stage();
                read(reading, (piece + 1) % kPieces, (piece + 1) % Tile::kSets);
                if (piece == 0) go_on(step);
                multiply(piece % Tile::kSets);
            }
        }
    }

    wait_for_copies<0>();
    __syncthreads();  // the sums take the place of the stages
    if (in_codes) {
        const Coder coder(g, known->target);
        if (!Tile::kAhead && adds) {
            begin_addend<Tile::kRows, Tile::kColumns, Tile::kThreads>(g, p, codes, thread);
            commit_copies();
            wait_for_copies<0>();
            __syncthreads();
        }
        if (adds) {
            put_codes<Tile, true>(coder, known, sums, codes, row, column, lane);
        } else {
            put_codes<Tile, false>(coder, known, sums, codes, row, column, lane);
        }
        __syncthreads();
        store_codes<Tile::kRows, Tile::kColumns, Tile::kThreads>(g, p, codes, thread);
        return;
    }
    int *tile = reinterpret_cast<int *>(shared);
    put_sums<Tile>(sums, tile, row, column, lane);
    finish_tile<Tile::kRows, Tile::kColumns, Tile::kThreads>(g, p, tile, known, thread);
#endif
}

// The same for results that are codes, from tile to tile: stages of the next tiles, with their addends, arrive while a
// tile is multiplied and finished. So as many stages as tiles may be ahead, each with room for the codes of a tile.
template <class Tile>
constexpr int stream_bytes() {
    return Tile::kAll + Tile::kStages * Tile::kCodes + 2 * int(sizeof(Known<Tile::kColumns>));
}

template <class Tile, bool kImages, bool kUnsigned>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kStreams) stream_mma(const __grid_constant__ Gemm g, int tiles) {
#if INT8_ASYNC_COPIES
    constexpr int kDepth = Tile::kDepth, kStages = Tile::kStages, kRows = Tile::kRows, kColumns = Tile::kColumns;
    constexpr int kThreads = Tile::kThreads, kDown = Tile::kTall / 16, kAcross = Tile::kWide / 8;
    INT8_SHARED(shared);
    auto *stages = reinterpret_cast<std::int8_t *>(shared);
    auto *known = reinterpret_cast<Known<kColumns> *>(shared + Tile::kAll + kStages * Tile::kCodes);
    let_next_begin();
    wait_for_previous();

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, each = int(gridDim.x);
    const int row = warp / Tile::kWarpsAcross * Tile::kTall, column = warp % Tile::kWarpsAcross * Tile::kWide;
    const int steps = int((g.s.depth + kDepth - 1) / kDepth);
    const int point = kImages && g.e.x_point != nullptr ? g.e.x_point[0] & 255 : 0;
    const bool adds = g.e.addend != nullptr;
    auto codes_of = [&](int number) { return stages + Tile::kAll + number % kStages * Tile::kCodes; };
    using RowsOfA = RowCopies<kRows, kDepth, kThreads, kImages>;
    using RowsOfB = RowCopies<kColumns, kDepth, kThreads, false>;
    auto rows_of_a = [&](const Place &p) {
        return RowsOfA(g.s, g.a + p.group * g.s.a_group, g.s.a_row, p.row, int(g.s.rows), 0, point, thread);
    };
    auto rows_of_b = [&](const Place &p) {
        return RowsOfB(g.s, g.b + p.group * g.s.columns * g.s.b_row, g.s.b_row, p.column, int(g.s.columns), 0, 0, thread);
    };

    int ahead = blockIdx.x, ahead_number = 0, ahead_step = 0, writing = 0;
    Place ahead_place = place_of<kRows, kColumns>(g.s, ahead);
    RowsOfA copies_a = rows_of_a(ahead_place);
    RowsOfB copies_b = rows_of_b(ahead_place);
    auto ask = [&] {
        if (ahead < tiles) {
            if (ahead_step == 0 && adds)
                begin_addend<kRows, kColumns, kThreads>(g, ahead_place, codes_of(ahead_number), thread);
            copies_a.begin(g.s, stages + writing * Tile::kStage);
            copies_b.begin(g.s, stages + writing * Tile::kStage + kRows * kDepth);
            if (++ahead_step == steps) {
                ahead_step = 0, ahead_number++, ahead += each;
                ahead_place = place_of<kRows, kColumns>(g.s, ahead < tiles ? ahead : int(blockIdx.x));
                copies_a = rows_of_a(ahead_place);
                copies_b = rows_of_b(ahead_place);
            }
        }
        commit_copies();
        writing = writing + 1 == kStages ? 0 : writing + 1;
    };
#pragma unroll
    for (int stage = 0; stage < kStages - 1; stage++) ask();

    const int row_a = row + lane % 16, chunk_a = lane / 16;
    const int row_b = column + lane % 8 + lane / 16 * 8, chunk_b = lane / 8 % 2;
    int reading = 0, number = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += each, number++) {
        const Place p = place_of<kRows, kColumns>(g.s, tile);
        Known<kColumns> *own = known + number % 2;
        get_known<kColumns, kThreads>(g, p, own, thread);
        int sums[kDown][kAcross][4] = {};
        for (int step = 0; step < steps; step++) {
            wait_for_copies<kStages - 2>();
            __syncthreads();  // everybody is done with the stage before this one, too
            ask();
            const std::int8_t *from = stages + reading * Tile::kStage;
#pragma unroll
            for (int piece = 0; piece < kDepth / 32; piece++) {
                unsigned a[kDown][4], b[kAcross / 2][4];
#pragma unroll
                for (int i = 0; i < kDown; i++)
                    read_matrices(a[i], from + swizzled<kDepth>(row_a + 16 * i, 2 * piece + chunk_a));
#pragma unroll
                for (int j = 0; j < kAcross / 2; j++)
                    read_matrices(b[j], from + kRows * kDepth + swizzled<kDepth>(row_b + 16 * j, 2 * piece + chunk_b));
#pragma unroll
                for (int i = 0; i < kDown; i++) {
#pragma unroll
                    for (int j = 0; j < kAcross; j++) {
                        const unsigned *right = b[j / 2] + j % 2 * 2;
                        if (kUnsigned) {
                            multiply_add_unsigned(sums[i][j], a[i], right[0], right[1]);
                        } else {
                            multiply_add(sums[i][j], a[i], right[0], right[1]);
                        }
                    }
                }
            }
            reading = reading + 1 == kStages ? 0 : reading + 1;
        }
        std::int8_t *codes = codes_of(number);
        const Coder coder(g, own->target);
        if (adds) {
            put_codes<Tile, true>(coder, own, sums, codes, row, column, lane);
        } else {
            put_codes<Tile, false>(coder, own, sums, codes, row, column, lane);
        }
        __syncthreads();
        store_codes<kRows, kColumns, kThreads>(g, p, codes, thread);
    }
    wait_for_copies<0>();
#endif
}

// As many blocks as run at a time, for each group of columns.
template <class Tile, class Kernel>
int launch_stream(Kernel kernel, const Gemm &g, cudaStream_t stream) {
    const std::int64_t down = (g.s.rows + Tile::kRows - 1) / Tile::kRows;
    const std::int64_t tiles = down * ((g.s.columns + Tile::kColumns - 1) / Tile::kColumns);
    if (tiles == 0 || g.s.groups == 0) return cudaSuccess;  // no elements, no launch
    constexpr int kBytes = stream_bytes<Tile>();
    int device = 0, multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status != cudaSuccess) return status;
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess) return status;
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (status != cudaSuccess) return status;
    const std::int64_t most = std::int64_t(multiprocessors) * Tile::kStreams;
    const dim3 grid(static_cast<unsigned>(tiles < most ? tiles : most), static_cast<unsigned>(g.s.groups));
    return launch(kernel, grid, Tile::kThreads, kBytes, stream, 1, g, int(tiles));
}

template <class Tile, bool kImages>
int launch_mma(const Gemm &g, int split, cudaStream_t stream) {
    const auto run = [&](auto kernel) {
        return launch_tiles(kernel, g, Tile::kRows, Tile::kColumns, Tile::kThreads, Tile::kShared, split, stream);
    };
    if constexpr (Tile::kStreams > 0) {
        if (gives_codes(g, unsigned(split))) {
            return g.s.a_unsigned ? launch_stream<Tile>(stream_mma<Tile, kImages, true>, g, stream)
                                  : launch_stream<Tile>(stream_mma<Tile, kImages, false>, g, stream);
        }
    }
    return g.s.a_unsigned ? run(gemm_mma<Tile, kImages, true>) : run(gemm_mma<Tile, kImages, false>);
}

//                       warps, rows, columns, depth, stages, blocks
using Mma256x128 = MmaTile<4, 2, 256, 128, 128, 4, 1>;
using Mma128x256 = MmaTile<2, 4, 128, 256, 128, 4, 1>;
using Mma128x128 = MmaTile<2, 2, 128, 128, 128, 3, 2>;
using Mma64x64 = MmaTile<2, 2, 64, 64, 128, 4, 3>;
// For few stages: more blocks at a time, so that some compute while others wait for memory.
using Mma128x128s = MmaTile<2, 4, 128, 128, 64, 3, 2, 1, 2>;
using Mma128x64s = MmaTile<4, 2, 128, 64, 64, 3, 2, 1, 3>;
using Mma64x64s = MmaTile<2, 2, 64, 64, 64, 4, 5, 1, 4>;

// One of these, by its place among them. images: a has windows of images.
int launch_short_mma(int tile, bool images, const Gemm &g, int split, cudaStream_t stream);

}  // namespace int8_quant
