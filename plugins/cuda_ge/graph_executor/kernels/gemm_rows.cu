// Products with at most 8 rows, such as layers at batch size 1: as fast as b can be read, each number once.
//
// 1. dot: where the inner axis of b has stride 1, warps go along columns of b and add up their lanes.
// 2. sum: where the columns of b have stride 1, 8 threads read 32 neighbouring columns of one inner index, 32 such groups
//    share the inner indices of a block, and the blocks of a cluster share the inner axis.
// Constant weights are asked for before the kernels that make `a` have ended.
#include <cooperative_groups.h>

#include "../ge/kernel.cuh"
#include "gemm.cuh"

namespace {

using namespace aicore;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kAhead = 4;  // reads of b that a thread has under way

struct GemmRows {
    Gemm gemm;
    std::int64_t share;  // dot: warps that work on one column; sum: blocks of a cluster
};

template <int WIDTH>
struct Numbers {
    float of[WIDTH];
};

template <int WIDTH>
__device__ __forceinline__ Numbers<WIDTH> read(const float *from) {
    Numbers<WIDTH> numbers;
    if constexpr (WIDTH == 4) {
        const float4 four = *reinterpret_cast<const float4 *>(from);
        numbers.of[0] = four.x;
        numbers.of[1] = four.y;
        numbers.of[2] = four.z;
        numbers.of[3] = four.w;
    } else {
        numbers.of[0] = *from;
    }
    return numbers;
}

__device__ __forceinline__ void store(const Gemm &gemm, const float *c, float *y, std::uint32_t batch,
                                      std::int64_t c_offset, int row, std::int64_t column, float sum) {
    float added = 0.0f;
    if (c != nullptr) added = c[c_offset + row * gemm.tail.c_row + column * gemm.tail.c_column];
    y[batch * gemm.rows * gemm.columns + row * gemm.y_row + column * gemm.y_column] =
        finish(gemm.tail, sum, c != nullptr, added);
}

// Lanes of a warp, and `share` warps, read neighbouring groups of WIDTH numbers of one column.
template <int ROWS, int WIDTH>
__global__ void __launch_bounds__(kThreads)
    dot(const float *a, const float *b, const float *c, float *y, const Gemm gemm, int share) {
    __shared__ float of_warps[ROWS][kWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int columns_each = kWarps / share, among = warp % share;
    const std::uint32_t columns = static_cast<std::uint32_t>(gemm.columns);
    const std::uint32_t blocks = (columns + columns_each - 1) / columns_each;
    const std::uint32_t batch = blockIdx.x / blocks, column = blockIdx.x % blocks * columns_each + warp / share;
    const BatchOffsets offsets = batch_offsets(gemm, batch);
    const bool exists = column < columns;
    const int inner = static_cast<int>(gemm.inner), stride = share * 32 * WIDTH;
    const int first = (among * 32 + lane) * WIDTH;
    b += offsets.b + column * gemm.b_column;
    a += offsets.a;
    Numbers<WIDTH> of_b[kAhead];
    auto read_b = [&](std::int64_t k) {
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            of_b[i] = {};
            if (exists && k + i * stride < inner) of_b[i] = read<WIDTH>(b + k + i * stride);
        }
    };
    if (!gemm.b_constant) wait_for_previous();
    read_b(first);
    if (gemm.b_constant) wait_for_previous();
    let_next_begin();
    float sums[ROWS] = {};
    for (std::int64_t k = first; exists && k < inner; k += kAhead * stride) {
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            if (k + i * stride >= inner) continue;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r >= gemm.rows) continue;
                const Numbers<WIDTH> of_a = read<WIDTH>(a + r * gemm.a_row + (k + i * stride) * gemm.a_inner);
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sums[r] = fmaf(of_a.of[j], of_b[i].of[j], sums[r]);
            }
        }
        read_b(k + kAhead * stride);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], offset);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (lane == 0) of_warps[r][warp] = sums[r];
    __syncthreads();
    if (!exists || among != 0 || lane >= gemm.rows) return;
    float sum = 0.0f;
    for (int i = 0; i < share; i++) sum += of_warps[lane][warp + i];
    store(gemm, c, y, batch, offsets.c, lane, column, sum);
}

constexpr int kGroup = 8;                  // threads that read one inner index together
constexpr int kGroups = kThreads / kGroup;  // inner indices that a block reads at once

template <int ROWS, int WIDTH>
__global__ void __launch_bounds__(kThreads)
    sum_columns(const float *a, const float *b, const float *c, float *y, const Gemm gemm, bool clustered) {
    constexpr int kColumns = kGroup * WIDTH;
    __shared__ float of_warps[kWarps][ROWS * kColumns];
    __shared__ float of_block[ROWS * kColumns];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = threadIdx.x / kGroup;
    const std::uint32_t columns = static_cast<std::uint32_t>(gemm.columns);
    const std::uint32_t blocks = (columns + kColumns - 1) / kColumns;
    const std::uint32_t batch = blockIdx.x / blocks, first_column = blockIdx.x % blocks * kColumns;
    const std::uint32_t column = first_column + threadIdx.x % kGroup * WIDTH;
    const BatchOffsets offsets = batch_offsets(gemm, batch);
    const bool exists = column < columns;
    const InnerRange range = split_range(static_cast<std::uint32_t>(gemm.inner), gridDim.y, blockIdx.y, kGroups);
    const int end = static_cast<int>(range.end);
    b += offsets.b + column;
    a += offsets.a;
    Numbers<WIDTH> of_b[kAhead];
    auto read_b = [&](std::int64_t k) {
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            of_b[i] = {};
            if (exists && k + i * kGroups < end) of_b[i] = read<WIDTH>(b + (k + i * kGroups) * gemm.b_inner);
        }
    };
    const int first = static_cast<int>(range.begin) + group;
    if (!gemm.b_constant) wait_for_previous();
    read_b(first);
    if (gemm.b_constant) wait_for_previous();
    let_next_begin();
    float sums[ROWS][WIDTH] = {};
    for (std::int64_t k = first; k < end; k += kAhead * kGroups) {
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            if (k + i * kGroups >= end) continue;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r >= gemm.rows) continue;
                const float of_a = a[r * gemm.a_row + (k + i * kGroups) * gemm.a_inner];
#pragma unroll
                for (int j = 0; j < WIDTH; j++) sums[r][j] = fmaf(of_a, of_b[i].of[j], sums[r][j]);
            }
        }
        read_b(k + kAhead * kGroups);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            sums[r][j] += __shfl_xor_sync(0xffffffffu, sums[r][j], 8);
            sums[r][j] += __shfl_xor_sync(0xffffffffu, sums[r][j], 16);
            if (lane < kGroup) of_warps[warp][r * kColumns + lane * WIDTH + j] = sums[r][j];
        }
    __syncthreads();
    const int mine = threadIdx.x;  // one of the results of this block
    float sum = 0.0f;
    if (mine < ROWS * kColumns) {
#pragma unroll
        for (int i = 0; i < kWarps; i++) sum += of_warps[i][mine];
        of_block[mine] = sum;
    }
#if __CUDA_ARCH__ >= 900
    if (clustered) {
        const auto cluster = cooperative_groups::this_cluster();
        cluster.sync();
        sum = 0.0f;
        if (mine < ROWS * kColumns && cluster.block_rank() == 0)
            for (unsigned i = 0; i < cluster.num_blocks(); i++) sum += cluster.map_shared_rank(of_block, i)[mine];
        cluster.sync();  // nobody leaves while the first still reads
        if (cluster.block_rank() != 0) return;
    }
#endif
    const int row = mine / kColumns;
    const std::uint32_t at = first_column + mine % kColumns;
    if (mine < ROWS * kColumns && row < gemm.rows && at < columns)
        store(gemm, c, y, batch, offsets.c, row, at, sum);
}

template <int ROWS, int WIDTH>
int launch_dot(void *const *pointers, const GemmRows &params, cudaStream_t stream) {
    const Gemm &gemm = params.gemm;
    const int share = static_cast<int>(params.share), columns_each = kWarps / share;
    const std::int64_t blocks = (gemm.columns + columns_each - 1) / columns_each * gemm.batch;
    const GemmPointers<float> on(pointers, gemm);
    return launch_early(dot<ROWS, WIDTH>, static_cast<unsigned>(blocks), kThreads, 0, stream, on.a, on.b, on.c, on.y,
                        gemm, share);
}

template <int ROWS, int WIDTH>
int launch_sum(void *const *pointers, const GemmRows &params, cudaStream_t stream) {
    const Gemm &gemm = params.gemm;
    constexpr int kColumns = kGroup * WIDTH;
    const std::int64_t blocks = (gemm.columns + kColumns - 1) / kColumns * gemm.batch;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(params.share), 1);
    config.blockDim = dim3(kThreads, 1, 1);
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = 1;
    attributes[1].val.clusterDim.y = static_cast<unsigned>(params.share);
    attributes[1].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = params.share > 1 ? 2 : 1;
    const GemmPointers<float> on(pointers, gemm);
    return cudaLaunchKernelEx(&config, sum_columns<ROWS, WIDTH>, on.a, on.b, on.c, on.y, gemm, params.share > 1);
}

template <int ROWS>
int launch_for(bool dots, void *const *pointers, const GemmRows &params, cudaStream_t stream) {
    const bool wide = params.gemm.wide != 0;
    if (dots) {
        return wide ? launch_dot<ROWS, 4>(pointers, params, stream) : launch_dot<ROWS, 1>(pointers, params, stream);
    }
    return wide ? launch_sum<ROWS, 4>(pointers, params, stream) : launch_sum<ROWS, 1>(pointers, params, stream);
}

int launch(bool dots, void *const *pointers, const GemmRows &params, cudaStream_t stream) {
    const Gemm &gemm = params.gemm;
    if (gemm.rows == 0 || gemm.columns == 0 || gemm.batch == 0) return cudaSuccess;
    if (gemm.rows > 8) return cudaErrorInvalidValue;
    if (gemm.rows == 1) return launch_for<1>(dots, pointers, params, stream);
    if (gemm.rows <= 4) return launch_for<4>(dots, pointers, params, stream);
    return launch_for<8>(dots, pointers, params, stream);
}

int gemm_rows_dot(void *const *pointers, const GemmRows &params, cudaStream_t stream) {
    return launch(true, pointers, params, stream);
}
AICORE_KERNEL(gemm_rows_dot, GemmRows, 3, gemm_rows_dot);

int gemm_rows_sum(void *const *pointers, const GemmRows &params, cudaStream_t stream) {
    return launch(false, pointers, params, stream);
}
AICORE_KERNEL(gemm_rows_sum, GemmRows, 3, gemm_rows_sum);

}  // namespace
