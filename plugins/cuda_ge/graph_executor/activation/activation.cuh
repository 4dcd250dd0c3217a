// Activation functions of fused kernels and of recurrent layers: their ONNX formulas in float32, NaN to NaN.
//
// Written so that no exponential overflows. A kernel takes an Activation among its params and calls activate() in its
// last loop: the branch is the same for all threads. Where the kind is a constant, the switch disappears.
// aicore_cuda_ge/kernels/_activations.py fills the struct; host compilers read this file too, for its tests.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define AICORE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define AICORE_HOST_DEVICE inline
#endif

namespace aicore {

// The numbers are part of the params that Python packs.
enum ActivationKind : std::int64_t {
    kIdentity = 0,
    kRelu = 1,
    kClip = 2,       // alpha: lower bound, beta: upper bound
    kLeakyRelu = 3,  // alpha
    kElu = 4,        // alpha
    kSelu = 5,       // alpha, beta: gamma
    kCelu = 6,       // alpha
    kGelu = 7,
    kGeluTanh = 8,
    kSigmoid = 9,
    kHardSigmoid = 10,  // alpha, beta
    kHardSwish = 11,
    kSwish = 12,  // alpha
    kMish = 13,
    kSoftplus = 14,
    kSoftsign = 15,
    kTanh = 16,
    kThresholdedRelu = 17,  // alpha
    kShrink = 18,           // alpha: lambd, beta: bias
    kAffine = 19,           // alpha, beta; of recurrent layers
    kScaledTanh = 20,       // alpha, beta; of recurrent layers
    kReluFrom = 21,         // alpha; ThresholdedRelu of recurrent layers, which keeps alpha itself
};

struct Activation {
    std::int64_t kind;
    float alpha;
    float unused_alpha;
    float beta;
    float unused_beta;
};

// As NumPy's maximum and minimum: NaN if either is NaN, unlike fmaxf and fminf.
AICORE_HOST_DEVICE float maximum(float a, float b) { return a > b || a != a ? a : b; }
AICORE_HOST_DEVICE float minimum(float a, float b) { return a < b || a != a ? a : b; }

AICORE_HOST_DEVICE float clip(float x, float low, float high) { return minimum(maximum(x, low), high); }

AICORE_HOST_DEVICE float sigmoid(float x) {
    const float decay = expf(-fabsf(x));  // never above 1
    return (x >= 0.0f ? 1.0f : decay) / (1.0f + decay);
}

AICORE_HOST_DEVICE float softplus(float x) { return maximum(x, 0.0f) + log1pf(expf(-fabsf(x))); }

// x / 2 * (1 + erf(x / sqrt(2))), by the complement, which keeps its digits where erf is close to -1.
AICORE_HOST_DEVICE float gelu(float x) { return 0.5f * x * erfcf(-0.70710678118654752f * x); }

// x / 2 * (1 + tanh(u)) = x * sigmoid(2 u)
AICORE_HOST_DEVICE float gelu_tanh(float x) {
    return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
}

AICORE_HOST_DEVICE float activate(const Activation &f, float x) {
    switch (f.kind) {
        case kRelu:
            return maximum(x, 0.0f);
        case kClip:
            return clip(x, f.alpha, f.beta);
        case kLeakyRelu:
            return x < 0.0f ? f.alpha * x : x;
        case kElu:
            return x < 0.0f ? f.alpha * expm1f(x) : x;
        case kSelu:
            return f.beta * (x <= 0.0f ? f.alpha * expm1f(x) : x);
        case kCelu:
            return maximum(x, 0.0f) + minimum(f.alpha * expm1f(x / f.alpha), 0.0f);
        case kGelu:
            return gelu(x);
        case kGeluTanh:
            return gelu_tanh(x);
        case kSigmoid:
            return sigmoid(x);
        case kHardSigmoid:
            return clip(f.alpha * x + f.beta, 0.0f, 1.0f);
        case kHardSwish:
            return x * clip(x / 6.0f + 0.5f, 0.0f, 1.0f);
        case kSwish:
            return x * sigmoid(f.alpha * x);
        case kMish:
            return x * tanhf(softplus(x));
        case kSoftplus:
            return softplus(x);
        case kSoftsign:
            return x / (1.0f + fabsf(x));
        case kTanh:
            return tanhf(x);
        case kThresholdedRelu:
            return x <= f.alpha ? 0.0f : x;
        case kShrink:
            return x < -f.alpha ? x + f.beta : x > f.alpha ? x - f.beta : x != x ? x : 0.0f;
        case kAffine:
            return f.alpha * x + f.beta;
        case kScaledTanh:
            return f.alpha * tanhf(f.beta * x);
        case kReluFrom:
            return x < f.alpha ? 0.0f : x;
        default:
            return x;
    }
}

}  // namespace aicore
