// Products of bytes on the tensor cores of sm_90: wgmma m64n256k32, fed by the tensor memory accelerator.
//
// A block stays on its multiprocessor and goes from tile to tile, 128 rows by 256 columns. One thread of its first four
// warps asks for stages of 128 bytes of depth; two groups of four warps multiply 64 rows each, straight from shared
// memory, and say which stages they are done with. While they turn sums into results, the next tile's stages arrive.
// Sums never leave registers: a thread has 2 x 64 results of two rows. 8-bit results go out through shared memory.
//
// It takes what needs no more than a scale, a clamp and zero points: results in 8 bits, or sums; the rest is left to
// the other kernels.
#include "copying.cuh"
#include "epilogue_kernels.cuh"
#include "wgmma.cuh"

namespace {
using namespace int8_quant;

constexpr int kRows = 128, kColumns = 256, kDepth = 128, kStages = 4;
constexpr int kStage = (kRows + kColumns) * kDepth, kThreads = 384;
constexpr int kPass = 128, kPitch = kPass + 16;  // columns of results at a time, and bytes between their rows
constexpr int kResults = kRows * kPitch;
// 1024 more, since stages begin at a multiple of that; then results, what columns have, and barriers.
constexpr int kShared = 1024 + kStages * kStage + kResults + 2 * kColumns * int(sizeof(Column)) + 2 * kStages * 8;
static_assert(kShared <= 227 << 10, "of a block");

#if INT8_WGMMA
constexpr int kBytesA = kRows * kDepth, kGroup = 128;

struct Tile {
    int row, column;
};

__device__ __forceinline__ Tile tile_of(const Sizes &s, int number) {
    constexpr int kBand = 8;
    const int down = int((s.rows + kRows - 1) / kRows), across = int((s.columns + kColumns - 1) / kColumns);
    const int band = number / (kBand * across), first = band * kBand;
    const int height = down - first < kBand ? down - first : kBand, rest = number - first * across;
    return {(first + rest % height) * kRows, rest / height * kColumns};
}

// One warp's share of a tile in 8 bits: half of its 16 rows' columns at a time go to shared memory, and on from there
// 16 bytes at a time.
__device__ __forceinline__ void copy_codes(const Gemm &g, const std::int8_t *results, const Tile &at, int row,
                                           int first, int lane) {
    const Sizes &s = g.s;
    auto *out = static_cast<std::int8_t *>(g.e.out);
    const int wide = s.columns % 16 == 0 ? 16 : 1;
    for (int i = lane; i < 16 * kPass / wide; i += 32) {
        const int y = row + i / (kPass / wide), x = i % (kPass / wide) * wide, column = at.column + first + x;
        if (at.row + y >= s.rows || column >= s.columns) continue;
        const std::int8_t *from = results + y * kPitch + x;
        std::int8_t *to = out + std::int64_t(at.row + y) * s.columns + column;
        if (wide == 16) {
            *reinterpret_cast<int4 *>(to) = *reinterpret_cast<const int4 *>(from);
        } else {
            *to = *from;
        }
    }
}

__device__ __forceinline__ int code_at(const Gemm &g, const Target &t, const Column &column, int sum) {
    const int whole = wrapped(unsigned(sum) + unsigned(column.base));
    return code_of(clamp_of(g.e.p, t, __fmul_rn(__int2float_rn(whole), column.scale)), t) & 255;
}

__device__ __forceinline__ void store_codes(const Gemm &g, const Target &t, const Column *columns,
                                            const int (&sums)[128], std::int8_t *results, const Tile &at, int row,
                                            int lane) {
    const int quad = lane / 4, pair = lane % 4 * 2;
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
#pragma unroll
        for (int j = 0; j < 16; j++) {
            const int place = 16 * pass + j, column = 8 * place + pair;
            const Column one = columns[column], two = columns[column + 1];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int low = code_at(g, t, one, sums[4 * place + 2 * half]);
                const int high = code_at(g, t, two, sums[4 * place + 2 * half + 1]);
                std::int8_t *to = results + (row + quad + 8 * half) * kPitch + 8 * j + pair;
                *reinterpret_cast<std::uint16_t *>(to) = static_cast<std::uint16_t>(low | high << 8);
            }
        }
        __syncwarp();
        copy_codes(g, results, at, row, pass * kPass, lane);
        __syncwarp();  // before the next ones take their place
    }
}

__device__ __forceinline__ void store_sums(const Gemm &g, const Column *columns, const int (&sums)[128], const Tile &at,
                                           int row, int lane) {
    const Sizes &s = g.s;
    auto *out = static_cast<std::int32_t *>(g.e.out);
    const bool even = s.columns % 2 == 0;
#pragma unroll
    for (int j = 0; j < 32; j++) {
        const int x = 8 * j + lane % 4 * 2, column = at.column + x;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int y = at.row + row + lane / 4 + 8 * half;
            if (y >= s.rows || column >= s.columns) continue;
            const int one = wrapped(unsigned(sums[4 * j + 2 * half]) + unsigned(columns[x].base));
            const int two = wrapped(unsigned(sums[4 * j + 2 * half + 1]) + unsigned(columns[x + 1].base));
            std::int32_t *to = out + std::int64_t(y) * s.columns + column;
            if (even) {
                *reinterpret_cast<int2 *>(to) = make_int2(one, two);
            } else {
                to[0] = one;
                if (column + 1 < s.columns) to[1] = two;
            }
        }
    }
}

struct Ring {
    int stage = 0, phase = 0;
    __device__ __forceinline__ void next() {
        if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }
};
#endif

template <bool kUnsigned>
__global__ void __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ Gemm g, const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b) {
#if INT8_WGMMA
    extern __shared__ __align__(1024) unsigned char raw[];
    const unsigned start = (shared_address(raw) + 1023u) & ~1023u;
    unsigned char *shared = raw + (start - shared_address(raw));
    auto *results = reinterpret_cast<std::int8_t *>(shared + kStages * kStage);
    auto *all_columns = reinterpret_cast<Column *>(shared + kStages * kStage + kResults);
    const unsigned filled = start + kStages * kStage + kResults + 2 * kColumns * int(sizeof(Column));
    const unsigned emptied = filled + kStages * 8;
    const int thread = threadIdx.x, group = thread / kGroup;
    if (thread == 0) {
        for (int i = 0; i < kStages; i++) {
            barrier_begin(filled + i * 8, 1);
            barrier_begin(emptied + i * 8, 2);
        }
        barriers_are_visible();
    }
    __syncthreads();
    let_next_begin();
    wait_for_previous();

    const Sizes &s = g.s;
    const int steps = int((s.depth + kDepth - 1) / kDepth);
    const int tiles = int((s.rows + kRows - 1) / kRows) * int((s.columns + kColumns - 1) / kColumns);
    Ring ring;
    if (group == 0) {
        give_registers<40>();
        if (thread != 0) return;
        for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
            const Tile at = tile_of(s, number);
            for (int step = 0; step < steps; step++, ring.next()) {
                barrier_wait(emptied + ring.stage * 8, ring.phase ^ 1);
                const unsigned ready = filled + ring.stage * 8, to = start + ring.stage * kStage;
                barrier_expect(ready, kStage);
                copy_box(to, &a, ready, step * kDepth, at.row);
                copy_box(to + kBytesA, &b, ready, step * kDepth, at.column);
            }
        }
        return;
    }
    take_registers<232>();
    const int half = group - 1, own = thread % kGroup, warp = own / 32, lane = own % 32;
    const bool bytes = g.e.p.out_type != kInt32;
    const Target t = target_of(g.e);
    Column *columns = all_columns + half * kColumns;
    for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
        const Tile at = tile_of(s, number);
        for (int i = own; i < kColumns; i += kGroup) {
            const std::int64_t column = at.column + i < s.columns ? at.column + i : s.columns - 1;
            columns[i] = column_of(g.e, column, column);
        }
        int sums[128];
        int before = -1;
        for (int step = 0; step < steps; step++, ring.next()) {
            barrier_wait(filled + ring.stage * 8, ring.phase);
            const unsigned from = start + ring.stage * kStage;
            const std::uint64_t left = matrix_of(from + half * 64 * kDepth), right = matrix_of(from + kBytesA);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < kDepth / 32; k++)
                wgmma_64x256x32<kUnsigned>(sums, left + 2 * k, right + 2 * k, (step | k) != 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (before >= 0 && own == 0) barrier_arrive(emptied + before * 8);
            before = ring.stage;
        }
        wgmma_wait<0>();
        if (own == 0) barrier_arrive(emptied + before * 8);
        group_barrier(1 + half, kGroup);  // what columns have is there
        const int row = half * 64 + warp * 16;
        if (bytes) {
            store_codes(g, t, columns, sums, results, at, row, lane);
        } else {
            store_sums(g, columns, sums, at, row, lane);
        }
        group_barrier(1 + half, kGroup);  // and may change
    }
#endif
}

int gemm(void *const *pointers, const Params &p, cudaStream_t stream) {
    const Gemm g = gemm_of(pointers, p);
    const std::int64_t tiles = ((g.s.rows + kRows - 1) / kRows) * ((g.s.columns + kColumns - 1) / kColumns);
    if (tiles == 0) return cudaSuccess;  // no elements, no launch
    TensorMap a, b;
    int status = map_rows(&a, g.a, g.s.rows, g.s.depth, g.s.a_row, kRows);
    if (status != cudaSuccess) return status;
    status = map_rows(&b, g.b, g.s.columns, g.s.b_row, g.s.b_row, kColumns);
    if (status != cudaSuccess) return status;
    int device = 0, multiprocessors = 0;
    status = cudaGetDevice(&device);
    if (status != cudaSuccess) return status;
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess) return status;
    const auto run = [&](auto kernel) -> int {
        const cudaError_t set = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
        if (set != cudaSuccess) return set;
        const dim3 grid(static_cast<unsigned>(tiles < multiprocessors ? tiles : multiprocessors));
        return launch(kernel, grid, kThreads, kShared, stream, 1, g, a, b);
    };
    return g.s.a_unsigned ? run(multiply<true>) : run(multiply<false>);
}
INT8_KERNEL(int8_gemm_wgmma, Params, 3, gemm);

}  // namespace
