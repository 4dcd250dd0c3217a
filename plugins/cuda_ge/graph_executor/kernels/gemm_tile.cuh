// The fast matrix product: a block computes a tile of y, step by step along the inner axis, from shared memory.
//
// 1. cp.async brings kStages steps of a and b into shared memory ahead of use, both as [inner][row or column]. b comes
//    16 bytes at a time where it is aligned; a, and b otherwise, element by element, which transposes it on its way.
// 2. A thread multiplies a column of kThreadRows numbers by a row of kThreadColumns, in groups of 4 that it reads 16
//    bytes at a time, one inner index ahead of the arithmetic. One barrier a step.
// 3. Sums go through shared memory to the tail (bias, activation), which reads and writes whole lines.
// When the inner axis is split, the blocks of one tile form a cluster and add each other's sums, in a fixed order, by
// reading each other's shared memory; before compute capability 9 they write partial sums for gemm_reduce.cu.
#pragma once

#include <cooperative_groups.h>

#include <type_traits>

#include "../ge/kernel.cuh"
#include "gemm.cuh"
#include "scalars.cuh"

namespace aicore {

template <int WARP_ROWS, int WARP_COLUMNS, int THREAD_ROWS, int THREAD_COLUMNS, int STEP, int STAGES, int BLOCKS>
struct Tile {
    static constexpr int kLaneRows = 4, kLaneColumns = 8;  // how the lanes of a warp lie
    static constexpr int kWarpColumns = WARP_COLUMNS;      // how the warps of a block lie
    static constexpr int kThreadRows = THREAD_ROWS, kThreadColumns = THREAD_COLUMNS;
    static constexpr int kWarpHeight = kLaneRows * THREAD_ROWS, kWarpWidth = kLaneColumns * THREAD_COLUMNS;
    static constexpr int kRows = WARP_ROWS * kWarpHeight, kColumns = WARP_COLUMNS * kWarpWidth;
    static constexpr int kThreads = WARP_ROWS * WARP_COLUMNS * 32;
    static constexpr int kStep = STEP, kStages = STAGES;
    static constexpr int kBlocks = BLOCKS;                                  // of an SM, that registers should allow
    static constexpr int kPitchA = kRows + 4, kPitchB = kColumns + 4;       // 4 more spread transposed writes over banks
    static constexpr int kStageA = STEP * kPitchA, kStageB = STEP * kPitchB;  // floats
    static constexpr int kPasses = THREAD_ROWS / 4;                         // of the tail, each over a part of the rows
    static constexpr int kPassRows = kRows / kPasses;
    static constexpr int kLoadFloats = STAGES * (kStageA + kStageB), kPassFloats = kPassRows * kColumns;
    static constexpr int kSharedBytes = 4 * (kLoadFloats > kPassFloats ? kLoadFloats : kPassFloats);
    static constexpr int kBand = 8;  // rows of tiles that follow each other; see tile_at

    static_assert(THREAD_ROWS % 4 == 0 && THREAD_COLUMNS % 4 == 0 && STEP % 2 == 0);
    static_assert(kThreads % STEP == 0 && kThreads % kRows == 0 && kThreads % kColumns == 0);
};

// 4 bytes, or zero.
__device__ __forceinline__ void copy_async_4(float *shared, const float *global, bool there) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(global), "r"(there ? 4 : 0));
#else
    *shared = there ? *global : 0.0f;
#endif
}

// 16 bytes, or zeros.
__device__ __forceinline__ void copy_async_16(float *shared, const float *global, bool there) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(there ? 16 : 0));
#else
    *reinterpret_cast<float4 *>(shared) =
        there ? *reinterpret_cast<const float4 *>(global) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#endif
}

__device__ __forceinline__ void close_group() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}

// Wait until all but the `LEFT` latest groups have arrived.
template <int LEFT>
__device__ __forceinline__ void wait_for_groups() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// Narrow types pass through registers, where they become float32.
__device__ __forceinline__ void copy_element(float *shared, const float *global, bool there) {
    copy_async_4(shared, global, there);
}
template <class T>
__device__ __forceinline__ void copy_element(float *shared, const T *global, bool there) {
    *shared = there ? widen(*global) : 0.0f;
}

// Copies [STEP][EXTENT] of one operand element by element. Neighbouring threads follow the axis whose stride is 1.
template <class T, int EXTENT, int STEP, int THREADS>
struct ElementLoads {
    static constexpr int kCount = EXTENT * STEP / THREADS, kPitch = EXTENT + 4;
    const T *source;
    std::int64_t source_each, source_step;
    int shared, shared_each;
    int inner, inner_each;
    unsigned there;  // a bit for each of the copies: inside the matrix along its outer axis

    // `first` is the element of this tile at inner index 0; `left` is how many outer indices from there exist.
    __device__ __forceinline__ ElementLoads(const T *first, std::int64_t outer_stride, std::int64_t inner_stride,
                                            std::int64_t left) {
        const int thread = threadIdx.x;
        const bool along_inner = inner_stride == 1;
        const int outer = along_inner ? thread / STEP : thread % EXTENT;
        const int outer_each = along_inner ? THREADS / STEP : 0;
        inner = along_inner ? thread % STEP : thread / EXTENT;
        inner_each = along_inner ? 0 : THREADS / EXTENT;
        source = first + outer * outer_stride + inner * inner_stride;
        source_each = outer_each * outer_stride + inner_each * inner_stride;
        source_step = STEP * inner_stride;
        shared = inner * kPitch + outer;
        shared_each = inner_each * kPitch + outer_each;
        there = 0;
#pragma unroll
        for (int i = 0; i < kCount; i++) there |= (outer + i * outer_each < left ? 1u : 0u) << i;
    }

    // `left` is how many inner indices from the beginning of this step exist.
    __device__ __forceinline__ void load(float *stage, int step, int left) const {
        const T *from = source + step * source_step;
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            const bool exists = (there >> i & 1u) != 0 && inner + i * inner_each < left;
            copy_element(stage + shared + i * shared_each, from + i * source_each, exists);
        }
    }
};

// Copies [STEP][EXTENT] of an operand whose outer axis has stride 1, 16 bytes at a time.
template <int EXTENT, int STEP, int THREADS>
struct WideLoads {
    static constexpr int kCount = EXTENT * STEP / 4 / THREADS, kPitch = EXTENT + 4;
    static constexpr int kInnerEach = THREADS / (EXTENT / 4);
    static_assert(kCount * THREADS * 4 == EXTENT * STEP && THREADS % (EXTENT / 4) == 0);
    const float *source;
    std::int64_t inner_stride;
    int shared, inner;
    bool there;

    __device__ __forceinline__ WideLoads(const float *first, std::int64_t, std::int64_t inner_stride_,
                                         std::int64_t left)
        : inner_stride(inner_stride_) {
        const int thread = threadIdx.x;
        const int outer = thread % (EXTENT / 4) * 4;
        inner = thread / (EXTENT / 4);
        source = first + outer + inner * inner_stride;
        shared = inner * kPitch + outer;
        there = outer < left;
    }

    __device__ __forceinline__ void load(float *stage, int step, int left) const {
        const float *from = source + step * STEP * inner_stride;
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            const bool exists = there && inner + i * kInnerEach < left;
            copy_async_16(stage + shared + i * kInnerEach * kPitch, from + i * kInnerEach * inner_stride, exists);
        }
    }
};

template <class T, class TILE, bool WIDE>
struct LoadsOfB {
    using Type = ElementLoads<T, TILE::kColumns, TILE::kStep, TILE::kThreads>;
};
template <class TILE>
struct LoadsOfB<float, TILE, true> {
    using Type = WideLoads<TILE::kColumns, TILE::kStep, TILE::kThreads>;
};

// Four neighbouring elements of y, of which `count` exist, from sums of the product.
template <class T>
__device__ __forceinline__ void store_four(const Gemm &gemm, const T *c, T *y, float4 sums, bool wide, int count) {
    const float product[4] = {sums.x, sums.y, sums.z, sums.w};
    float result[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const bool has_c = c != nullptr && j < count;
        const float added = has_c ? widen(c[j * gemm.tail.c_column]) : 0.0f;
        result[j] = gemm.partial ? product[j] : finish(gemm.tail, product[j], has_c, added);
    }
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

template <class T, class TILE, bool WIDE>
__global__ void __launch_bounds__(TILE::kThreads, TILE::kBlocks)
    gemm_tile(const T *a, const T *b, const T *c, T *y, const Gemm gemm, bool clustered) {
    extern __shared__ __align__(16) float shared[];
    constexpr int kStages = TILE::kStages, kStep = TILE::kStep;
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

    const ElementLoads<T, TILE::kRows, kStep, TILE::kThreads> loads_a(
        a + offsets.a + row * gemm.a_row + range.begin * gemm.a_inner, gemm.a_row, gemm.a_inner, gemm.rows - row);
    const typename LoadsOfB<T, TILE, WIDE>::Type loads_b(
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
    for (int s = 0; s < kStages - 1; s++)
        if (s < steps) load_b(s, s);
    if (gemm.b_constant) wait_for_previous();
    let_next_begin();
#pragma unroll
    for (int s = 0; s < kStages - 1; s++) {
        if (s < steps) load_a(s, s);
        close_group();
    }

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int lane_row = lane / TILE::kLaneColumns, lane_column = lane % TILE::kLaneColumns;
    const int warp_row = warp / TILE::kWarpColumns, warp_column = warp % TILE::kWarpColumns;
    const int offset_a = warp_row * TILE::kWarpHeight + lane_row * 4;
    const int offset_b = warp_column * TILE::kWarpWidth + lane_column * 4;

    float sums[kThreadRows][kThreadColumns] = {};
    float4 fragment_a[2][kThreadRows / 4], fragment_b[2][kThreadColumns / 4];
    const float *from_a = shared_a + offset_a, *from_b = shared_b + offset_b;
    auto read_fragments = [&](int inner, int buffer) {
#pragma unroll
        for (int q = 0; q < kThreadRows / 4; q++)
            fragment_a[buffer][q] = *reinterpret_cast<const float4 *>(from_a + inner * TILE::kPitchA +
                                                                      q * TILE::kLaneRows * 4);
#pragma unroll
        for (int q = 0; q < kThreadColumns / 4; q++)
            fragment_b[buffer][q] = *reinterpret_cast<const float4 *>(from_b + inner * TILE::kPitchB +
                                                                      q * TILE::kLaneColumns * 4);
    };

    wait_for_groups<kStages - 2>();
    __syncthreads();
    if (steps > 0) read_fragments(0, 0);
    int reading = 0, writing = kStages - 1;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int inner = 0; inner < kStep; inner++) {
            if (inner == kStep - 1) {  // the next fragments come from the next stage: see that it is there
                wait_for_groups<kStages - 2>();
                __syncthreads();
                reading = reading + 1 == kStages ? 0 : reading + 1;
                from_a = shared_a + reading * TILE::kStageA + offset_a;
                from_b = shared_b + reading * TILE::kStageB + offset_b;
            }
            read_fragments((inner + 1) % kStep, (inner + 1) % 2);
            if (inner == 0) {  // into the stage that all threads finished before the latest barrier
                if (step + kStages - 1 < steps) {
                    load_a(step + kStages - 1, writing);
                    load_b(step + kStages - 1, writing);
                }
                close_group();
                writing = writing + 1 == kStages ? 0 : writing + 1;
            }
            const float *left = reinterpret_cast<const float *>(fragment_a[inner % 2]);
            const float *right = reinterpret_cast<const float *>(fragment_b[inner % 2]);
#pragma unroll
            for (int i = 0; i < kThreadRows; i++)
#pragma unroll
                for (int j = 0; j < kThreadColumns; j++) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
    }

    wait_for_groups<0>();
    __syncthreads();
    int share = 0, shares = 1;
#if __CUDA_ARCH__ >= 900
    const auto cluster = cooperative_groups::this_cluster();
    if (clustered) {
        share = static_cast<int>(cluster.block_rank());
        shares = static_cast<int>(cluster.num_blocks());
    }
#endif
    const std::int64_t part = gemm.partial ? (blockIdx.y * gemm.batch + at.batch) : at.batch;
    T *to = y + part * gemm.rows * gemm.columns;
    const T *from_c = c == nullptr || gemm.partial ? nullptr : c + offsets.c;
#pragma unroll 1
    for (int pass = 0; pass < TILE::kPasses; pass++) {
#pragma unroll
        for (int q = 0; q < TILE::kPasses; q++) {
            if (q != pass) continue;  // so that the indices of sums are constants
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < kThreadColumns; j += 4) {
                    const float *four = &sums[q * 4 + i][j];
                    const int pass_row = (warp_row * TILE::kLaneRows + lane_row) * 4 + i;
                    *reinterpret_cast<float4 *>(shared + pass_row * TILE::kColumns + offset_b +
                                                j / 4 * TILE::kLaneColumns * 4) =
                        make_float4(four[0], four[1], four[2], four[3]);
                }
        }
#if __CUDA_ARCH__ >= 900
        if (clustered)
            cluster.sync();
        else
#endif
            __syncthreads();
        constexpr int kFours = TILE::kColumns / 4;
#pragma unroll 1
        for (int i = share * TILE::kThreads + threadIdx.x; i < TILE::kPassRows * kFours;
             i += shares * TILE::kThreads) {
            const int pass_row = i / kFours, pass_column = i % kFours * 4;
            constexpr int kBandRows = TILE::kLaneRows * 4;
            const std::int64_t y_row = row + pass_row / kBandRows * TILE::kWarpHeight + pass * kBandRows +
                                       pass_row % kBandRows;
            const std::int64_t y_column = column + pass_column;
            if (y_row >= gemm.rows || y_column >= gemm.columns) continue;
            float4 total = reinterpret_cast<const float4 *>(shared)[i];
#if __CUDA_ARCH__ >= 900
            if (clustered) {
                total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                for (int other = 0; other < shares; other++) {
                    const float4 more = reinterpret_cast<const float4 *>(cluster.map_shared_rank(shared, other))[i];
                    total.x += more.x;
                    total.y += more.y;
                    total.z += more.z;
                    total.w += more.w;
                }
            }
#endif
            const std::int64_t exist = gemm.columns - y_column;
            store_four(gemm,
                       from_c == nullptr ? nullptr
                                         : from_c + y_row * gemm.tail.c_row + y_column * gemm.tail.c_column,
                       to + y_row * gemm.y_row + y_column * gemm.y_column, total, gemm.wide_y != 0,
                       exist < 4 ? static_cast<int>(exist) : 4);
        }
#if __CUDA_ARCH__ >= 900
        if (clustered)
            cluster.sync();  // nobody overwrites, or leaves, what another still reads
        else
#endif
            __syncthreads();
    }
}

// Launches over all tiles and splits; splits become a cluster where partial sums are not asked for.
template <class T, class TILE, bool WIDE>
int launch_gemm_tile(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    if (gemm.rows == 0 || gemm.columns == 0 || gemm.batch == 0) return cudaSuccess;
    const auto kernel = gemm_tile<T, TILE, WIDE>;
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, TILE::kSharedBytes);
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

// With 16-byte copies of b where bind saw that they are aligned.
template <class TILE>
int launch_gemm_float(void *const *pointers, const Gemm &gemm, cudaStream_t stream) {
    return gemm.wide ? launch_gemm_tile<float, TILE, true>(pointers, gemm, stream)
                     : launch_gemm_tile<float, TILE, false>(pointers, gemm, stream);
}

}  // namespace aicore
