// A product of 8-bit integers, or a convolution as one, and what becomes of its sums.
//
//   sum[g][m][n] = sum over k of a[g][m][k] * b[g][n][k]
//
// a: signed or unsigned bytes. For a product, rows of `a_row` bytes; for a convolution, windows of an image whose
// channels come last, `channels` of them (a multiple of 16) for each tap. b: signed bytes, packed, rows of `b_row`
// bytes with zeros behind `depth`. Unsigned weights became signed by the exclusive or with 128.
//
// aicore_int8_quant/cuda/problem.py packs Params. A place (`..._at`) is a position among the launch's pointers and 256
// times the bytes from there; -1 for none.
#pragma once

#include "kernel.cuh"

namespace int8_quant {

enum OutType : std::int64_t { kInt32 = 0, kFloat32 = 1, kInt8 = 2, kUint8 = 3, kNone = 4 };

enum ActivationKind : std::int64_t {
    kIdentity = 0,
    kRelu = 1,
    kClip = 2,         // alpha: lower bound, beta: upper bound
    kLeakyRelu = 3,    // alpha
    kHardSigmoid = 4,  // alpha, beta
    kHardSwish = 5,
};

struct Sizes {
    std::int64_t rows, columns, depth, groups;
    std::int64_t a_row, a_group, b_row;
    // y[g][m][n] is at g * y_group + m / positions * y_image + m % positions * y_row + n * y_column.
    std::int64_t positions, y_image, y_row, y_column, y_group;
    std::int64_t column_group;  // parameters of column n in group g are at g * column_group + n
    // Of a convolution; for a product `taps` is 0. Of a tap's `channels`, the first `filled` are not zeros.
    std::int64_t taps, kernel_width, channels, filled, height, width, out_width, pixel;
    std::int64_t stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    std::int64_t a_unsigned;
};

struct EpilogueParams {
    std::int64_t out_at, out_type;
    std::int64_t scale_at, scale_each;  // scale_each: 1 if there is one for each column
    std::int64_t x_scale_at, y_scale_at, folds;  // folds: scale is x_scale * scale / y_scale, of float64
    std::int64_t bias_at, sums_at, row_sums_at;
    std::int64_t x_point_at, x_unsigned, w_point_at, w_point_each, w_unsigned;
    std::int64_t addend_at, addend_type, addend_full, addend_scale_at, addend_point_at;
    std::int64_t y_point_at;
    std::int64_t activation;
    float alpha, unused_alpha, beta, unused_beta;
};

struct Params {
    Sizes sizes;
    EpilogueParams epilogue;
    std::int64_t a_at, b_at, tile, split, partial_at;  // partial_at: int32 sums of blocks that share a tile, or -1
};

// The same with addresses.
struct Epilogue {
    EpilogueParams p;
    void *out;
    const float *scale, *x_scale, *y_scale;
    const std::int32_t *bias, *sums, *row_sums;
    const std::int8_t *x_point, *w_point, *addend_point, *y_point;
    const void *addend;
    const float *addend_scale;
};

struct Gemm {
    Sizes s;
    Epilogue e;
    const std::int8_t *a, *b;
    std::int32_t *partial;
};

template <class T>
T *pointer(void *const *pointers, std::int64_t at) {
    if (at < 0) return nullptr;
    return reinterpret_cast<T *>(static_cast<char *>(pointers[at & 255]) + (at >> 8));
}

inline Epilogue epilogue_of(void *const *pointers, const EpilogueParams &p) {
    Epilogue e;
    e.p = p;
    e.out = pointer<char>(pointers, p.out_at);
    e.scale = pointer<const float>(pointers, p.scale_at);
    e.x_scale = pointer<const float>(pointers, p.x_scale_at);
    e.y_scale = pointer<const float>(pointers, p.y_scale_at);
    e.bias = pointer<const std::int32_t>(pointers, p.bias_at);
    e.sums = pointer<const std::int32_t>(pointers, p.sums_at);
    e.row_sums = pointer<const std::int32_t>(pointers, p.row_sums_at);
    e.x_point = pointer<const std::int8_t>(pointers, p.x_point_at);
    e.w_point = pointer<const std::int8_t>(pointers, p.w_point_at);
    e.addend = pointer<const char>(pointers, p.addend_at);
    e.addend_scale = pointer<const float>(pointers, p.addend_scale_at);
    e.addend_point = pointer<const std::int8_t>(pointers, p.addend_point_at);
    e.y_point = pointer<const std::int8_t>(pointers, p.y_point_at);
    return e;
}

inline Gemm gemm_of(void *const *pointers, const Params &p) {
    return {p.sizes, epilogue_of(pointers, p.epilogue), pointer<const std::int8_t>(pointers, p.a_at),
            pointer<const std::int8_t>(pointers, p.b_at), pointer<std::int32_t>(pointers, p.partial_at)};
}

}  // namespace int8_quant
