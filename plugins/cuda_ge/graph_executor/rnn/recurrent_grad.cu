// Back through the steps of RNN, LSTM and GRU: a launch for each step, two for a GRU whose reset gate scales h.
//
// A block computes 32 units of 8 sequences: gradients of the gates of the step after, times r, with the rows of r that
// its warps share; then the step back of its units, which leaves the gradients of their gates.
#include "../ge/kernel.cuh"

#include "../cnn/fours.cuh"
#include "back.cuh"

namespace {

using namespace aicore;

constexpr int kThreads = 512, kWarps = kThreads / 32, kUnits = 32, kSequences = 8;

enum Phase { kStep, kReset };

struct Place {
    std::int64_t direction, first_unit, first_sequence;
};

__device__ __forceinline__ float4 up_to_four(const float *from, std::int64_t count) {
    return make_float4(from[0], count > 1 ? from[1] : 0.0f, count > 2 ? from[2] : 0.0f, count > 3 ? from[3] : 0.0f);
}

// sums[s] of this thread: over the rows of r that its warp has, of COUNT gates from FIRST on.
template <class T, int FIRST, int COUNT>
__device__ __forceinline__ void multiply(const Recurrent &layer, const T *r, const float *into_r, const Place &place,
                                         float *sums) {
    const std::int64_t hidden = layer.hidden, width = layer.gates * hidden, rows = COUNT * hidden;
    const std::int64_t unit = place.first_unit + threadIdx.x % 32;
    const T *column = r + (place.direction * width + FIRST * hidden) * hidden + unit;
    const float *of_gates = into_r + (place.direction * layer.batch + place.first_sequence) * width + FIRST * hidden;
    const std::int64_t last = layer.batch - 1 - place.first_sequence;
    const bool in_fours = hidden % 4 == 0;
    for (std::int64_t k = static_cast<int>(threadIdx.x / 32) * 4; k < rows; k += 4 * kWarps) {
        float weights[4];
        float4 fours[kSequences];
#pragma unroll
        for (int i = 0; i < 4; i++)
            weights[i] = unit < hidden && k + i < rows ? widen(column[(k + i) * hidden]) : 0.0f;
#pragma unroll
        for (int s = 0; s < kSequences; s++) {  // all are under way at once; the last stands in for those that there are not
            const float *from = of_gates + (s < last ? s : last) * width + k;
            fours[s] = in_fours ? *reinterpret_cast<const float4 *>(from) : up_to_four(from, rows - k);
        }
#pragma unroll
        for (int s = 0; s < kSequences; s++) {
            sums[s] = fmaf(fours[s].x, weights[0], sums[s]);
            sums[s] = fmaf(fours[s].y, weights[1], sums[s]);
            sums[s] = fmaf(fours[s].z, weights[2], sums[s]);
            sums[s] = fmaf(fours[s].w, weights[3], sums[s]);
        }
    }
}

template <class T>
__device__ __forceinline__ void finish_step(const RecurrentBack &back, const BackPointers<T> &on, const CellAt &at,
                                            std::int64_t step, float product) {
    const Recurrent &layer = back.layer;
    const std::int64_t unit = unit_at(layer, at.direction, at.sequence, at.unit), hidden = layer.hidden;
    const std::int64_t state = state_at(layer, at.direction, at.sequence, at.unit);
    float sums[3] = {}, dc = 0.0f, dh = product;
    float *p_sums = on.p_sums + (at.direction * layer.batch + at.sequence) * 3 * hidden + at.unit;
    if (step == 0) {
        dh = optional(on.h_grad, state);
        dc = optional(on.c_grad, state);
    } else {
        dh += on.carried[unit];
        if (layer.cell == kLstm) dc = on.dc[unit];
        for (int i = 0; i < 3; i++)
            if (back.peepholes) sums[i] = p_sums[i * hidden];
    }
    if (step == layer.steps) {
        store_initial(back, on, at, dh, dc, sums);
        return;
    }
    const BackFactors factors = back_factors(layer, on.p, at, back_inputs(layer, on, at));
    const BackStep to = step_back(layer, factors, dh, dc);
    store_gates_grad(back, on, at, to);
    on.carried[unit] = to.carried;
    if (layer.cell == kLstm) on.dc[unit] = dc;
    if (back.peepholes) add_peepholes(factors, to, sums);
    for (int i = 0; i < 3; i++)
        if (back.peepholes) p_sums[i * hidden] = sums[i];
    const std::int64_t half = layer.directions * layer.batch * layer.gates * hidden;
    float *into_r = on.into_r + step % 2 * half +
                    (at.direction * layer.batch + at.sequence) * layer.gates * hidden + at.unit;
    for (int g = 0; g < 4; g++)
        if (g < layer.gates) into_r[g * hidden] = g == 2 && layer.cell == kGruLinear ? to.last : to.gates[g];
}

// The reset gate of a GRU, and what reaches h through it.
template <class T>
__device__ __forceinline__ void finish_reset(const RecurrentBack &back, const BackPointers<T> &on, const CellAt &at,
                                             std::int64_t step, float product) {
    const Recurrent &layer = back.layer;
    const std::int64_t unit = unit_at(layer, at.direction, at.sequence, at.unit), hidden = layer.hidden;
    const std::int64_t row = kept_row(layer, at.time, at.direction, at.sequence);
    BackStep to = {};
    to.carried = on.carried[unit];
    gru_reset(back_factors(layer, on.p, at, back_inputs(layer, on, at)), product, to);
    on.carried[unit] = to.carried;
    on.gates_grad[(row * 3 + 1) * hidden + at.unit] = narrow<T>(to.gates[1]);
    const std::int64_t half = layer.directions * layer.batch * 3 * hidden;
    on.into_r[step % 2 * half + (at.direction * layer.batch + at.sequence) * 3 * hidden + hidden + at.unit] = to.gates[1];
}

// A step back: the product with r of the step after it (of the same step for the reset gate), and what follows.
template <class T, int FIRST, int COUNT, Phase PHASE>
__global__ void __launch_bounds__(kThreads)
    run_back(const BackPointers<T> on, const RecurrentBack back, const std::int64_t step) {
    __shared__ float of_warps[kWarps][kSequences][kUnits];
    const Recurrent &layer = back.layer;
    const Place place = {static_cast<std::int64_t>(blockIdx.y), static_cast<std::int64_t>(blockIdx.x) * kUnits,
                         static_cast<std::int64_t>(blockIdx.z) * kSequences};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    wait_for_previous();
    let_next_begin();
    float sums[kSequences] = {};
    const std::int64_t half = layer.directions * layer.batch * layer.gates * layer.hidden;
    const std::int64_t source = PHASE == kReset ? step : step + 1;  // the step before this one has the same parity
    if (PHASE == kReset || step > 0) multiply<T, FIRST, COUNT>(layer, on.r, on.into_r + source % 2 * half, place, sums);
#pragma unroll
    for (int s = 0; s < kSequences; s++) of_warps[warp][s][lane] = sums[s];
    __syncthreads();
    for (int s = warp; s < kSequences; s += kWarps) {
        const CellAt at = {place.direction, place.first_sequence + s, place.first_unit + lane,
                           step < layer.steps ? time_back(layer, place.direction, step) : 0};
        if (at.sequence >= layer.batch || at.unit >= layer.hidden) continue;
        float product = 0.0f;
        for (int w = 0; w < kWarps; w++) product += of_warps[w][s][lane];
        if (PHASE == kReset)
            finish_reset(back, on, at, step, product);
        else
            finish_step(back, on, at, step, product);
    }
}

template <class T, int FIRST, int COUNT, Phase PHASE>
cudaError_t launch_back(const BackPointers<T> &on, const RecurrentBack &back, std::int64_t step, cudaStream_t stream) {
    const dim3 grid(blocks_for(back.layer.hidden, kUnits), static_cast<unsigned>(back.layer.directions),
                    blocks_for(back.layer.batch, kSequences));
    return launch_early(run_back<T, FIRST, COUNT, PHASE>, grid, kThreads, 0, stream, on, back, step);
}

template <class T>
cudaError_t launch_cell(const BackPointers<T> &on, const RecurrentBack &back, std::int64_t step, cudaStream_t stream) {
    if (back.layer.cell == kRnn) return launch_back<T, 0, 1, kStep>(on, back, step, stream);
    if (back.layer.cell == kLstm) return launch_back<T, 0, 4, kStep>(on, back, step, stream);
    if (back.layer.cell == kGruLinear) return launch_back<T, 0, 3, kStep>(on, back, step, stream);
    const cudaError_t error = launch_back<T, 0, 2, kStep>(on, back, step, stream);
    if (error != cudaSuccess || step == back.layer.steps) return error;
    return launch_back<T, 2, 1, kReset>(on, back, step, stream);
}

template <class T>
int launch_all(void *const *pointers, const RecurrentBack &back, cudaStream_t stream) {
    if (back.layer.directions * back.layer.batch * back.layer.hidden == 0) return cudaSuccess;
    const BackPointers<T> on = back_pointers<T>(pointers, back);
    cudaError_t error = cudaSuccess;
    for (std::int64_t step = 0; error == cudaSuccess && step <= back.layer.steps; step++)  // the last one: initial states
        error = launch_cell(on, back, step, stream);
    return error;
}

int recurrent_back(void *const *pointers, const RecurrentBack &back, cudaStream_t stream) {
    return cnn::for_float(back.layer.element, [&](auto type) {
        return launch_all<typename decltype(type)::Type>(pointers, back, stream);
    });
}
AICORE_KERNEL(recurrent_back, RecurrentBack, 4, recurrent_back);

}  // namespace
