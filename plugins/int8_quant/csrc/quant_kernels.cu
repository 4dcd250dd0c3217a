// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and tables of 256 results, an element after the other.
//
// An element's scale is that of its place along an axis: x has [outer][along][inner] elements; `along` is 1 where one
// scale serves all. Four elements for each thread where nothing but bytes and one axis position lie between them.
#include "epilogue_kernels.cuh"

namespace {
using namespace int8_quant;

constexpr unsigned kThreads = 256;

struct PointwiseParams {
    std::int64_t count, along, inner;
    std::int64_t x_type, out_type;  // OutType; of floats and codes
    std::int64_t x_at, scale_at, point_at, out_at;
};

__device__ __forceinline__ std::int64_t along_of(const PointwiseParams &p, std::int64_t i) {
    return p.along == 1 ? 0 : i / p.inner % p.along;
}

__device__ __forceinline__ int quantized(float x, float scale, int point, bool is_unsigned) {
    float quotient = __fdiv_rn(x, scale);
    if (quotient != quotient) quotient = 0.0f;
    const float low = float((is_unsigned ? 0 : -128) - point), high = float((is_unsigned ? 255 : 127) - point);
    const float clamped = fminf(fmaxf(quotient, low), high);
    return __float_as_int(__fadd_rn(clamped, 12582912.0f)) - 0x4B400000 + point;
}

__global__ void quantize(const PointwiseParams p, const float *x, const float *scale, const std::int8_t *points,
                         std::int8_t *out) {
    wait_for_previous();
    let_next_begin();
    const bool is_unsigned = p.out_type == kUint8;
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x * 4;
    for (std::int64_t i = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4; i < p.count; i += step) {
        float values[4] = {};
        const int left = p.count - i < 4 ? int(p.count - i) : 4;
        if (left == 4) {
            const float4 four = *reinterpret_cast<const float4 *>(x + i);
            values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
        } else {
            for (int j = 0; j < left; j++) values[j] = x[i + j];
        }
        std::uint32_t codes = 0;
        for (int j = 0; j < left; j++) {
            const std::int64_t at = along_of(p, i + j);
            const int point = points == nullptr ? 0 : byte_at(points, at, is_unsigned);
            codes |= (std::uint32_t(quantized(values[j], scale[at], point, is_unsigned)) & 255u) << (8 * j);
        }
        if (left == 4) {
            *reinterpret_cast<std::uint32_t *>(out + i) = codes;
        } else {
            for (int j = 0; j < left; j++) out[i + j] = static_cast<std::int8_t>(codes >> (8 * j));
        }
    }
}

int quantize_linear(void *const *pointers, const PointwiseParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;  // no elements, no launch
    return launch(quantize, dim3(blocks_for(p.count, 4 * kThreads, 4096)), kThreads, 0, stream, 1, p,
                  pointer<const float>(pointers, p.x_at), pointer<const float>(pointers, p.scale_at),
                  pointer<const std::int8_t>(pointers, p.point_at), pointer<std::int8_t>(pointers, p.out_at));
}
INT8_KERNEL(int8_quantize, PointwiseParams, 3, quantize_linear);

// Codes of 8 bits, or sums in int32, whose zero point is 0 as a rule.
__global__ void dequantize(const PointwiseParams p, const std::int8_t *x, const float *scale, const std::int8_t *points,
                           float *out) {
    wait_for_previous();
    let_next_begin();
    const bool is_unsigned = p.x_type == kUint8, sums = p.x_type == kInt32;
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x * 4;
    for (std::int64_t i = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4; i < p.count; i += step) {
        const int left = p.count - i < 4 ? int(p.count - i) : 4;
        float values[4] = {};
        for (int j = 0; j < left; j++) {
            const std::int64_t at = along_of(p, i + j);
            const int code = sums ? reinterpret_cast<const std::int32_t *>(x)[i + j] : byte_at(x, i + j, is_unsigned);
            const int point = points == nullptr ? 0 : byte_at(points, at, is_unsigned);
            values[j] = __fmul_rn(__int2float_rn(code - point), scale[at]);
        }
        if (left == 4) {
            *reinterpret_cast<float4 *>(out + i) = make_float4(values[0], values[1], values[2], values[3]);
        } else {
            for (int j = 0; j < left; j++) out[i + j] = values[j];
        }
    }
}

int dequantize_linear(void *const *pointers, const PointwiseParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    return launch(dequantize, dim3(blocks_for(p.count, 4 * kThreads, 4096)), kThreads, 0, stream, 1, p,
                  pointer<const std::int8_t>(pointers, p.x_at), pointer<const float>(pointers, p.scale_at),
                  pointer<const std::int8_t>(pointers, p.point_at), pointer<float>(pointers, p.out_at));
}
INT8_KERNEL(int8_dequantize, PointwiseParams, 3, dequantize_linear);

// y[i] = table[x[i] as its place among the codes]; elements of the table have 1 or 4 bytes.
struct LookupParams {
    std::int64_t count, is_signed, item;
};

template <class T>
__global__ void look_up(const LookupParams p, const std::uint8_t *x, const T *table, T *out) {
    wait_for_previous();
    let_next_begin();
    const unsigned flip = p.is_signed ? 128u : 0u;  // the smallest code comes first
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.count;
         i += std::int64_t(gridDim.x) * blockDim.x)
        out[i] = table[x[i] ^ flip];
}

int lookup(void *const *pointers, const LookupParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    const dim3 grid(blocks_for(p.count, kThreads, 8192));
    const auto *x = static_cast<const std::uint8_t *>(pointers[0]);
    if (p.item == 1) {
        return launch(look_up<std::uint8_t>, grid, kThreads, 0, stream, 1, p, x,
                      static_cast<const std::uint8_t *>(pointers[1]), static_cast<std::uint8_t *>(pointers[2]));
    }
    return launch(look_up<std::uint32_t>, grid, kThreads, 0, stream, 1, p, x,
                  static_cast<const std::uint32_t *>(pointers[1]), static_cast<std::uint32_t *>(pointers[2]));
}
INT8_KERNEL(int8_lookup, LookupParams, 3, lookup);

// From the range that observers.cu found, two floats: scale and zero point of 8 unsigned bits.
struct DynamicParams {
    std::int64_t range_at, scale_at, point_at;
};

__global__ void choose(const float *range, float *scale, std::uint8_t *point) {
    wait_for_previous();
    let_next_begin();
    if (threadIdx.x != 0) return;
    const float low = minimum(range[0], 0.0f), high = maximum(range[1], 0.0f);
    const float own = __fdiv_rn(__fadd_rn(high, -low), 255.0f);
    float start = __fadd_rn(0.0f, -__fdiv_rn(low, own));
    start = minimum(maximum(start, 0.0f), 255.0f);
    if (start != start) start = 0.0f;  // as a cast makes of it
    *scale = own;
    *point = static_cast<std::uint8_t>(__float_as_int(__fadd_rn(start, 12582912.0f)) - 0x4B400000);
}

int dynamic(void *const *pointers, const DynamicParams &p, cudaStream_t stream) {
    return launch(choose, dim3(1), 32, 0, stream, 1, pointer<const float>(pointers, p.range_at),
                  pointer<float>(pointers, p.scale_at), pointer<std::uint8_t>(pointers, p.point_at));
}
INT8_KERNEL(int8_dynamic_parameters, DynamicParams, 4, dynamic);

}  // namespace
