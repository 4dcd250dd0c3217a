// Recurrent layers inside one launch: a cluster of blocks keeps r in registers and exchanges states at each step through
// distributed shared memory, so that a step costs a barrier of the cluster instead of a launch. Sequences do not depend
// on each other: each cluster has a few of its own, and no cluster waits for another.
//
// A block has 32 hidden units. In host tests a cluster is emulated by the fibers of tests/compiled/headers.
#pragma once

#include "../executor/relaxed_capture.cuh"
#include "../ge/kernel.cuh"
#include "recurrent.cuh"

#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#if !defined(AICORE_FIBERS)
#include <cooperative_groups.h>
#endif

// Where there are none, kernels are empty; aicore_cuda_ge/kernels/_recurrent_clusters.py refuses them there.
#if defined(AICORE_FIBERS) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
#define AICORE_HAS_CLUSTERS 1
#else
#define AICORE_HAS_CLUSTERS 0
#endif

namespace aicore {

constexpr int kClusterUnits = 32, kMostClusterBlocks = 8;

// The shared memory of this block.
template <class S>
__device__ __forceinline__ S &shared_of_block() {
#if defined(AICORE_FIBERS)
    return *static_cast<S *>(host::shared_of(blockIdx.x, sizeof(S)));
#else
    extern __shared__ float4 aicore_cluster_words[];
    return *reinterpret_cast<S *>(aicore_cluster_words);
#endif
}

// The shared memory of another block of the cluster. Grids are one cluster wide, so that a block's rank is blockIdx.x.
template <class S>
__device__ __forceinline__ S &shared_of_rank(S &own, unsigned rank) {
#if defined(AICORE_FIBERS)
    return *static_cast<S *>(host::shared_of(rank, sizeof(S)));
#elif __CUDA_ARCH__ >= 900
    return *cooperative_groups::this_cluster().map_shared_rank(&own, rank);
#else
    return own;
#endif
}

// A barrier of the cluster in two parts: what a thread wrote before it arrived, all see after they waited.
__device__ __forceinline__ void arrive_in_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_cluster() {
#if defined(AICORE_FIBERS)
    host::wait(host::State::kAtCluster);
#elif __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// Where a lane's share of COUNT values lies, as sum_lanes leaves it.
struct Share {
    int first, count;
};

// Sums of COUNT values over the lanes whose numbers differ in bits of 2 * OFFSET - 1, each lane left with its share: with
// every bit of its number, from the highest, it keeps the lower half, which has the middle one, or the upper half.
template <int COUNT, int OFFSET>
__device__ __forceinline__ void sum_lanes(float *values) {
    if constexpr (OFFSET > 0) {
        constexpr int kLower = (COUNT + 1) / 2, kUpper = COUNT - kLower;
        const bool upper = (threadIdx.x & OFFSET) != 0;
#pragma unroll
        for (int i = 0; i < kLower; i++) {
            const float low = values[i], high = i < kUpper ? values[i + kLower] : low;
            values[i] = (upper ? high : low) + __shfl_xor_sync(0xffffffffu, upper ? low : high, OFFSET);
        }
        sum_lanes<kLower, OFFSET / 2>(values);
    }
}

// The most values that a lane is left with.
template <int OFFSET>
AICORE_HOST_DEVICE constexpr int most_left(int count) {
    if constexpr (OFFSET > 0) return most_left<OFFSET / 2>((count + 1) / 2);
    return count;
}

// The share of this thread's lane.
template <int OFFSET>
__device__ __forceinline__ Share share_of(int count) {
    Share share = {0, count};
#pragma unroll
    for (int offset = OFFSET; offset > 0; offset /= 2) {
        const int lower = (count + 1) / 2;
        const bool upper = (threadIdx.x & offset) != 0;
        share.first += upper ? lower : 0;
        share.count = upper ? share.count - lower : share.count < lower ? share.count : lower;
        count = lower;
    }
    return share;
}

// Activations are those that ONNX takes by default, with nothing beside them, so that a step has no branches.
inline bool is_plain(const Recurrent &layer, bool peepholes) {
    bool plain = layer.clip > std::numeric_limits<float>::max() && !layer.input_forget && !peepholes;
    const int each = layer.cell == kLstm ? 3 : layer.cell == kRnn ? 1 : 2;
    for (int i = 0; i < each * layer.directions; i++)
        plain = plain && layer.activations[i].kind == (each > 1 && i % each == 0 ? kSigmoid : kTanh);
    return plain;
}

// Within 2 units in the last place of the quotient, without the branch of a division for numbers out of range.
AICORE_HOST_DEVICE float sigmoid_without_branch(float x) {
    const float decay = expf(-fabsf(x)), below = 1.0f + decay;  // from 1 to 2
#if defined(__CUDA_ARCH__)
    const float estimate = __fdividef(1.0f, below);
    const float inverse = fmaf(fmaf(-below, estimate, 1.0f), estimate, estimate);
#else
    const float inverse = 1.0f / below;
#endif
    return (x >= 0.0f ? 1.0f : decay) * inverse;
}

inline unsigned cluster_blocks(const Recurrent &layer) {
    return static_cast<unsigned>((layer.hidden + kClusterUnits - 1) / kClusterUnits);
}

// How many clusters of a kernel this GPU runs at once; asked for once.
inline cudaError_t clusters_at_once(const void *kernel, unsigned blocks, unsigned threads, std::size_t shared, int &count) {
    static std::mutex mutex;
    static std::map<std::tuple<const void *, int, unsigned>, int> known;
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device)) return error;
    const std::lock_guard<std::mutex> lock(mutex);
    const auto key = std::make_tuple(kernel, device, blocks);
    if (const auto found = known.find(key); found != known.end()) {
        count = found->second;
        return cudaSuccess;
    }
    cudaLaunchAttribute size = {};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim.x = blocks;
    size.val.clusterDim.y = 1;
    size.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks, 1, 1);
    config.blockDim = dim3(threads, 1, 1);
    config.dynamicSmemBytes = shared;
    config.attrs = &size;
    config.numAttrs = 1;
    const RelaxedCapture relaxed;
    if (relaxed.status != cudaSuccess) return relaxed.status;
    if (const cudaError_t error = cudaOccupancyMaxActiveClusters(&count, kernel, &config)) return error;
    known[key] = count;
    return cudaSuccess;
}

// How long a step takes with so many sequences in a cluster, in parts of what a sequence takes.
constexpr int kStepParts = 7;

// A kernel for some sequences in each cluster.
template <class Launch>
struct Candidate {
    int sequences;
    const void *kernel;
    unsigned threads;
    std::size_t shared;
    Launch launch;
};

// The candidate whose clusters are through first; of those that take as long, the first.
template <class Launch, std::size_t COUNT>
cudaError_t best_of(const Candidate<Launch> (&candidates)[COUNT], const Recurrent &layer, Launch &best) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Candidate<Launch> &one : candidates) {
        int at_once = 0;
        const cudaError_t error = clusters_at_once(one.kernel, cluster_blocks(layer), one.threads, one.shared, at_once);
        if (error != cudaSuccess) return error;
        if (at_once < 1) continue;
        const std::int64_t clusters = (layer.batch + one.sequences - 1) / one.sequences * layer.directions;
        const std::int64_t time = (clusters + at_once - 1) / at_once * (kStepParts + one.sequences);
        if (time >= least) continue;
        least = time;
        best = one.launch;
    }
    return least == std::numeric_limits<std::int64_t>::max() ? cudaErrorInvalidConfiguration : cudaSuccess;
}

// Launches a grid of clusters that may begin while the kernel before it still ends.
template <class Kernel, class... Arguments>
cudaError_t launch_clusters(Kernel kernel, const Recurrent &layer, int sequences, unsigned threads, std::size_t shared,
                            cudaStream_t stream, const Arguments &...arguments) {
    cudaLaunchConfig_t config = {};
    const unsigned blocks = cluster_blocks(layer);
    config.gridDim = dim3(blocks, static_cast<unsigned>(layer.directions), blocks_for(layer.batch, sequences));
    config.blockDim = dim3(threads, 1, 1);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = blocks;
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace aicore
