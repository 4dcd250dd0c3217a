// From sums to results, in the order that aicore_int8_quant/ops/linear.py prescribes; CPU kernels give the same bits.
//
//   sum  = acc + bias - x_zero_point * (column sum of b) - w_zero_point * (row sum of a), which wraps
//   real = float(sum) * scale, + addend, activation; nothing is fused with a multiplication
//   code = saturate(round(real / y_scale) + y_zero_point)
#pragma once

#include "problem.cuh"

namespace int8_quant {

__device__ __forceinline__ int wrapped(unsigned x) { return static_cast<int>(x); }

__device__ __forceinline__ int byte_at(const std::int8_t *bytes, std::int64_t at, bool is_unsigned) {
    return is_unsigned ? static_cast<int>(static_cast<std::uint8_t>(bytes[at])) : static_cast<int>(bytes[at]);
}

// NaN if either is NaN, as NumPy's maximum and minimum, unlike fmaxf and fminf.
__device__ __forceinline__ float maximum(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float minimum(float a, float b) { return a < b || a != a ? a : b; }

__device__ __forceinline__ float activate(const EpilogueParams &p, float x) {
    switch (p.activation) {
        case kRelu:
            return maximum(x, 0.0f);
        case kClip:
            return minimum(maximum(x, p.alpha), p.beta);
        case kLeakyRelu:
            return x < 0.0f ? __fmul_rn(p.alpha, x) : x;
        case kHardSigmoid:
            return maximum(minimum(__fadd_rn(__fmul_rn(p.alpha, x), p.beta), 1.0f), 0.0f);
        case kHardSwish:
            return __fmul_rn(x, maximum(minimum(__fadd_rn(__fdiv_rn(x, 6.0f), 0.5f), 1.0f), 0.0f));
        default:
            return x;
    }
}

// What is the same for a whole column.
struct Column {
    int base;
    float scale;
};

__device__ __forceinline__ float scale_of(const Epilogue &e, std::int64_t at) {
    if (e.scale == nullptr) return 1.0f;
    const float own = e.scale[e.p.scale_each ? at : 0];
    if (!e.p.folds) return own;
    return static_cast<float>(double(*e.x_scale) * double(own) / double(*e.y_scale));
}

// group_column: of the packed column sums; at: of parameters in the order of the op.
__device__ __forceinline__ Column column_of(const Epilogue &e, std::int64_t group_column, std::int64_t at) {
    unsigned base = e.bias == nullptr ? 0u : static_cast<unsigned>(e.bias[at]);
    if (e.x_point != nullptr) {
        const int point = byte_at(e.x_point, 0, e.p.x_unsigned);
        base -= static_cast<unsigned>(point) * static_cast<unsigned>(e.sums[group_column]);
    }
    return {wrapped(base), scale_of(e, at)};
}

__device__ __forceinline__ int weight_point(const Epilogue &e, std::int64_t at) {
    const int point = e.w_point == nullptr ? 0 : byte_at(e.w_point, e.p.w_point_each ? at : 0, e.p.w_unsigned);
    return point - (e.p.w_unsigned ? 128 : 0);
}

// What is the same for a whole tensor.
struct Target {
    float y_scale, low, high, addend_scale, addend_point;
    int zero_point;
};

__device__ __forceinline__ Target target_of(const Epilogue &e) {
    const bool is_unsigned = e.p.out_type == kUint8;
    const int zero_point = e.y_point == nullptr ? 0 : byte_at(e.y_point, 0, is_unsigned);
    Target t;
    t.y_scale = e.y_scale == nullptr || e.p.folds ? 1.0f : *e.y_scale;
    t.zero_point = zero_point;
    t.low = float((is_unsigned ? 0 : -128) - zero_point);
    t.high = float((is_unsigned ? 255 : 127) - zero_point);
    t.addend_scale = e.addend_scale == nullptr ? 1.0f : *e.addend_scale;
    t.addend_point = e.addend_point == nullptr ? 0.0f : float(byte_at(e.addend_point, 0, e.p.addend_type == kUint8));
    return t;
}

__device__ __forceinline__ float addend_of(const Epilogue &e, const Target &t, std::int64_t at) {
    if (e.p.addend_type == kFloat32) return static_cast<const float *>(e.addend)[at];
    const float code = float(byte_at(static_cast<const std::int8_t *>(e.addend), at, e.p.addend_type == kUint8));
    return __fmul_rn(__fadd_rn(code, -t.addend_point), t.addend_scale);
}

// Of kernels that apply no more than a clamp, and divide where the scale is not folded.
__device__ __forceinline__ float clamp_of(const EpilogueParams &p, const Target &t, float real) {
    if (p.activation == kRelu) real = maximum(real, 0.0f);
    if (p.activation == kClip) real = minimum(maximum(real, p.alpha), p.beta);
    return t.y_scale == 1.0f ? real : __fdiv_rn(real, t.y_scale);
}

// Halves to even: adding 1.5 * 2^23 leaves no fraction, and the clamp keeps the sum exact.
__device__ __forceinline__ int code_of(float real, const Target &t) {
    if (real != real) real = 0.0f;
    const float clamped = fminf(fmaxf(real, t.low), t.high);
    return __float_as_int(__fadd_rn(clamped, 12582912.0f)) - 0x4B400000 + t.zero_point;
}

__device__ __forceinline__ float real_of(const Epilogue &e, const Target &t, int sum, float scale,
                                         std::int64_t addend_at) {
    float real = __fmul_rn(__int2float_rn(sum), scale);
    if (e.addend != nullptr) real = __fadd_rn(real, addend_of(e, t, addend_at));
    if (e.p.activation != kIdentity) real = activate(e.p, real);
    if (t.y_scale != 1.0f) real = __fdiv_rn(real, t.y_scale);
    return real;
}

// Writes one result at `at`, of a sum that has its base.
__device__ __forceinline__ void store_result(const Epilogue &e, const Target &t, int sum, float scale,
                                             std::int64_t at, std::int64_t addend_at) {
    if (e.p.out_type == kInt32) {
        static_cast<std::int32_t *>(e.out)[at] = sum;
        return;
    }
    const float real = real_of(e, t, sum, scale, addend_at);
    if (e.p.out_type == kFloat32) {
        static_cast<float *>(e.out)[at] = real;
    } else {
        static_cast<std::int8_t *>(e.out)[at] = static_cast<std::int8_t>(code_of(real, t));
    }
}

__device__ __forceinline__ std::int64_t result_at(const Sizes &s, std::int64_t group, std::int64_t row,
                                                  std::int64_t column) {
    // Of a product there is one image; and a division of 64 bits takes as long as finishing the result.
    const std::int64_t image = row < s.positions ? 0 : unsigned(row) / unsigned(s.positions);
    return group * s.y_group + image * s.y_image + (row - image * s.positions) * s.y_row + column * s.y_column;
}

}  // namespace int8_quant
