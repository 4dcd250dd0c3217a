// Recurrent layers: what all kernels of this folder take, and where things lie.
//
// With T steps, N sequences, H hidden units, D directions and G gates, operands are as ONNX has them: r (D, G*H, H),
// b (D, 2*G*H), initial states (D, N, H) or with batch_first (N, D, H), and so on. The workspace holds, as floats:
// projected (rows of x, D*G*H), which is x @ w' by gemm; hidden [2][D][N][H], read from one half and written to the other;
// cell [D][N][H]; and for some GRUs update [D][N][H] and reset_hidden [D][N][H].
#pragma once

#include "../activation/activation.cuh"
#include "../kernels/scalars.cuh"

namespace aicore {

enum RecurrentCell : std::int64_t { kRnn = 0, kLstm = 1, kGru = 2, kGruLinear = 3 };

struct Recurrent {
    std::int64_t element;  // of operands and results, but for lengths: cnn::Element
    std::int64_t cell;
    std::int64_t steps, batch, hidden, directions, gates;
    std::int64_t batch_first;   // the attribute layout
    std::int64_t reversed;      // the first direction goes backwards
    std::int64_t input_forget;  // LSTM
    std::int64_t operands;      // pointers before the results
    std::int64_t results;       // y, y_h, of an LSTM y_c, and residuals: gates, hidden and, but for an RNN, last
    std::int64_t hidden_at, cell_at, update_at, reset_hidden_at;  // in floats, in the workspace
    std::int64_t r_constant;    // no kernel writes r
    float clip;                 // infinity for none
    float unused_clip;
    Activation activations[6];  // up to 3 of the first direction, then those of the second
};

// All pointers of a launch; absent ones are null. T: of operands and results; the workspace holds float32.
template <class T>
struct RecurrentPointers {
    const T *r, *b;
    const int *lengths;
    const T *initial_h, *initial_c, *peepholes;
    T *y, *y_h, *y_c;
    T *gates, *kept_hidden, *kept_last;
    float *projected, *hidden, *cell, *update, *reset_hidden;
};

template <class T>
RecurrentPointers<T> recurrent_pointers(void *const *pointers, const Recurrent &layer) {
    const std::int64_t operands = layer.operands;
    float *workspace = static_cast<float *>(pointers[operands + layer.results]);
    RecurrentPointers<T> on = {};
    on.r = static_cast<const T *>(pointers[2]);
    if (operands > 3) on.b = static_cast<const T *>(pointers[3]);
    if (operands > 4) on.lengths = static_cast<const int *>(pointers[4]);
    if (operands > 5) on.initial_h = static_cast<const T *>(pointers[5]);
    if (operands > 6) on.initial_c = static_cast<const T *>(pointers[6]);
    if (operands > 7) on.peepholes = static_cast<const T *>(pointers[7]);
    on.y = static_cast<T *>(pointers[operands]);
    on.y_h = static_cast<T *>(pointers[operands + 1]);
    const std::int64_t states = layer.cell == kLstm ? 2 : 1, residuals = operands + 1 + states;
    on.y_c = states > 1 ? static_cast<T *>(pointers[operands + 2]) : nullptr;
    if (layer.results > 1 + states) on.gates = static_cast<T *>(pointers[residuals]);
    if (layer.results > 1 + states) on.kept_hidden = static_cast<T *>(pointers[residuals + 1]);
    if (layer.results > 3 + states) on.kept_last = static_cast<T *>(pointers[residuals + 2]);
    on.projected = workspace;
    on.hidden = workspace + layer.hidden_at;
    on.cell = workspace + layer.cell_at;
    on.update = workspace + layer.update_at;
    on.reset_hidden = workspace + layer.reset_hidden_at;
    return on;
}

// Which time step a direction is at in its `step`-th step.
AICORE_HOST_DEVICE std::int64_t time_of(const Recurrent &layer, std::int64_t direction, std::int64_t step) {
    const bool backwards = direction == 1 || layer.reversed != 0;
    return backwards ? layer.steps - 1 - step : step;
}

// Of one hidden unit in the states of the workspace.
AICORE_HOST_DEVICE std::int64_t unit_at(const Recurrent &layer, std::int64_t direction, std::int64_t sequence,
                                        std::int64_t unit) {
    return (direction * layer.batch + sequence) * layer.hidden + unit;
}

// In initial and last states.
AICORE_HOST_DEVICE std::int64_t state_at(const Recurrent &layer, std::int64_t direction, std::int64_t sequence,
                                         std::int64_t unit) {
    const std::int64_t row = layer.batch_first ? sequence * layer.directions + direction
                                               : direction * layer.batch + sequence;
    return row * layer.hidden + unit;
}

// In y.
AICORE_HOST_DEVICE std::int64_t result_at(const Recurrent &layer, std::int64_t time, std::int64_t direction,
                                          std::int64_t sequence, std::int64_t unit) {
    const std::int64_t row = layer.batch_first
                                 ? (sequence * layer.steps + time) * layer.directions + direction
                                 : (time * layer.directions + direction) * layer.batch + sequence;
    return row * layer.hidden + unit;
}

// Of the first gate of a unit in the projected input; the next gates follow at distances of hidden.
AICORE_HOST_DEVICE std::int64_t projected_at(const Recurrent &layer, std::int64_t time, std::int64_t direction,
                                             std::int64_t sequence, std::int64_t unit) {
    const std::int64_t row = layer.batch_first ? sequence * layer.steps + time : time * layer.batch + sequence;
    return (row * layer.directions + direction) * layer.gates * layer.hidden + unit;
}

// The row of residuals: they have the order of x's rows.
AICORE_HOST_DEVICE std::int64_t kept_row(const Recurrent &layer, std::int64_t time, std::int64_t direction,
                                         std::int64_t sequence) {
    const std::int64_t row = layer.batch_first ? sequence * layer.steps + time : time * layer.batch + sequence;
    return direction * layer.steps * layer.batch + row;
}

// What gates are made of, for one unit of one sequence: sums of the recurrent product beside everything else.
struct CellAt {
    std::int64_t direction, sequence, unit, time;
};

// Not inline: kernels have many gates, each with all activations.
static __device__ __noinline__ float activate_by(Activation f, float limit, float x) {
    return activate(f, clip(x, -limit, limit));
}

__device__ __forceinline__ float gate_activation(const Recurrent &layer, std::int64_t direction, int which, float x) {
    const int each = layer.cell == kLstm ? 3 : layer.cell == kRnn ? 1 : 2;
    return activate_by(layer.activations[direction * each + which], layer.clip, x);
}

// x @ w' of a gate with the bias that belongs to it.
template <class T>
__device__ __forceinline__ float input_of(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at, int gate) {
    const std::int64_t offset = projected_at(layer, at.time, at.direction, at.sequence, at.unit);
    const float x = on.projected[offset + gate * layer.hidden];
    if (on.b == nullptr) return x;
    return x + widen(on.b[(at.direction * 2 * layer.gates + gate) * layer.hidden + at.unit]);
}

// The bias that belongs to h @ r' of a gate.
template <class T>
__device__ __forceinline__ float recurrent_bias(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                        int gate) {
    if (on.b == nullptr) return 0.0f;
    return widen(on.b[((at.direction * 2 + 1) * layer.gates + gate) * layer.hidden + at.unit]);
}

template <class T>
__device__ __forceinline__ float peephole(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at, int which,
                                  float cell) {
    if (on.peepholes == nullptr) return 0.0f;
    return widen(on.peepholes[(at.direction * 3 + which) * layer.hidden + at.unit]) * cell;
}

// Residuals, where they are asked for: what goes into the activation of a gate, the states before, and h r' + b or the
// scaled state of a GRU.
template <class T>
__device__ __forceinline__ void keep_gate(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at, int gate,
                                          float x) {
    if (on.gates == nullptr) return;
    const std::int64_t row = kept_row(layer, at.time, at.direction, at.sequence);
    on.gates[(row * layer.gates + gate) * layer.hidden + at.unit] = narrow<T>(x);
}

template <class T>
__device__ __forceinline__ void keep_states(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                            float h, float last) {
    if (on.kept_hidden == nullptr) return;
    const std::int64_t unit = kept_row(layer, at.time, at.direction, at.sequence) * layer.hidden + at.unit;
    on.kept_hidden[unit] = narrow<T>(h);
    if (on.kept_last != nullptr) on.kept_last[unit] = narrow<T>(last);
}

// Stores the new state of a unit, unless its sequence has ended: then the state stays, and y is 0.
template <class T>
__device__ __forceinline__ void store_state(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                    std::int64_t step, float h, float c) {
    const std::int64_t half = layer.directions * layer.batch * layer.hidden;
    const std::int64_t unit = unit_at(layer, at.direction, at.sequence, at.unit);
    const bool alive = on.lengths == nullptr || at.time < on.lengths[at.sequence];
    const float next = alive ? h : on.hidden[step % 2 * half + unit];
    on.hidden[(step + 1) % 2 * half + unit] = next;
    if (on.y != nullptr)
        on.y[result_at(layer, at.time, at.direction, at.sequence, at.unit)] = narrow<T>(alive ? h : 0.0f);
    float cell = 0.0f;
    if (layer.cell == kLstm) {
        cell = alive ? c : on.cell[unit];
        on.cell[unit] = cell;
    }
    if (step + 1 < layer.steps) return;
    const std::int64_t last = state_at(layer, at.direction, at.sequence, at.unit);
    if (on.y_h != nullptr) on.y_h[last] = narrow<T>(next);
    if (on.y_c != nullptr) on.y_c[last] = narrow<T>(cell);
}

template <class T>
__device__ __forceinline__ float hidden_before(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                       std::int64_t step) {
    const std::int64_t half = layer.directions * layer.batch * layer.hidden;
    return on.hidden[step % 2 * half + unit_at(layer, at.direction, at.sequence, at.unit)];
}

// The cells, given for each gate what h @ r' is.

template <class T>
__device__ __forceinline__ void rnn_cell(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                 std::int64_t step, const float *sums) {
    const float gate = input_of(layer, on, at, 0) + sums[0] + recurrent_bias(layer, on, at, 0);
    keep_gate(layer, on, at, 0, gate);
    keep_states(layer, on, at, hidden_before(layer, on, at, step), 0.0f);
    store_state(layer, on, at, step, gate_activation(layer, at.direction, 0, gate), 0.0f);
}

// Gates: input, output, forget, cell.
template <class T>
__device__ __forceinline__ void lstm_cell(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                  std::int64_t step, const float *sums) {
    float gates[4];
    for (int g = 0; g < 4; g++) gates[g] = input_of(layer, on, at, g) + sums[g] + recurrent_bias(layer, on, at, g);
    const float before = on.cell[unit_at(layer, at.direction, at.sequence, at.unit)];
    const std::int64_t d = at.direction;
    gates[0] += peephole(layer, on, at, 0, before);
    gates[2] += peephole(layer, on, at, 2, before);
    const float admit = gate_activation(layer, d, 0, gates[0]);
    const float keep = layer.input_forget ? 1.0f - admit : gate_activation(layer, d, 0, gates[2]);
    const float cell = keep * before + admit * gate_activation(layer, d, 1, gates[3]);
    gates[1] += peephole(layer, on, at, 1, cell);
    const float show = gate_activation(layer, d, 0, gates[1]);
    for (int g = 0; g < 4; g++) keep_gate(layer, on, at, g, gates[g]);
    keep_states(layer, on, at, hidden_before(layer, on, at, step), before);
    store_state(layer, on, at, step, show * gate_activation(layer, d, 2, cell), cell);
}

// Gates: update, reset, hidden. The reset gate scales h @ r' + b.
template <class T>
__device__ __forceinline__ void gru_linear_cell(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                        std::int64_t step, const float *sums) {
    float gates[2];
    for (int g = 0; g < 2; g++) {
        const float gate = input_of(layer, on, at, g) + sums[g] + recurrent_bias(layer, on, at, g);
        keep_gate(layer, on, at, g, gate);
        gates[g] = gate_activation(layer, at.direction, 0, gate);
    }
    const float linear = sums[2] + recurrent_bias(layer, on, at, 2);
    const float last = input_of(layer, on, at, 2) + gates[1] * linear;
    const float hidden = gate_activation(layer, at.direction, 1, last);
    const float before = hidden_before(layer, on, at, step);
    keep_gate(layer, on, at, 2, last);
    keep_states(layer, on, at, before, linear);
    store_state(layer, on, at, step, (1.0f - gates[0]) * hidden + gates[0] * before, 0.0f);
}

// The reset gate scales h, so that the last product needs a launch of its own: first the gates,
template <class T>
__device__ __forceinline__ void gru_gates(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                  std::int64_t step, const float *sums) {
    float gates[2];
    for (int g = 0; g < 2; g++) {
        const float gate = input_of(layer, on, at, g) + sums[g] + recurrent_bias(layer, on, at, g);
        keep_gate(layer, on, at, g, gate);
        gates[g] = gate_activation(layer, at.direction, 0, gate);
    }
    const std::int64_t unit = unit_at(layer, at.direction, at.sequence, at.unit);
    const float before = hidden_before(layer, on, at, step);
    on.update[unit] = gates[0];
    on.reset_hidden[unit] = gates[1] * before;
    keep_states(layer, on, at, before, gates[1] * before);
}

// then the state.
template <class T>
__device__ __forceinline__ void gru_cell(const Recurrent &layer, const RecurrentPointers<T> &on, const CellAt &at,
                                 std::int64_t step, const float *sums) {
    const float gate = input_of(layer, on, at, 2) + sums[0] + recurrent_bias(layer, on, at, 2);
    keep_gate(layer, on, at, 2, gate);
    const float hidden = gate_activation(layer, at.direction, 1, gate);
    const float update = on.update[unit_at(layer, at.direction, at.sequence, at.unit)];
    const float before = hidden_before(layer, on, at, step);
    store_state(layer, on, at, step, (1.0f - update) * hidden + update * before, 0.0f);
}

}  // namespace aicore
