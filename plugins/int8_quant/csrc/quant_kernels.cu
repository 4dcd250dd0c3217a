// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and tables of 256 results.
//
// An element's scale is that of its place along an axis: x has [outer][along][inner] elements; `along` is 1 where one
// scale serves all. A thread takes four elements next to each other at a time, in one access of memory each for floats
// and codes; of large tensors several such fours, a block's width apart, which it reads before it computes any.
#include "division.cuh"
#include "epilogue_kernels.cuh"

namespace {
using namespace int8_quant;

constexpr unsigned kThreads = 256;
constexpr int kMany = 4;  // fours of a thread
constexpr std::int64_t kManyBlocks = 1024, kMostBlocks = 1 << 20;

template <class T>
struct alignas(4 * sizeof(T)) Four {
    T at[4];
};

// The fours that a thread of a block takes together.
template <int kFours>
struct Turn {
    std::int64_t first;  // element of the thread's first four
    int left;            // elements from there on, if they are fewer than those of a turn
    bool whole;          // whether all elements of the block's turn exist

    __device__ __forceinline__ static int step(int i) { return int(4 * kThreads) * i; }
    __device__ __forceinline__ std::int64_t element(int i) const { return first + step(i); }
};

// What does not exist becomes 0.
template <int kFours, class T>
__device__ __forceinline__ void read(const Turn<kFours> &turn, const T *from, Four<T> (&to)[kFours]) {
    if (turn.whole) {
#pragma unroll
        for (int i = 0; i < kFours; i++) to[i] = *reinterpret_cast<const Four<T> *>(from + turn.element(i));
        return;
    }
#pragma unroll
    for (int i = 0; i < kFours; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = turn.step(i) + j;
            to[i].at[j] = at < turn.left ? from[turn.first + at] : T(0);
        }
    }
}

template <int kFours, class T>
__device__ __forceinline__ void write(const Turn<kFours> &turn, const Four<T> (&from)[kFours], T *to) {
    if (turn.whole) {
#pragma unroll
        for (int i = 0; i < kFours; i++) *reinterpret_cast<Four<T> *>(to + turn.element(i)) = from[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < kFours; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = turn.step(i) + j;
            if (at < turn.left) to[turn.first + at] = from[i].at[j];
        }
    }
}

// to[i] = work(turn, i, from[i]) for all elements, by blocks that take turns.
template <int kFours, class From, class To, class Work>
__device__ __forceinline__ void convert(std::int64_t count, const From *from, To *to, const Work &work) {
    wait_for_previous();
    let_next_begin();
    constexpr std::int64_t kEach = 4 * kFours * std::int64_t(kThreads);
#pragma unroll 1
    for (std::int64_t begin = blockIdx.x * kEach; begin < count; begin += gridDim.x * kEach) {
        const std::int64_t left = count - begin;
        const int at = int(4 * threadIdx.x);
        const Turn<kFours> turn = {begin + at, left < kEach ? int(left) - at : int(kEach), left >= kEach};
        Four<From> values[kFours];
        Four<To> results[kFours];
        read(turn, from, values);
        work(turn, values, results);
        write(turn, results, to);
    }
}

// Launches the first kernel, which takes one four a thread, or the second, which takes kMany, for large tensors.
template <class Kernel, class... Arguments>
int launch_fours(Kernel few, Kernel many, std::int64_t count, cudaStream_t stream, const Arguments &...arguments) {
    if (count == 0) return cudaSuccess;  // no elements, no launch
    const bool is_large = count >= kManyBlocks * 4 * kMany * kThreads;
    const dim3 grid(blocks_for(count, 4 * kThreads * (is_large ? kMany : 1), kMostBlocks));
    return launch(is_large ? many : few, grid, kThreads, 0, stream, 1, arguments...);
}

// Where the scales of four neighbours are: there is one; they share one, as rows are whole fours; they have one of two,
// as rows are longer than fours; they lie side by side, as many as fours hold; anywhere.
enum Scales { kOne, kShared, kTwoRows, kAligned, kAnywhere };

struct PointwiseParams {
    std::int64_t count, along, inner;
    std::int64_t x_type, out_type;  // OutType; of floats and codes
    std::int64_t x_at, scale_at, point_at, out_at;
};

struct Parameters {
    std::int64_t along, inner;
    bool is_small;         // whether places of elements are below 2^31
    Steps inside, across;  // kShared: fours of a row, rows. kAligned: fours of scales. Others: elements of a row, rows
    const float *scale;
    const std::uint8_t *points;  // or nullptr
    unsigned flip;               // codes with these bits flipped are 0 to 255, the smallest first

    // The zero point as it lies in memory.
    __device__ __forceinline__ std::uint8_t byte(std::int64_t at) const { return points == nullptr ? 0 : points[at]; }
};

// Of four elements, of all of them alike, or of the rows that they lie in. Bytes are not looked at where they are read:
// nobody waits there.
template <Scales kScales>
struct Own {
    static constexpr int kCount = kScales == kOne || kScales == kShared ? 1 : kScales == kTwoRows ? 2 : 4;
    std::uint8_t bytes[kCount];
    float scales[kCount];
    int left;  // kTwoRows: elements of the first row

    __device__ __forceinline__ float scale(int j) const { return of(scales, j); }
    __device__ __forceinline__ std::uint8_t byte(int j) const { return of(bytes, j); }

  private:
    template <class T>
    __device__ __forceinline__ T of(const T (&those)[kCount], int j) const {
        if constexpr (kCount == 2) return j < left ? those[0] : those[1];
        return those[kCount == 1 ? 0 : j];
    }
};

template <Scales kScales>
__device__ __forceinline__ Own<kScales> own_of(const Parameters &p, std::int64_t element) {
    Own<kScales> own;
    if constexpr (Own<kScales>::kCount == 1) {
        const unsigned at = kScales == kOne ? 0 : p.across.rest(p.inside.quotient(unsigned(element / 4)));
        own.bytes[0] = p.byte(at), own.scales[0] = p.scale[at];
    } else if constexpr (kScales == kTwoRows) {
        const unsigned row = p.inside.quotient(unsigned(element)), at = p.across.rest(row);
        const unsigned next = at + 1 == p.across.divisor ? 0 : at + 1;
        own.left = int((row + 1) * p.inside.divisor - unsigned(element));
        own.bytes[0] = p.byte(at), own.bytes[1] = p.byte(next);
        own.scales[0] = p.scale[at], own.scales[1] = p.scale[next];
    } else if constexpr (kScales == kAligned) {
        const unsigned at = 4 * p.inside.rest(unsigned(element / 4));
        Four<std::uint8_t> bytes = {};
        if (p.points != nullptr) bytes = *reinterpret_cast<const Four<std::uint8_t> *>(p.points + at);
        const auto scales = *reinterpret_cast<const Four<float> *>(p.scale + at);
#pragma unroll
        for (int j = 0; j < 4; j++) own.bytes[j] = bytes.at[j], own.scales[j] = scales.at[j];
    } else {
        const std::int64_t row = p.is_small ? p.inside.quotient(unsigned(element)) : element / p.inner;
        std::int64_t at = p.is_small ? p.across.rest(unsigned(row)) : row % p.along;
        std::int64_t left = (row + 1) * p.inner - element;  // elements of this row
#pragma unroll
        for (int j = 0; j < 4; j++) {
            own.bytes[j] = p.byte(at), own.scales[j] = p.scale[at];
            if (--left != 0) continue;
            left = p.inner;
            at = at + 1 == p.along ? 0 : at + 1;
        }
    }
    return own;
}

template <Scales kScales, int kFours>
__device__ __forceinline__ void all_own(const Parameters &p, const Turn<kFours> &turn, Own<kScales> (&own)[kFours]) {
#pragma unroll
    for (int i = 0; i < kFours; i++) own[i] = own_of<kScales>(p, turn.element(i));
}

// Zero point and clamp in steps of the scale.
struct Codes {
    unsigned byte;    // of the zero point
    float low, high;  // codes less the zero point

    __device__ __forceinline__ Codes(std::uint8_t point, unsigned flip) : byte(point) {
        low = -float(point ^ flip), high = low + 255.0f;
    }

    // Halves to even: adding 1.5 * 2^23 leaves no fraction, and the clamp keeps the sum exact. Its low byte is the code.
    __device__ __forceinline__ std::uint8_t rounded(float clamped) const {
        return std::uint8_t(unsigned(__float_as_int(__fadd_rn(clamped, 12582912.0f))) + byte);
    }

    __device__ __forceinline__ std::uint8_t quantized(float x, float scale) const {
        const float quotient = __fdiv_rn(x, scale);
        return rounded(fminf(fmaxf(quotient == quotient ? quotient : 0.0f, low), high));
    }
};

// The same by one scale for four: clamped before the division, not after it, since a code times the scale is that code
// again when it is divided and rounded.
__device__ __forceinline__ void quantize_four(const Four<float> &x, float scale, const Codes &to,
                                              Four<std::uint8_t> &codes) {
    const Divisor by(scale);
    if (!by.exact) {
        for (int j = 0; j < 4; j++) codes.at[j] = to.quantized(x.at[j], scale);
        return;
    }
    const float low = __fmul_rn(to.low, scale), high = __fmul_rn(to.high, scale);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float clamped = fminf(fmaxf(x.at[j] == x.at[j] ? x.at[j] : 0.0f, low), high);
        codes.at[j] = to.rounded(by.quotient(clamped));
    }
}

template <Scales kScales, int kFours>
__global__ void __launch_bounds__(kThreads) quantize(std::int64_t count, const Parameters p, const float *x,
                                                     std::uint8_t *out) {
    convert<kFours>(count, x, out, [&](const auto &turn, const auto &values, auto &codes) {
        Own<kScales> own[kFours];
        all_own(p, turn, own);
#pragma unroll
        for (int i = 0; i < kFours; i++) {
            if constexpr (Own<kScales>::kCount == 1) {
                quantize_four(values[i], own[i].scale(0), Codes(own[i].byte(0), p.flip), codes[i]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    codes[i].at[j] = Codes(own[i].byte(j), p.flip).quantized(values[i].at[j], own[i].scale(j));
            }
        }
    });
}

// A code of 8 bits less its zero point: 2^23 + n, for an n of 23 bits, has the bits of n at its end.
__device__ __forceinline__ float difference(std::uint8_t code, std::uint8_t point, unsigned flip) {
    return __fadd_rn(__int_as_float(int(0x4B000000 | (code ^ flip))), -(8388608.0f + float(point ^ flip)));
}
// A sum in int32, which has no zero point.
__device__ __forceinline__ float difference(std::int32_t sum, std::uint8_t, unsigned) { return __int2float_rn(sum); }

template <Scales kScales, int kFours, class Code>
__global__ void __launch_bounds__(kThreads) dequantize(std::int64_t count, const Parameters p, const Code *x,
                                                       float *out) {
    convert<kFours>(count, x, out, [&](const auto &turn, const auto &codes, auto &results) {
        Own<kScales> own[kFours];
        all_own(p, turn, own);
#pragma unroll
        for (int i = 0; i < kFours; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float whole = difference(codes[i].at[j], own[i].byte(j), p.flip);
                results[i].at[j] = __fmul_rn(whole, own[i].scale(j));
            }
        }
    });
}

Scales scales_of(const PointwiseParams &p) {
    const bool is_small = p.count < 1 << 30;
    if (p.along == 1) return kOne;
    if (is_small && p.inner % 4 == 0) return kShared;
    if (is_small && p.inner > 4) return kTwoRows;
    return is_small && p.inner == 1 && p.along % 4 == 0 ? kAligned : kAnywhere;
}

Parameters parameters_of(void *const *pointers, const PointwiseParams &p, Scales scales, std::int64_t code_type) {
    Parameters all = {p.along, p.inner, p.count < 1 << 30};
    if (all.is_small && scales != kOne) {
        const std::int64_t four = scales == kAnywhere || scales == kTwoRows ? 1 : 4;
        all.inside = Steps::of((scales == kAligned ? p.along : p.inner) / four), all.across = Steps::of(p.along);
    }
    all.scale = pointer<const float>(pointers, p.scale_at);
    all.points = pointer<const std::uint8_t>(pointers, p.point_at);
    all.flip = code_type == kUint8 ? 0 : 128;
    return all;
}

template <Scales kScales>
int quantize_by(void *const *pointers, const PointwiseParams &p, cudaStream_t stream) {
    return launch_fours(quantize<kScales, 1>, quantize<kScales, kMany>, p.count, stream, p.count,
                        parameters_of(pointers, p, kScales, p.out_type), pointer<const float>(pointers, p.x_at),
                        pointer<std::uint8_t>(pointers, p.out_at));
}

template <Scales kScales, class Code>
int dequantize_from(void *const *pointers, const PointwiseParams &p, cudaStream_t stream) {
    return launch_fours(dequantize<kScales, 1, Code>, dequantize<kScales, kMany, Code>, p.count, stream, p.count,
                        parameters_of(pointers, p, kScales, p.x_type), pointer<const Code>(pointers, p.x_at),
                        pointer<float>(pointers, p.out_at));
}

template <Scales kScales>
int dequantize_by(void *const *pointers, const PointwiseParams &p, cudaStream_t stream) {
    if (p.x_type == kInt32) return dequantize_from<kScales, std::int32_t>(pointers, p, stream);
    return dequantize_from<kScales, std::uint8_t>(pointers, p, stream);
}

int quantize_linear(void *const *pointers, const PointwiseParams &p, cudaStream_t stream) {
    constexpr decltype(&quantize_linear) ways[] = {quantize_by<kOne>, quantize_by<kShared>, quantize_by<kTwoRows>,
                                                   quantize_by<kAligned>, quantize_by<kAnywhere>};
    return ways[scales_of(p)](pointers, p, stream);
}
INT8_KERNEL(int8_quantize, PointwiseParams, 3, quantize_linear);

// Codes of 8 bits, or sums in int32.
int dequantize_linear(void *const *pointers, const PointwiseParams &p, cudaStream_t stream) {
    constexpr decltype(&dequantize_linear) ways[] = {dequantize_by<kOne>, dequantize_by<kShared>,
                                                     dequantize_by<kTwoRows>, dequantize_by<kAligned>,
                                                     dequantize_by<kAnywhere>};
    return ways[scales_of(p)](pointers, p, stream);
}
INT8_KERNEL(int8_dequantize, PointwiseParams, 3, dequantize_linear);

// y[i] = table[x[i] as its place among the codes]; elements of the table have 1 or 4 bytes.
struct LookupParams {
    std::int64_t count, is_signed, item;
};

template <int kFours, class T>
__global__ void __launch_bounds__(kThreads) look_up(std::int64_t count, unsigned flip, const std::uint8_t *x,
                                                    const T *table, T *out) {
    convert<kFours>(count, x, out, [&](const auto &, const auto &codes, auto &results) {
#pragma unroll
        for (int i = 0; i < kFours; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) results[i].at[j] = table[codes[i].at[j] ^ flip];
        }
    });
}

template <class T>
int lookup_of(void *const *pointers, const LookupParams &p, cudaStream_t stream) {
    const unsigned flip = p.is_signed ? 128u : 0u;  // the smallest code comes first
    return launch_fours(look_up<1, T>, look_up<kMany, T>, p.count, stream, p.count, flip,
                        static_cast<const std::uint8_t *>(pointers[0]), static_cast<const T *>(pointers[1]),
                        static_cast<T *>(pointers[2]));
}

int lookup(void *const *pointers, const LookupParams &p, cudaStream_t stream) {
    return p.item == 1 ? lookup_of<std::uint8_t>(pointers, p, stream) : lookup_of<std::uint32_t>(pointers, p, stream);
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
