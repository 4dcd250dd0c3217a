// What observers see of a tensor on the device: its range, and a histogram of fixed bins.
//
// Neither depends on the order of elements: minimum and maximum do not round, and counts are whole numbers. A NaN makes
// both ends NaN.
#include "epilogue_kernels.cuh"

namespace {
using namespace int8_quant;

constexpr unsigned kThreads = 256;

struct RangeParams {
    std::int64_t count, x_at, parts_at, range_at, blocks;
};

__device__ __forceinline__ void join(float *low, float *high, int thread) {
    for (int step = kThreads / 2; step > 0; step /= 2) {
        __syncthreads();
        if (thread < step) {
            low[thread] = minimum(low[thread], low[thread + step]);
            high[thread] = maximum(high[thread], high[thread + step]);
        }
    }
}

// Each block's range goes to parts[block]; called again with one block for the range of parts, a stride apart.
__global__ void find_range(std::int64_t count, const float *lows, const float *highs, std::int64_t stride, float *to) {
    INT8_SHARED(shared);
    auto *low = reinterpret_cast<float *>(shared), *high = low + kThreads;
    wait_for_previous();
    let_next_begin();
    const int thread = threadIdx.x;
    float least = lows[0], most = highs[0];
    const std::int64_t step = std::int64_t(gridDim.x) * kThreads, first = std::int64_t(blockIdx.x) * kThreads + thread;
    const std::int64_t fours = stride == 1 ? count / 4 : 0;
    for (std::int64_t i = first; i < fours; i += step) {
        const float4 four = reinterpret_cast<const float4 *>(lows)[i];
        least = minimum(minimum(least, four.x), minimum(four.y, minimum(four.z, four.w)));
        most = maximum(maximum(most, four.x), maximum(four.y, maximum(four.z, four.w)));
    }
    for (std::int64_t i = 4 * fours + first; i < count; i += step) {
        least = minimum(least, lows[i * stride]);
        most = maximum(most, highs[i * stride]);
    }
    low[thread] = least;
    high[thread] = most;
    join(low, high, thread);
    if (thread == 0) {
        to[2 * blockIdx.x] = low[0];
        to[2 * blockIdx.x + 1] = high[0];
    }
}

int range(void *const *pointers, const RangeParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;  // there is no range of no elements; nobody asks for it
    const auto *x = pointer<const float>(pointers, p.x_at);
    auto *parts = pointer<float>(pointers, p.parts_at), *to = pointer<float>(pointers, p.range_at);
    const std::size_t shared = 2 * kThreads * sizeof(float);
    const cudaError_t status = launch(find_range, dim3(static_cast<unsigned>(p.blocks)), kThreads, shared, stream, 1,
                                      p.count, x, x, std::int64_t(1), parts);
    if (status != cudaSuccess) return status;
    return launch(find_range, dim3(1), kThreads, shared, stream, 1, p.blocks, static_cast<const float *>(parts),
                  static_cast<const float *>(parts + 1), std::int64_t(2), to);
}
INT8_KERNEL(int8_range, RangeParams, 3, range);

// counts[bin] += 1 for floor((x - low) / width), kept within the bins; what is not finite is left out.
struct HistogramParams {
    std::int64_t count, bins;
    float low, unused_low, width, unused_width;
    std::int64_t x_at, counts_at;
};

__global__ void count_bins(const HistogramParams p, const float *x, unsigned *counts) {
    INT8_SHARED(shared);
    auto *own = reinterpret_cast<unsigned *>(shared);
    for (std::int64_t i = threadIdx.x; i < p.bins; i += blockDim.x) own[i] = 0;
    __syncthreads();
    wait_for_previous();
    let_next_begin();
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.count;
         i += std::int64_t(gridDim.x) * blockDim.x) {
        const float place = floorf(__fdiv_rn(__fadd_rn(x[i], -p.low), p.width));
        if (!(fabsf(x[i]) < INFINITY)) continue;
        const float bin = fminf(fmaxf(place, 0.0f), float(p.bins - 1));
        atomicAdd(own + static_cast<int>(bin), 1u);
    }
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < p.bins; i += blockDim.x)
        if (own[i] != 0) atomicAdd(counts + i, own[i]);
}

int histogram(void *const *pointers, const HistogramParams &p, cudaStream_t stream) {
    auto *counts = pointer<unsigned>(pointers, p.counts_at);
    const cudaError_t status = cudaMemsetAsync(counts, 0, 4 * p.bins, stream);
    if (status != cudaSuccess || p.count == 0) return status;
    return launch(count_bins, dim3(blocks_for(p.count, 8 * kThreads, 1024)), kThreads, 4 * p.bins, stream, 1, p,
                  pointer<const float>(pointers, p.x_at), counts);
}
INT8_KERNEL(int8_histogram, HistogramParams, 2, histogram);

}  // namespace
