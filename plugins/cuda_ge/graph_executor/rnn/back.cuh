// Recurrent layers, backwards: what the kernels of RecurrentGrad take, and what happens to one unit at one step.
//
// Operands and results lie as in ../../../../aicore/ops/recurrent_grad.py. A step back has two parts: factors, which
// the forward pass determines, and what the gradient of the hidden state makes of them. The gradient of the state
// before is a product of those of the gates with r, and what carries over beside it.
#pragma once

#include "recurrent.cuh"

namespace aicore {

struct RecurrentBack {
    Recurrent layer;  // operands, results and offsets are those of the gradient
    std::int64_t peepholes;
    std::int64_t into_r_at, carried_at, dc_at, p_at;  // in floats, in the workspace
};

// All pointers of a launch; absent ones are null. T: of operands and results; the workspace holds float32.
template <class T>
struct BackPointers {
    const T *r, *gates, *hidden, *last;
    const int *lengths;
    const T *p, *y_grad, *h_grad, *c_grad;
    T *gates_grad, *initial_h, *initial_c, *p_grad, *last_grad;
    float *into_r;   // [2][D][N][G*H]: gradients of the gates, as they meet r, of this step and the one before
    float *carried;  // [D][N][H]: what the gradient of the state before has beside the product
    float *dc;       // [D][N][H]
    float *p_sums;   // [D][N][3*H]
};

template <class T>
BackPointers<T> back_pointers(void *const *pointers, const RecurrentBack &back) {
    const std::int64_t operands = back.layer.operands;
    const bool is_lstm = back.layer.cell == kLstm;
    auto operand = [&](std::int64_t i) { return i < operands ? pointers[i] : nullptr; };
    BackPointers<T> on = {};
    on.r = static_cast<const T *>(operand(0));
    on.gates = static_cast<const T *>(operand(1));
    on.hidden = static_cast<const T *>(operand(2));
    on.last = static_cast<const T *>(operand(3));
    on.lengths = static_cast<const int *>(operand(4));
    on.p = static_cast<const T *>(operand(5));
    on.y_grad = static_cast<const T *>(operand(6));
    on.h_grad = static_cast<const T *>(operand(7));
    on.c_grad = static_cast<const T *>(operand(8));
    void *const *results = pointers + operands;
    on.gates_grad = static_cast<T *>(results[0]);
    on.initial_h = static_cast<T *>(results[1]);
    if (is_lstm) on.initial_c = static_cast<T *>(results[2]);
    if (back.peepholes) on.p_grad = static_cast<T *>(results[3]);
    if (back.layer.cell == kGruLinear) on.last_grad = static_cast<T *>(results[2]);
    float *workspace = static_cast<float *>(results[back.layer.results]);
    on.into_r = workspace + back.into_r_at;
    on.carried = workspace + back.carried_at;
    on.dc = workspace + back.dc_at;
    on.p_sums = workspace + back.p_at;
    return on;
}

// The step of the forward pass that the `step`-th step back undoes.
AICORE_HOST_DEVICE std::int64_t time_back(const Recurrent &layer, std::int64_t direction, std::int64_t step) {
    return time_of(layer, direction, layer.steps - 1 - step);
}

// The derivative of an activation at x, where it is y; on kinks as RecurrentGrad says.
AICORE_HOST_DEVICE float slope_of(const Activation &f, float x, float y) {
    switch (f.kind) {
        case kRelu:
            return x <= 0.0f ? 0.0f : 1.0f;
        case kLeakyRelu:
            return x <= 0.0f ? f.alpha : 1.0f;
        case kElu:
            return x <= 0.0f ? f.alpha * expf(x) : 1.0f;
        case kSigmoid:
            return y * (1.0f - y);
        case kHardSigmoid:
            return y <= 0.0f || y >= 1.0f ? 0.0f : f.alpha;
        case kSoftplus:
            return sigmoid(x);
        case kSoftsign: {
            const float below = 1.0f + fabsf(x);
            return 1.0f / (below * below);
        }
        case kTanh:
            return 1.0f - y * y;
        case kReluFrom:
            return x <= f.alpha ? 0.0f : 1.0f;
        case kAffine:
            return f.alpha;
        case kScaledTanh: {
            const float inner = tanhf(f.beta * x);
            return f.alpha * f.beta * (1.0f - inner * inner);
        }
        default:
            return 1.0f;
    }
}

struct Squashed {
    float value, slope;
};

// Not inline: kernels have many gates, each with all activations.
static __device__ __noinline__ Squashed squash_by(Activation f, float limit, float gate) {
    const float x = clip(gate, -limit, limit), y = activate(f, x);
    return {y, fabsf(gate) > limit ? 0.0f : slope_of(f, x, y)};
}

// A gate behind its clip and its activation.
__device__ __forceinline__ Squashed squash(const Recurrent &layer, std::int64_t direction, int which, float gate) {
    const int each = layer.cell == kLstm ? 3 : layer.cell == kRnn ? 1 : 2;
    return squash_by(layer.activations[direction * each + which], layer.clip, gate);
}

// What the forward pass determines, of one unit of one sequence at one step.
struct BackFactors {
    float gates[4];   // gradients of the gates are multiples of these
    float into_c;     // of an LSTM: what dh adds to dc; of a GRU: the update gate
    float keep;       // of an LSTM: dc before is a multiple of it; of a GRU: the reset gate
    float y;          // the gradient of y
    float c, before;  // cell states of an LSTM after and before, for peepholes
    bool alive;       // the sequence has this step
};

template <class T>
__device__ __forceinline__ float optional(const T *values, std::int64_t at) {
    return values == nullptr ? 0.0f : widen(values[at]);
}

// What a step reads of one unit of one sequence.
struct BackInputs {
    float gates[4], hidden, last, y;
    bool alive;
};

template <class T>
__device__ __forceinline__ BackInputs back_inputs(const Recurrent &layer, const BackPointers<T> &on, const CellAt &at) {
    BackInputs in = {};
    in.alive = on.lengths == nullptr || at.time < on.lengths[at.sequence];
    if (!in.alive) return in;
    const std::int64_t row = kept_row(layer, at.time, at.direction, at.sequence), unit = row * layer.hidden + at.unit;
#pragma unroll
    for (int g = 0; g < 4; g++)
        if (g < layer.gates) in.gates[g] = widen(on.gates[(row * layer.gates + g) * layer.hidden + at.unit]);
    in.hidden = optional(on.hidden, unit);
    in.last = optional(on.last, unit);
    in.y = optional(on.y_grad, result_at(layer, at.time, at.direction, at.sequence, at.unit));
    return in;
}

template <class T>
__device__ __forceinline__ BackFactors back_factors(const Recurrent &layer, const T *peepholes, const CellAt &at,
                                                    const BackInputs &in) {
    BackFactors f = {};
    f.keep = 1.0f;
    f.alive = in.alive;
    if (!f.alive) return f;
    const std::int64_t d = at.direction;
    f.y = in.y;
    if (layer.cell == kRnn) {
        f.gates[0] = squash(layer, d, 0, in.gates[0]).slope;
        return f;
    }
    if (layer.cell == kLstm) {
        const Squashed admit = squash(layer, d, 0, in.gates[0]), made = squash(layer, d, 1, in.gates[3]);
        const Squashed forget = squash(layer, d, 0, in.gates[2]), show = squash(layer, d, 0, in.gates[1]);
        f.before = in.last;
        f.keep = layer.input_forget ? 1.0f - admit.value : forget.value;
        f.c = f.keep * f.before + admit.value * made.value;
        const Squashed seen = squash(layer, d, 2, f.c);
        f.gates[0] = (layer.input_forget ? made.value - f.before : made.value) * admit.slope;
        f.gates[1] = seen.value * show.slope;
        f.gates[2] = layer.input_forget ? 0.0f : f.before * forget.slope;
        f.gates[3] = admit.value * made.slope;
        f.into_c = show.value * seen.slope;
        if (peepholes == nullptr) return f;
        const T *p = peepholes + d * 3 * layer.hidden + at.unit;
        f.into_c += f.gates[1] * widen(p[layer.hidden]);
        f.keep += f.gates[0] * widen(p[0]) + f.gates[2] * widen(p[2 * layer.hidden]);
        return f;
    }
    const Squashed update = squash(layer, d, 0, in.gates[0]), reset = squash(layer, d, 0, in.gates[1]);
    const Squashed made = squash(layer, d, 1, in.gates[2]);
    f.gates[0] = (in.hidden - made.value) * update.slope;
    f.gates[1] = (layer.cell == kGruLinear ? in.last : in.hidden) * reset.slope;
    f.gates[2] = (1.0f - update.value) * made.slope;
    f.into_c = update.value;
    f.keep = reset.value;
    return f;
}

// What one unit hands on: gradients of the gates, the same as they meet r, and what carries over beside the product.
struct BackStep {
    float gates[4];
    float last;     // of a GRU with linear_before_reset: the gradient of h r' + b of the hidden gate
    float carried;
};

// dh: the gradient of the hidden state after the step, without that of y. A GRU whose reset gate scales h has its
// second gate and the rest of `carried` from gru_reset, once the product of the third gate with r is known.
AICORE_HOST_DEVICE BackStep step_back(const Recurrent &layer, const BackFactors &f, float dh, float &dc) {
    BackStep to = {};
    if (!f.alive) {
        to.carried = dh;
        return to;
    }
    dh += f.y;
    to.gates[0] = f.gates[0] * dh;
    if (layer.cell == kRnn) return to;
    if (layer.cell == kLstm) {
        dc += dh * f.into_c;
        to.gates[0] = f.gates[0] * dc;
        to.gates[1] = f.gates[1] * dh;
        to.gates[2] = f.gates[2] * dc;
        to.gates[3] = f.gates[3] * dc;
        dc *= f.keep;
        return to;
    }
    to.gates[2] = f.gates[2] * dh;
    to.carried = dh * f.into_c;
    if (layer.cell == kGru) return to;
    to.gates[1] = f.gates[1] * to.gates[2];
    to.last = f.keep * to.gates[2];
    return to;
}

// product: the third gate's gradient with r, which is that of the scaled state.
AICORE_HOST_DEVICE void gru_reset(const BackFactors &f, float product, BackStep &to) {
    if (!f.alive) return;
    to.gates[1] = f.gates[1] * product;
    to.carried += f.keep * product;
}

template <class T>
__device__ __forceinline__ void store_gates_grad(const RecurrentBack &back, const BackPointers<T> &on, const CellAt &at,
                                                 const BackStep &step) {
    const Recurrent &layer = back.layer;
    const std::int64_t row = kept_row(layer, at.time, at.direction, at.sequence);
    for (int g = 0; g < 4; g++)
        if (g < layer.gates) on.gates_grad[(row * layer.gates + g) * layer.hidden + at.unit] = narrow<T>(step.gates[g]);
    if (on.last_grad != nullptr) on.last_grad[row * layer.hidden + at.unit] = narrow<T>(step.last);
}

// The sums of an LSTM's peephole gradients over the steps, of one unit of one sequence.
AICORE_HOST_DEVICE void add_peepholes(const BackFactors &f, const BackStep &step, float *sums) {
    sums[0] += step.gates[0] * f.before;
    sums[1] += step.gates[1] * f.c;
    sums[2] += step.gates[2] * f.before;
}

template <class T>
__device__ __forceinline__ void store_initial(const RecurrentBack &back, const BackPointers<T> &on, const CellAt &at, float dh,
                                              float dc, const float *p_sums) {
    const std::int64_t state = state_at(back.layer, at.direction, at.sequence, at.unit), hidden = back.layer.hidden;
    if (on.initial_h != nullptr) on.initial_h[state] = narrow<T>(dh);
    if (on.initial_c != nullptr) on.initial_c[state] = narrow<T>(dc);
    if (on.p_grad == nullptr) return;
    T *p = on.p_grad + (at.direction * back.layer.batch + at.sequence) * 3 * hidden + at.unit;
    for (int i = 0; i < 3; i++) p[i * hidden] = narrow<T>(p_sums[i]);
}

}  // namespace aicore
