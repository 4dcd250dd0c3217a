// softmax(scale * q @ transpose(k) + mask) @ v for each head of each batch entry, without the scores in memory.
//
// 1. A block takes a tile of queries, and walks over the keys step by step. A warp multiplies its queries by the keys of
//    a step; a lane has kThreadQueries x kThreadKeys of the scores, 4 lanes along queries and 8 along keys.
// 2. The softmax goes along (Milakov and Gimelshein, 2018; Dao and others, 2022): the largest score so far and the sum
//    of exponentials beside it; both, and the results so far, are corrected whenever a larger score comes.
// 3. The exponentials go through shared memory, where the warp multiplies them by the values of the step; a lane has the
//    same queries as before.
// Large tiles share the keys among the warps of a block, each with queries of its own. Small ones share the queries,
// each warp with steps of its own; then their results are joined, in the order of warps. Where even that gives too few
// blocks, keys are cut into splits, whose results are joined by a second kernel.
// Operands are read through strides, so that heads need not be put in order. Arithmetic is float32 in IEEE order.
#pragma once

#include <type_traits>

#include "../ge/kernel.cuh"
#include "scalars.cuh"

namespace aicore {

// Strides are in elements; 0 where an axis of the mask is broadcast.
struct AttentionAxes {
    std::int64_t first, batch, head, position, feature;
};

struct AttentionParams {
    std::int64_t batch, heads, queries, keys;
    std::int64_t size;   // of a head of q and k
    std::int64_t width;  // of a head of v and y
    AttentionAxes q, k, v, y, mask;
    float scale, unused;
    std::int64_t wide;    // bits: q, k, v can be read, y written 16 bytes at a time
    std::int64_t splits;  // above 1, results go to the workspace: [splits][rows] of width numbers, then largest, then sums
    std::int64_t rows;    // of queries in all heads
};

enum : std::int64_t { kWideQ = 1, kWideK = 2, kWideV = 4, kWideY = 8 };

template <int SIZE, int THREAD_QUERIES, int THREAD_KEYS, int QUERY_WARPS, int KEY_WARPS, int STAGES>
struct AttentionTile {
    static constexpr int kLaneQueries = 4, kLaneKeys = 8;
    static constexpr int kSize = SIZE;  // the largest head
    static constexpr int kThreadQueries = THREAD_QUERIES, kThreadKeys = THREAD_KEYS;
    static constexpr int kThreadColumns = SIZE / kLaneKeys;
    static constexpr int kQueryWarps = QUERY_WARPS, kKeyWarps = KEY_WARPS, kStages = STAGES;
    static constexpr int kThreads = 32 * QUERY_WARPS * KEY_WARPS;
    static constexpr int kWarpQueries = kLaneQueries * THREAD_QUERIES;
    static constexpr int kQueries = kWarpQueries * QUERY_WARPS;  // of a block
    static constexpr int kKeys = kLaneKeys * THREAD_KEYS;        // of a step
    static constexpr int kPitch = SIZE + 4;                      // 4 more: neighbouring rows lie in other banks
    static constexpr int kPowerPitch = kKeys + 8;
    static constexpr int kUnrolled = THREAD_QUERIES * THREAD_KEYS < 64 ? 2 : 1;  // as registers allow
    static constexpr int kStage = 2 * kKeys * kPitch;  // floats of keys and values
    static constexpr int kPowers = kWarpQueries * kPowerPitch;
    static constexpr int kSharedFloats =
        kQueries * kPitch + KEY_WARPS * STAGES * kStage + QUERY_WARPS * KEY_WARPS * kPowers;
    static_assert(QUERY_WARPS == 1 || KEY_WARPS == 1);
    static_assert(SIZE % 32 == 0 && THREAD_KEYS % 4 == 0);
    static_assert(kWarpQueries <= STAGES * 2 * kKeys, "results are joined in the memory of a stage");
};

// 16 bytes, or zeros.
__device__ __forceinline__ void copy_16(float *shared, const float *global, bool there) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(there ? 16 : 0));
#else
    *reinterpret_cast<float4 *>(shared) =
        there ? *reinterpret_cast<const float4 *>(global) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#endif
}

// Wait until what this thread copied has arrived.
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// [ROWS][SIZE] of an operand as float32; zeros beyond `left` rows and `size` columns.
template <class T, int ROWS, int SIZE, int THREADS>
__device__ __forceinline__ void read_rows(float *shared, const T *from, const AttentionAxes &axes, std::int64_t left,
                                          int size, bool wide, int thread) {
    constexpr int kPitch = SIZE + 4, kFours = SIZE / 4;
    if constexpr (std::is_same<T, float>::value) {
        if (wide) {
            for (int i = thread; i < ROWS * kFours; i += THREADS) {
                const int row = i / kFours, column = i % kFours * 4;
                copy_16(shared + row * kPitch + column, from + row * axes.position + column,
                        row < left && column < size);
            }
            return;
        }
    }
    for (int i = thread; i < ROWS * SIZE; i += THREADS) {
        const int row = i / SIZE, column = i % SIZE;
        const bool there = row < left && column < size;
        shared[row * kPitch + column] = there ? widen(from[row * axes.position + column * axes.feature]) : 0.0f;
    }
}

// What distances are measured from: the largest score, or 0 while every score is -infinity.
__device__ __forceinline__ float base_of(float largest) { return largest == -INFINITY ? 0.0f : largest; }

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }

// Of the 8 lanes that have the same queries.
__device__ __forceinline__ float largest_of_lanes(float x) {
#pragma unroll
    for (int step = 1; step < 8; step *= 2) x = larger(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
    for (int step = 1; step < 8; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// Where the results of one query go.
template <class T> struct AttentionResults {
    T *y;
    float *sums, *largest, *totals;

    // query: of one head. row: of all queries of all heads.
    __device__ __forceinline__ AttentionResults(T *y_, float *workspace, const AttentionParams &p, std::int64_t split,
                                                std::int64_t batch, std::int64_t head, std::int64_t query) {
        const std::int64_t row = (batch * p.heads + head) * p.queries + query, all = p.splits * p.rows;
        y = y_ + p.y.first + batch * p.y.batch + head * p.y.head + query * p.y.position;
        sums = workspace + (split * p.rows + row) * p.width;
        largest = workspace + all * p.width + split * p.rows + row;
        totals = workspace + all * (p.width + 1) + split * p.rows + row;
    }

    // Four neighbouring columns from `column` on, of which some may not exist.
    __device__ __forceinline__ void leave(const float *four, float total, int column, const AttentionParams &p) const {
        const float factor = p.splits > 1 ? 1.0f : 1.0f / total;
        if constexpr (std::is_same<T, float>::value) {
            if (p.splits == 1 && (p.wide & kWideY) && column < p.width) {
                *reinterpret_cast<float4 *>(y + column) =
                    make_float4(four[0] * factor, four[1] * factor, four[2] * factor, four[3] * factor);
                return;
            }
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (column + e >= p.width) continue;
            if (p.splits > 1) sums[column + e] = four[e];
            else y[(column + e) * p.y.feature] = narrow<T>(four[e] * factor);
        }
    }

    // What joining the splits needs beside their sums.
    __device__ __forceinline__ void leave_facts(float most, float total, const AttentionParams &p) const {
        if (p.splits == 1) return;
        *largest = most;
        *totals = total;
    }
};

struct Joined {
    float sums[4], largest, total;
};

// What the warps of a block left for one query, four columns of it; `stages` are those of the first warp.
template <class TILE> __device__ __forceinline__ Joined join_warps(const float *stages, int row, int column) {
    constexpr int kEach = TILE::kStages * TILE::kStage;
    const float *facts = stages + TILE::kKeyWarps * kEach + row * 2;
    Joined all = {{}, -INFINITY, 0.0f};
#pragma unroll
    for (int w = 0; w < TILE::kKeyWarps; w++) all.largest = larger(all.largest, facts[w * TILE::kPowers]);
#pragma unroll
    for (int w = 0; w < TILE::kKeyWarps; w++) {
        const float change = expf(facts[w * TILE::kPowers] - base_of(all.largest));
        const float4 four = *reinterpret_cast<const float4 *>(stages + w * kEach + row * TILE::kPitch + column);
        all.total = fmaf(facts[w * TILE::kPowers + 1], change, all.total);
        all.sums[0] = fmaf(four.x, change, all.sums[0]);
        all.sums[1] = fmaf(four.y, change, all.sums[1]);
        all.sums[2] = fmaf(four.z, change, all.sums[2]);
        all.sums[3] = fmaf(four.w, change, all.sums[3]);
    }
    return all;
}

template <class T, class TILE>
__global__ void __launch_bounds__(TILE::kThreads)
    attend(const T *q, const T *k, const T *v, const T *mask, T *y, float *workspace, const AttentionParams p) {
    extern __shared__ __align__(16) float shared[];
    constexpr int kPitch = TILE::kPitch, kKeys = TILE::kKeys, kPowerPitch = TILE::kPowerPitch;
    constexpr int kThreadQueries = TILE::kThreadQueries, kThreadKeys = TILE::kThreadKeys;
    constexpr int kColumns = TILE::kThreadColumns, kStages = TILE::kStages;
    constexpr int kGroupThreads = 32 * TILE::kQueryWarps;  // that share keys
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int query_warp = warp % TILE::kQueryWarps, key_warp = warp / TILE::kQueryWarps;
    const int lane_query = lane / 8, lane_key = lane % 8;

    const unsigned tiles = static_cast<unsigned>((p.queries + TILE::kQueries - 1) / TILE::kQueries);
    const unsigned splits = static_cast<unsigned>(p.splits), heads = static_cast<unsigned>(p.heads);
    const unsigned split = blockIdx.x % splits, tile = blockIdx.x / splits % tiles, pair = blockIdx.x / splits / tiles;
    const std::int64_t batch = pair / heads, head = pair % heads;
    const std::int64_t first_query = static_cast<std::int64_t>(tile) * TILE::kQueries;
    const int steps = static_cast<int>((p.keys + kKeys - 1) / kKeys);
    const int groups = static_cast<int>(splits) * TILE::kKeyWarps, each = (steps + groups - 1) / groups;
    const int begin = (static_cast<int>(split) * TILE::kKeyWarps + key_warp) * each;
    const int end = begin + each < steps ? begin + each : steps;

    float *of_q = shared;
    float *of_stages = of_q + TILE::kQueries * kPitch + key_warp * kStages * TILE::kStage;
    float *powers = shared + TILE::kQueries * kPitch + TILE::kKeyWarps * kStages * TILE::kStage + warp * TILE::kPowers;
    q += p.q.first + batch * p.q.batch + head * p.q.head + first_query * p.q.position;
    k += p.k.first + batch * p.k.batch + head * p.k.head;
    v += p.v.first + batch * p.v.batch + head * p.v.head;
    const int thread_of_group = threadIdx.x % kGroupThreads;
    const auto read_step = [&](int step) {
        float *stage = of_stages + step % kStages * TILE::kStage;
        const std::int64_t key = static_cast<std::int64_t>(step) * kKeys, left = p.keys - key;
        read_rows<T, kKeys, TILE::kSize, kGroupThreads>(stage, k + key * p.k.position, p.k, left,
                                                        static_cast<int>(p.size), p.wide & kWideK, thread_of_group);
        read_rows<T, kKeys, TILE::kSize, kGroupThreads>(stage + kKeys * kPitch, v + key * p.v.position, p.v, left,
                                                        static_cast<int>(p.width), p.wide & kWideV, thread_of_group);
    };
    const auto meet_group = [] {
        if constexpr (TILE::kQueryWarps == 1) __syncwarp();
        else __syncthreads();
    };

    wait_for_previous();
    read_rows<T, TILE::kQueries, TILE::kSize, TILE::kThreads>(of_q, q, p.q, p.queries - first_query,
                                                              static_cast<int>(p.size), p.wide & kWideQ, threadIdx.x);
    if (begin < end) read_step(begin);
    let_next_begin();
    wait_for_copies();
    __syncthreads();

    float largest[kThreadQueries], total[kThreadQueries], sums[kThreadQueries][kColumns];
#pragma unroll
    for (int i = 0; i < kThreadQueries; i++) {
        largest[i] = -INFINITY;
        total[i] = 0.0f;
#pragma unroll
        for (int c = 0; c < kColumns; c++) sums[i][c] = 0.0f;
    }
    const float *my_q = of_q + (query_warp * TILE::kWarpQueries + lane_query) * kPitch;
    for (int step = begin; step < end; step++) {
        if (kStages > 1 && step + 1 < end) read_step(step + 1);
        const float *my_k = of_stages + step % kStages * TILE::kStage + lane_key * kPitch;
        const float *my_v = of_stages + step % kStages * TILE::kStage + kKeys * kPitch + lane_key * 4;
        float scores[kThreadQueries][kThreadKeys] = {};
#pragma unroll TILE::kUnrolled
        for (int d = 0; d < TILE::kSize; d += 4) {
            float4 of_k[kThreadKeys];
#pragma unroll
            for (int j = 0; j < kThreadKeys; j++)
                of_k[j] = *reinterpret_cast<const float4 *>(my_k + j * 8 * kPitch + d);
#pragma unroll
            for (int i = 0; i < kThreadQueries; i++) {
                const float4 one = *reinterpret_cast<const float4 *>(my_q + i * 4 * kPitch + d);
#pragma unroll
                for (int j = 0; j < kThreadKeys; j++) {
                    float sum = scores[i][j];
                    sum = fmaf(one.x, of_k[j].x, sum);
                    sum = fmaf(one.y, of_k[j].y, sum);
                    sum = fmaf(one.z, of_k[j].z, sum);
                    scores[i][j] = fmaf(one.w, of_k[j].w, sum);
                }
            }
        }
        const std::int64_t key = static_cast<std::int64_t>(step) * kKeys + lane_key;
        const T *my_mask = mask + p.mask.first + batch * p.mask.batch + head * p.mask.head + key * p.mask.feature;
#pragma unroll
        for (int i = 0; i < kThreadQueries; i++) {
            const std::int64_t query = first_query + query_warp * TILE::kWarpQueries + lane_query + 4 * i;
            float most = largest[i];
#pragma unroll
            for (int j = 0; j < kThreadKeys; j++) {
                float score = p.scale * scores[i][j];
                const bool exists = key + 8 * j < p.keys;
                if (mask != nullptr && exists && query < p.queries)
                    score += widen(my_mask[query * p.mask.position + 8 * j * p.mask.feature]);
                scores[i][j] = exists ? score : -INFINITY;
                most = larger(most, scores[i][j]);
            }
            most = largest_of_lanes(most);
            const float base = base_of(most), change = expf(largest[i] - base);
            float added = 0.0f;
#pragma unroll
            for (int j = 0; j < kThreadKeys; j++) {
                const float power = expf(scores[i][j] - base);
                added += power;
                powers[(lane_query + 4 * i) * kPowerPitch + lane_key + 8 * j] = power;
            }
            largest[i] = most;
            total[i] = fmaf(total[i], change, added);
#pragma unroll
            for (int c = 0; c < kColumns; c++) sums[i][c] *= change;
        }
        __syncwarp();
        const float *my_powers = powers + lane_query * kPowerPitch;
#pragma unroll TILE::kUnrolled
        for (int j = 0; j < kKeys; j += 4) {
            float of_powers[kThreadQueries][4];
#pragma unroll
            for (int i = 0; i < kThreadQueries; i++) {
                const float4 four = *reinterpret_cast<const float4 *>(my_powers + i * 4 * kPowerPitch + j);
                of_powers[i][0] = four.x, of_powers[i][1] = four.y, of_powers[i][2] = four.z, of_powers[i][3] = four.w;
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
#pragma unroll
                for (int c = 0; c < kColumns; c += 4) {
                    const float4 of_v = *reinterpret_cast<const float4 *>(my_v + (j + e) * kPitch + c * 8);
#pragma unroll
                    for (int i = 0; i < kThreadQueries; i++) {
                        const float power = of_powers[i][e];
                        sums[i][c] = fmaf(power, of_v.x, sums[i][c]);
                        sums[i][c + 1] = fmaf(power, of_v.y, sums[i][c + 1]);
                        sums[i][c + 2] = fmaf(power, of_v.z, sums[i][c + 2]);
                        sums[i][c + 3] = fmaf(power, of_v.w, sums[i][c + 3]);
                    }
                }
            }
        }
        if (kStages == 1 && step + 1 < end) {
            meet_group();  // everybody has used the stage
            read_step(step + 1);
        }
        wait_for_copies();
        meet_group();
    }
#pragma unroll
    for (int i = 0; i < kThreadQueries; i++) total[i] = sum_of_lanes(total[i]);

    if constexpr (TILE::kKeyWarps == 1) {
#pragma unroll
        for (int i = 0; i < kThreadQueries; i++) {
            const std::int64_t query = first_query + query_warp * TILE::kWarpQueries + lane_query + 4 * i;
            if (query >= p.queries) continue;
            const AttentionResults<T> to(y, workspace, p, split, batch, head, query);
#pragma unroll
            for (int c = 0; c < kColumns; c += 4) to.leave(&sums[i][c], total[i], lane_key * 4 + c * 8, p);
            if (lane_key == 0) to.leave_facts(largest[i], total[i], p);
        }
    } else {
        // Each warp leaves its results in its own stages, the largest score and the total where its powers were.
#pragma unroll
        for (int i = 0; i < kThreadQueries; i++) {
            const int row = lane_query + 4 * i;
#pragma unroll
            for (int c = 0; c < kColumns; c += 4)
                *reinterpret_cast<float4 *>(of_stages + row * kPitch + lane_key * 4 + c * 8) =
                    make_float4(sums[i][c], sums[i][c + 1], sums[i][c + 2], sums[i][c + 3]);
            if (lane_key == 0) {
                powers[row * 2] = largest[i];
                powers[row * 2 + 1] = total[i];
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < TILE::kQueries * TILE::kSize / 4; i += TILE::kThreads) {
            const int row = i / (TILE::kSize / 4), column = i % (TILE::kSize / 4) * 4;
            const std::int64_t query = first_query + row;
            if (query >= p.queries) continue;
            const Joined all = join_warps<TILE>(shared + TILE::kQueries * kPitch, row, column);
            const AttentionResults<T> to(y, workspace, p, split, batch, head, query);
            to.leave(all.sums, all.total, column, p);
            if (column == 0) to.leave_facts(all.largest, all.total, p);
        }
    }
}

// One thread for each number of y joins what the splits left, in their order.
template <class T>
__global__ void __launch_bounds__(256) join_splits(const float *workspace, T *y, const AttentionParams p) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= p.rows * p.width) return;
    const std::int64_t row = i / p.width, column = i % p.width, all = p.splits * p.rows;
    const float *largest = workspace + all * p.width + row, *totals = largest + all;
    float most = -INFINITY, joined = 0.0f, sum = 0.0f;
    for (std::int64_t s = 0; s < p.splits; s++) most = larger(most, largest[s * p.rows]);
    for (std::int64_t s = 0; s < p.splits; s++) {
        const float change = expf(largest[s * p.rows] - base_of(most));
        sum = fmaf(totals[s * p.rows], change, sum);
        joined = fmaf(workspace[(s * p.rows + row) * p.width + column], change, joined);
    }
    const std::int64_t query = row % p.queries, head = row / p.queries % p.heads, batch = row / p.queries / p.heads;
    y[p.y.first + batch * p.y.batch + head * p.y.head + query * p.y.position + column * p.y.feature] =
        narrow<T>(joined / sum);
}

template <class T, class TILE>
int launch_attention(void *const *pointers, const AttentionParams &p, cudaStream_t stream) {
    if (p.rows * p.width == 0) return cudaSuccess;
    const auto *q = static_cast<const T *>(pointers[0]);
    const auto *k = static_cast<const T *>(pointers[1]);
    const auto *v = static_cast<const T *>(pointers[2]);
    const auto *mask = static_cast<const T *>(pointers[3]);
    auto *y = static_cast<T *>(pointers[4]);
    auto *workspace = static_cast<float *>(pointers[5]);
    constexpr int kBytes = 4 * TILE::kSharedFloats;
    const int allowed = cudaFuncSetAttribute(attend<T, TILE>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (allowed != cudaSuccess) return allowed;
    const std::int64_t tiles = (p.queries + TILE::kQueries - 1) / TILE::kQueries;
    const auto blocks = static_cast<unsigned>(p.batch * p.heads * tiles * p.splits);
    const int status = launch_early(attend<T, TILE>, blocks, TILE::kThreads, kBytes, stream, q, k, v, mask, y, workspace, p);
    if (status != cudaSuccess || p.splits == 1) return status;
    return launch_early(join_splits<T>, blocks_for(p.rows * p.width, 256), 256, 0, stream, workspace, y, p);
}

// rows of a block: 64, 16 or 8.
template <class T, int SIZE, int ROWS> struct AttentionTiles;
template <class T, int SIZE> struct AttentionTiles<T, SIZE, 64> {
    using Type = AttentionTile<SIZE, 8, SIZE == 32 ? 8 : 4, 2, 1, 2>;
};
template <class T> struct AttentionTiles<T, 128, 64> {
    using Type = AttentionTile<128, 4, 4, 4, 1, 2>;
};
template <class T, int SIZE> struct AttentionTiles<T, SIZE, 16> {
    using Type = AttentionTile<SIZE, 4, 4, 1, 4, 1>;
};
template <class T, int SIZE> struct AttentionTiles<T, SIZE, 8> {
    using Type = AttentionTile<SIZE, 2, 4, 1, 4, 1>;
};

template <class T, int ROWS> int attention(void *const *pointers, const AttentionParams &p, cudaStream_t stream) {
    const std::int64_t size = p.size > p.width ? p.size : p.width;
    if (size <= 32) return launch_attention<T, typename AttentionTiles<T, 32, ROWS>::Type>(pointers, p, stream);
    if (size <= 64) return launch_attention<T, typename AttentionTiles<T, 64, ROWS>::Type>(pointers, p, stream);
    if (size <= 128) return launch_attention<T, typename AttentionTiles<T, 128, ROWS>::Type>(pointers, p, stream);
    return cudaErrorInvalidValue;
}

}  // namespace aicore
