// One step of an optimiser for up to 64 tensors in one launch. The formulas are those of aicore/ops/optimizers.py.
//
// A formula is a struct: kSlots, `begin` for what depends on the learning rate and the step, and `apply`, which takes
// one element's gradient and slots and returns what the parameter becomes. An element depends on nothing but itself, so
// results may lie where operands lie.
#include "tensors.cuh"

namespace {

using namespace aicore;

// numbers of every formula: 0 is the weight decay, the others are its own, in the order of its fields.
struct Formula {
    float weight_decay, learning_rate = 0;

    explicit Formula(const TensorParams &p) : weight_decay(p.numbers[0].value) {}
    __device__ void begin(float rate, float) { learning_rate = rate; }
    __device__ __forceinline__ float coupled(float p, float g, bool decays) const {
        return decays ? g + weight_decay * p : g;
    }
};

template <bool MOMENTUM> struct Sgd : Formula {
    static constexpr int kSlots = MOMENTUM;
    float momentum, nesterov;

    explicit Sgd(const TensorParams &p) : Formula(p), momentum(p.numbers[1].value), nesterov(p.numbers[2].value) {}

    __device__ __forceinline__ float apply(float p, float g, float *slot, bool decays) const {
        g = coupled(p, g, decays);
        if constexpr (MOMENTUM) {
            slot[0] = momentum * slot[0] + g;
            g = nesterov != 0 ? g + momentum * slot[0] : slot[0];
        }
        return p - learning_rate * g;
    }
};

template <bool CENTERED, bool MOMENTUM> struct RmsProp : Formula {
    static constexpr int kSlots = 1 + CENTERED + MOMENTUM;
    float alpha, rest, eps, momentum;

    explicit RmsProp(const TensorParams &p)
        : Formula(p), alpha(p.numbers[1].value), rest(p.numbers[2].value), eps(p.numbers[3].value),
          momentum(p.numbers[4].value) {}

    __device__ __forceinline__ float apply(float p, float g, float *slot, bool decays) const {
        g = coupled(p, g, decays);
        float squares = slot[0] = alpha * slot[0] + rest * (g * g);
        if constexpr (CENTERED) {
            slot[1] += rest * (g - slot[1]);
            squares -= slot[1] * slot[1];
        }
        float change = g / (sqrtf(squares) + eps);
        if constexpr (MOMENTUM) change = slot[kSlots - 1] = momentum * slot[kSlots - 1] + change;
        return p - learning_rate * change;
    }
};

struct Adagrad : Formula {
    static constexpr int kSlots = 1;
    float rate_decay, eps;

    explicit Adagrad(const TensorParams &p) : Formula(p), rate_decay(p.numbers[1].value), eps(p.numbers[2].value) {}

    __device__ void begin(float rate, float step) { learning_rate = rate / (1 + (step - 1) * rate_decay); }
    __device__ __forceinline__ float apply(float p, float g, float *slot, bool decays) const {
        g = coupled(p, g, decays);
        slot[0] += g * g;
        return p - learning_rate * (g / (sqrtf(slot[0]) + eps));
    }
};

template <bool AMSGRAD> struct Adam : Formula {
    static constexpr int kSlots = 2 + AMSGRAD;
    float rest1, beta2, rest2, eps, log1, log2, decoupled;
    float size = 0, root = 0;

    explicit Adam(const TensorParams &p)
        : Formula(p), rest1(p.numbers[1].value), beta2(p.numbers[2].value), rest2(p.numbers[3].value),
          eps(p.numbers[4].value), log1(p.numbers[5].value), log2(p.numbers[6].value), decoupled(p.numbers[7].value) {}

    __device__ void begin(float rate, float step) {
        learning_rate = rate;
        size = rate / begun(log1, step);
        root = 1 / sqrtf(begun(log2, step));
    }
    __device__ __forceinline__ float apply(float p, float g, float *slot, bool decays) const {
        if (decays && decoupled != 0) p *= 1 - learning_rate * weight_decay;
        else g = coupled(p, g, decays);
        slot[0] += rest1 * (g - slot[0]);
        slot[1] = beta2 * slot[1] + rest2 * (g * g);
        float squares = slot[1];
        if constexpr (AMSGRAD) squares = slot[2] = Largest::join(slot[2], squares);
        return p - size * (slot[0] / (sqrtf(squares) * root + eps));
    }
};

struct Lion : Formula {
    static constexpr int kSlots = 1;
    float beta1, rest1, beta2, rest2;

    explicit Lion(const TensorParams &p)
        : Formula(p), beta1(p.numbers[1].value), rest1(p.numbers[2].value), beta2(p.numbers[3].value),
          rest2(p.numbers[4].value) {}

    __device__ __forceinline__ float apply(float p, float g, float *slot, bool decays) const {
        const float blend = beta1 * slot[0] + rest1 * g;
        float change = blend > 0 ? 1.0f : blend < 0 ? -1.0f : blend;  // 0 and NaN stay
        if (decays) change += weight_decay * p;
        slot[0] = beta2 * slot[0] + rest2 * g;
        return p - learning_rate * change;
    }
};

template <class F>
__global__ void __launch_bounds__(kThreads)
    update(const float *rate, const std::int64_t *step, const float *scale, F formula,
           const __grid_constant__ Tensors<2 + F::kSlots, 1 + F::kSlots> tensors) {
    constexpr int kSlots = F::kSlots;
    let_next_begin();
    wait_for_previous();
    const Part part = part_of(tensors, blockIdx.x);
    const float factor = scale == nullptr ? 1.0f : *scale;
    formula.begin(*rate, static_cast<float>(*step));
    for (std::int64_t at = part.begin + threadIdx.x * kWidth; at < part.end; at += kThreads * kWidth) {
        Four p = read_four(tensors.read[0][part.tensor], at, part.end);
        Four g = read_four(tensors.read[1][part.tensor], at, part.end);
        Four slots[kSlots > 0 ? kSlots : 1];
#pragma unroll
        for (int s = 0; s < kSlots; s++) slots[s] = read_four(tensors.read[2 + s][part.tensor], at, part.end);
#pragma unroll
        for (int i = 0; i < kWidth; i++) {
            float slot[kSlots > 0 ? kSlots : 1];
#pragma unroll
            for (int s = 0; s < kSlots; s++) slot[s] = slots[s].of[i];
            p.of[i] = formula.apply(p.of[i], factor * g.of[i], slot, part.decays);
#pragma unroll
            for (int s = 0; s < kSlots; s++) slots[s].of[i] = slot[s];
        }
        write_four(tensors.written[0][part.tensor], at, part.end, p);
#pragma unroll
        for (int s = 0; s < kSlots; s++) write_four(tensors.written[1 + s][part.tensor], at, part.end, slots[s]);
    }
}

// Pointers: learning rate, step, scale; then parameters, gradients, each slot, new parameters, each new slot.
template <class F> int update_all(void *const *pointers, const TensorParams &p, cudaStream_t stream) {
    const auto tensors = tensors_of<2 + F::kSlots, 1 + F::kSlots>(pointers + 3, p);
    const int blocks = tensors.first[tensors.count];
    if (blocks == 0) return cudaSuccess;
    return launch_early(update<F>, static_cast<unsigned>(blocks), kThreads, 0, stream,
                        static_cast<const float *>(pointers[0]), static_cast<const std::int64_t *>(pointers[1]),
                        static_cast<const float *>(pointers[2]), F(p), tensors);
}

constexpr auto rmsprop_plain = update_all<RmsProp<false, false>>;
constexpr auto rmsprop_momentum = update_all<RmsProp<false, true>>;
constexpr auto rmsprop_centered = update_all<RmsProp<true, false>>;
constexpr auto rmsprop_both = update_all<RmsProp<true, true>>;
AICORE_KERNEL(update_sgd, TensorParams, 6, update_all<Sgd<false>>);
AICORE_KERNEL(update_sgd_momentum, TensorParams, 8, update_all<Sgd<true>>);
AICORE_KERNEL(update_rmsprop, TensorParams, 8, rmsprop_plain);
AICORE_KERNEL(update_rmsprop_momentum, TensorParams, 10, rmsprop_momentum);
AICORE_KERNEL(update_rmsprop_centered, TensorParams, 10, rmsprop_centered);
AICORE_KERNEL(update_rmsprop_centered_momentum, TensorParams, 12, rmsprop_both);
AICORE_KERNEL(update_adagrad, TensorParams, 8, update_all<Adagrad>);
AICORE_KERNEL(update_adam, TensorParams, 10, update_all<Adam<false>>);
AICORE_KERNEL(update_amsgrad, TensorParams, 12, update_all<Adam<true>>);
AICORE_KERNEL(update_lion, TensorParams, 8, update_all<Lion>);

}  // namespace
