// RNN, LSTM and GRU: one launch for each step, with products, gates and states together.
//
// A warp computes one hidden unit of up to SEQUENCES sequences: it reads the rows of r for all gates of the unit once,
// 32 lanes side by side, multiplies them by the states before, adds up its lanes, and then lane i finishes sequence i.
// The rows of r, which are constants as a rule, are asked for before the step before has ended.
// Operands of 16 bits become float32 as they are read; states stay float32 from step to step.
#include "../ge/kernel.cuh"

#include "../cnn/fours.cuh"
#include "recurrent.cuh"

namespace {

using namespace aicore;

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kAhead = 2;  // reads of each row of r that a lane has under way

// States before the first step; if there is no step, they are the last states, too.
template <class T>
__global__ void __launch_bounds__(kThreads) begin(const RecurrentPointers<T> on, const Recurrent layer) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t unit = i % layer.hidden, sequence = i / layer.hidden % layer.batch;
    const std::int64_t direction = i / layer.hidden / layer.batch;
    if (direction >= layer.directions) return;
    const std::int64_t state = state_at(layer, direction, sequence, unit);
    const float h = on.initial_h == nullptr ? 0.0f : widen(on.initial_h[state]);
    const float c = on.initial_c == nullptr ? 0.0f : widen(on.initial_c[state]);
    on.hidden[i] = h;
    if (layer.cell == kLstm) on.cell[i] = c;
    if (layer.steps > 0) return;
    if (on.y_h != nullptr) on.y_h[state] = narrow<T>(h);
    if (on.y_c != nullptr) on.y_c[state] = narrow<T>(c);
}

template <class T>
using Finish = void (*)(const Recurrent &, const RecurrentPointers<T> &, const CellAt &, std::int64_t, const float *);

// FIRST, GATES: the gates whose rows of r take part. RESET: multiply them by reset_hidden instead of hidden.
template <class T, int FIRST, int GATES, bool RESET, Finish<T> FINISH, int SEQUENCES, int WIDTH>
__global__ void __launch_bounds__(kThreads)
    run_step(const RecurrentPointers<T> on, const Recurrent layer, std::int64_t step) {
    const int lane = threadIdx.x % 32;
    const std::int64_t unit = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
    const std::int64_t direction = blockIdx.y, first = static_cast<std::int64_t>(blockIdx.z) * SEQUENCES;
    const std::int64_t half = layer.directions * layer.batch * layer.hidden;
    const float *states = RESET ? on.reset_hidden : on.hidden + step % 2 * half;
    states += (direction * layer.batch + first) * layer.hidden;
    const bool exists = unit < layer.hidden;
    const T *rows = on.r + ((direction * layer.gates + FIRST) * layer.hidden + unit) * layer.hidden;
    alignas(16) float of_r[kAhead][GATES][WIDTH];
    auto read_r = [&](std::int64_t k) {
#pragma unroll
        for (int i = 0; i < kAhead; i++)
#pragma unroll
            for (int g = 0; g < GATES; g++) {
                const std::int64_t at = k + i * 32 * WIDTH;
#pragma unroll
                for (int j = 0; j < WIDTH; j++) of_r[i][g][j] = 0.0f;
                if (!exists || at >= layer.hidden) continue;
                const T *from = rows + g * layer.hidden * layer.hidden + at;
                if constexpr (WIDTH == 4)
                    *reinterpret_cast<float4 *>(of_r[i][g]) = cnn::read_four(from, 4, true);
                else
                    of_r[i][g][0] = widen(*from);
            }
    };
    if (!layer.r_constant) wait_for_previous();
    read_r(lane * WIDTH);
    if (layer.r_constant) wait_for_previous();
    let_next_begin();
    float sums[SEQUENCES][GATES] = {};
    for (std::int64_t k = lane * WIDTH; exists && k < layer.hidden; k += kAhead * 32 * WIDTH) {
#pragma unroll
        for (int i = 0; i < kAhead; i++) {
            const std::int64_t at = k + i * 32 * WIDTH;
            if (at >= layer.hidden) continue;
#pragma unroll
            for (int s = 0; s < SEQUENCES; s++) {
                if (first + s >= layer.batch) continue;
                alignas(16) float state[WIDTH];
                const float *from = states + s * layer.hidden + at;
                if constexpr (WIDTH == 4)
                    *reinterpret_cast<float4 *>(state) = *reinterpret_cast<const float4 *>(from);
                else
                    state[0] = *from;
#pragma unroll
                for (int g = 0; g < GATES; g++)
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) sums[s][g] = fmaf(of_r[i][g][j], state[j], sums[s][g]);
            }
        }
        read_r(k + kAhead * 32 * WIDTH);
    }
    float mine[GATES] = {};
#pragma unroll
    for (int s = 0; s < SEQUENCES; s++)
#pragma unroll
        for (int g = 0; g < GATES; g++) {
            float sum = sums[s][g];
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
            if (lane == s) mine[g] = sum;
        }
    const std::int64_t sequence = first + lane;
    if (!exists || lane >= SEQUENCES || sequence >= layer.batch) return;
    const CellAt at = {direction, sequence, unit, time_of(layer, direction, step)};
    FINISH(layer, on, at, step, mine);
}

template <class T, int FIRST, int GATES, bool RESET, Finish<T> FINISH, int SEQUENCES>
cudaError_t launch_step(const RecurrentPointers<T> &on, const Recurrent &layer, std::int64_t step, cudaStream_t stream) {
    const dim3 grid(blocks_for(layer.hidden, kWarps), static_cast<unsigned>(layer.directions),
                    blocks_for(layer.batch, SEQUENCES));
    if (layer.hidden % 4 == 0)
        return launch_early(run_step<T, FIRST, GATES, RESET, FINISH, SEQUENCES, 4>, grid, kThreads, 0, stream, on, layer,
                            step);
    return launch_early(run_step<T, FIRST, GATES, RESET, FINISH, SEQUENCES, 1>, grid, kThreads, 0, stream, on, layer, step);
}

template <class T, int FIRST, int GATES, bool RESET, Finish<T> FINISH>
cudaError_t launch_step(const RecurrentPointers<T> &on, const Recurrent &layer, std::int64_t step, cudaStream_t stream) {
    if (layer.batch == 1) return launch_step<T, FIRST, GATES, RESET, FINISH, 1>(on, layer, step, stream);
    return launch_step<T, FIRST, GATES, RESET, FINISH, 8>(on, layer, step, stream);
}

template <class T>
cudaError_t launch_cell(const RecurrentPointers<T> &on, const Recurrent &layer, std::int64_t step, cudaStream_t stream) {
    if (layer.cell == kRnn) return launch_step<T, 0, 1, false, rnn_cell<T>>(on, layer, step, stream);
    if (layer.cell == kLstm) return launch_step<T, 0, 4, false, lstm_cell<T>>(on, layer, step, stream);
    if (layer.cell == kGruLinear) return launch_step<T, 0, 3, false, gru_linear_cell<T>>(on, layer, step, stream);
    const cudaError_t error = launch_step<T, 0, 2, false, gru_gates<T>>(on, layer, step, stream);
    if (error != cudaSuccess) return error;
    return launch_step<T, 2, 1, true, gru_cell<T>>(on, layer, step, stream);
}

template <class T>
int launch_layer(void *const *pointers, const Recurrent &layer, cudaStream_t stream) {
    const std::int64_t units = layer.directions * layer.batch * layer.hidden;
    if (units == 0) return cudaSuccess;
    const RecurrentPointers<T> on = recurrent_pointers<T>(pointers, layer);
    cudaError_t error = launch_early(begin<T>, blocks_for(units, kThreads), kThreads, 0, stream, on, layer);
    for (std::int64_t step = 0; error == cudaSuccess && step < layer.steps; step++)
        error = launch_cell(on, layer, step, stream);
    return error;
}

// Everything behind the projection of the input.
int recurrent_steps(void *const *pointers, const Recurrent &layer, cudaStream_t stream) {
    return cnn::for_float(layer.element, [&](auto type) {
        return launch_layer<typename decltype(type)::Type>(pointers, layer, stream);
    });
}
AICORE_KERNEL(recurrent_steps, Recurrent, 5, recurrent_steps);

}  // namespace
