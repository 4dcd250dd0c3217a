// LAMB for up to 64 tensors in three launches, since a step needs the norms of whole tensors:
// 1. each block makes new moments of its part, and the sums of squares of the parameter and of the direction there;
// 2. a block a tensor adds these up, in the order of the parts, to the tensor's own learning rate;
// 3. each block steps; it computes the direction of its part again, which is less to move than to keep it.
// Sums of squares are float64, so that none overflows.
#include "tensors.cuh"

namespace {

using namespace aicore;

struct Lamb {
    float weight_decay, rest1, beta2, rest2, eps, log1, log2;
    float part1 = 0, part2 = 0;

    explicit Lamb(const TensorParams &p)
        : weight_decay(p.numbers[0].value), rest1(p.numbers[1].value), beta2(p.numbers[2].value),
          rest2(p.numbers[3].value), eps(p.numbers[4].value), log1(p.numbers[5].value), log2(p.numbers[6].value) {}

    __device__ void begin(float step) {
        part1 = begun(log1, step);
        part2 = begun(log2, step);
    }
    __device__ __forceinline__ float direction(float p, float mean, float squares, bool decays) const {
        const float change = mean / part1 / (sqrtf(squares / part2) + eps);
        return decays ? change + weight_decay * p : change;
    }
};

// Workspace: two float64 for each block, then a float32 for each tensor.
__global__ void __launch_bounds__(kThreads) moments(const std::int64_t *step, const float *scale, double *sums, Lamb lamb,
                                                    const __grid_constant__ Tensors<4, 3> tensors) {
    __shared__ double shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    const Part part = part_of(tensors, blockIdx.x);
    const float factor = scale == nullptr ? 1.0f : *scale;
    lamb.begin(static_cast<float>(*step));
    double lengths[2] = {0, 0};
    for (std::int64_t at = part.begin + threadIdx.x * kWidth; at < part.end; at += kThreads * kWidth) {
        const Four p = read_four(tensors.read[0][part.tensor], at, part.end);
        const Four g = read_four(tensors.read[1][part.tensor], at, part.end);
        Four mean = read_four(tensors.read[2][part.tensor], at, part.end);
        Four squares = read_four(tensors.read[3][part.tensor], at, part.end);
#pragma unroll
        for (int i = 0; i < kWidth; i++) {
            const float scaled = factor * g.of[i];
            mean.of[i] += lamb.rest1 * (scaled - mean.of[i]);
            squares.of[i] = lamb.beta2 * squares.of[i] + lamb.rest2 * (scaled * scaled);
            if (at + i >= part.end) continue;  // eps may be 0, and what is not there must not be NaN
            const double wide = p.of[i];
            const double change = lamb.direction(p.of[i], mean.of[i], squares.of[i], part.decays);
            lengths[0] += wide * wide;
            lengths[1] += change * change;
        }
        write_four(tensors.written[1][part.tensor], at, part.end, mean);
        write_four(tensors.written[2][part.tensor], at, part.end, squares);
    }
    for (int k = 0; k < 2; k++) {
        const double sum = reduce_block<Sum>(lengths[k], shared);
        if (threadIdx.x == 0) sums[2 * blockIdx.x + k] = sum;
    }
}

__global__ void __launch_bounds__(kThreads) trust(const float *rate, const double *sums, float *rates,
                                                  const __grid_constant__ Tensors<4, 3> tensors) {
    __shared__ double shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    double lengths[2] = {0, 0};
    for (int part = tensors.first[blockIdx.x] + threadIdx.x; part < tensors.first[blockIdx.x + 1]; part += kThreads)
        for (int k = 0; k < 2; k++) lengths[k] += sums[2 * part + k];
    for (int k = 0; k < 2; k++) lengths[k] = sqrt(reduce_block<Sum>(lengths[k], shared));
    if (threadIdx.x != 0) return;
    const double ratio = lengths[0] == 0 || lengths[1] == 0 ? 1.0 : lengths[0] / lengths[1];
    rates[blockIdx.x] = static_cast<float>(*rate * ratio);
}

__global__ void __launch_bounds__(kThreads) take_step(const std::int64_t *step, const float *rates, Lamb lamb,
                                                      const __grid_constant__ Tensors<4, 3> tensors) {
    let_next_begin();
    wait_for_previous();
    const Part part = part_of(tensors, blockIdx.x);
    const float rate = rates[part.tensor];
    lamb.begin(static_cast<float>(*step));
    for (std::int64_t at = part.begin + threadIdx.x * kWidth; at < part.end; at += kThreads * kWidth) {
        Four p = read_four(tensors.read[0][part.tensor], at, part.end);
        const Four mean = read_four(tensors.written[1][part.tensor], at, part.end);
        const Four squares = read_four(tensors.written[2][part.tensor], at, part.end);
#pragma unroll
        for (int i = 0; i < kWidth; i++)
            p.of[i] -= rate * lamb.direction(p.of[i], mean.of[i], squares.of[i], part.decays);
        write_four(tensors.written[0][part.tensor], at, part.end, p);
    }
}

// Pointers: learning rate, step, scale; parameters, gradients, both slots, new parameters, both new slots; workspace.
int update_all(void *const *pointers, const TensorParams &p, cudaStream_t stream) {
    const auto tensors = tensors_of<4, 3>(pointers + 3, p);
    const int blocks = tensors.first[tensors.count];
    if (blocks == 0) return cudaSuccess;
    const float *rate = static_cast<const float *>(pointers[0]), *scale = static_cast<const float *>(pointers[2]);
    const std::int64_t *step = static_cast<const std::int64_t *>(pointers[1]);
    double *sums = static_cast<double *>(pointers[3 + 7 * tensors.count]);
    float *rates = reinterpret_cast<float *>(sums + 2 * blocks);
    const unsigned grid = static_cast<unsigned>(blocks), count = static_cast<unsigned>(tensors.count);
    int status = launch_early(moments, grid, kThreads, 0, stream, step, scale, sums, Lamb(p), tensors);
    if (status == cudaSuccess) status = launch_early(trust, count, kThreads, 0, stream, rate, sums, rates, tensors);
    if (status == cudaSuccess) status = launch_early(take_step, grid, kThreads, 0, stream, step, rates, Lamb(p), tensors);
    return status;
}

AICORE_KERNEL(update_lamb, TensorParams, 11, update_all);

}  // namespace
