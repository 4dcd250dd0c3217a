// What every generated kernel begins with: element types, and the functions that expressions of ops are made of.
//
// It needs no header, so that NVRTC compiles it alone; a host compiler takes it too, after a few macros, and so the
// same text is tested without a GPU. An element has a type in memory, such as f16, and one to compute with, such as
// f32: wide() leads from one to the other and to_f16() back, with the rounding of one store.

namespace aicore {

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct b8 { u8 bits; };
struct w64 { u64 bits; };  // bytes that are moved, never computed with
struct alignas(16) w128 { u64 bits[2]; };

#define INLINE __device__ __forceinline__

// ---- vectors: N elements that memory gives in one access of up to 16 bytes

template <int BYTES> struct Words;
template <> struct Words<1> { u8 word; };
template <> struct Words<2> { u16 word; };
template <> struct Words<4> { u32 word; };
template <> struct alignas(8) Words<8> { u32 x, y; };
template <> struct alignas(16) Words<16> { u32 x, y, z, w; };

template <class T, int N> union Vector {
    Words<int(sizeof(T)) * N> words;
    T at[N];
};

template <class T, int N> INLINE void load(Vector<T, N> &to, const T *from) {
    to.words = *reinterpret_cast<const Words<int(sizeof(T)) * N> *>(from);
}

template <class T, int N> INLINE void store(T *to, const Vector<T, N> &from) {
    *reinterpret_cast<Words<int(sizeof(T)) * N> *>(to) = from.words;
}

template <class To, class From> INLINE To same_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "bits are neither made nor lost");
    union { From from; To to; } both;
    both.from = x;
    return both.to;
}

INLINE f32 infinity() { return same_bits<f32>(0x7f800000u); }
INLINE f32 not_a_number() { return same_bits<f32>(0x7fc00000u); }

// ---- launches that overlap: the next kernel may begin, and this one waits for what it reads

INLINE void begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- numbers of 16 bits

#ifdef __CUDACC__
INLINE u16 half_of(f32 x) { u16 bits; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); return bits; }
INLINE u16 half_of(f64 x) { u16 bits; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x)); return bits; }
INLINE f32 of_half(u16 bits) { f32 x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }
#endif

INLINE u16 bfloat_of(f32 x) {
    const u32 bits = same_bits<u32>(x);
    if (x != x) return u16(bits >> 16 | 0x40);
    return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // to nearest, halves to even
}

INLINE f32 wide(f16 x) { return of_half(x.bits); }
INLINE f32 wide(bf16 x) { return same_bits<f32>(u32(x.bits) << 16); }
INLINE bool wide(b8 x) { return x.bits != 0; }
template <class T> INLINE T wide(T x) { return x; }

INLINE f16 to_f16(f32 x) { return {half_of(x)}; }
INLINE f16 to_f16(f64 x) { return {half_of(x)}; }
INLINE bf16 to_bf16(f32 x) { return {bfloat_of(x)}; }
INLINE b8 to_b8(bool x) { return {u8(x)}; }

// ---- arithmetic; integers wrap, which only unsigned ones may do in C++

template <class T> struct Wrapping { typedef T type; };
template <> struct Wrapping<i8> { typedef u32 type; };
template <> struct Wrapping<i16> { typedef u32 type; };
template <> struct Wrapping<i32> { typedef u32 type; };
template <> struct Wrapping<i64> { typedef u64 type; };
template <> struct Wrapping<u8> { typedef u32 type; };
template <> struct Wrapping<u16> { typedef u32 type; };

template <class T> INLINE T add(T a, T b) { typedef typename Wrapping<T>::type W; return T(W(a) + W(b)); }
template <class T> INLINE T sub(T a, T b) { typedef typename Wrapping<T>::type W; return T(W(a) - W(b)); }
template <class T> INLINE T mul(T a, T b) { typedef typename Wrapping<T>::type W; return T(W(a) * W(b)); }
template <class T> INLINE T neg(T x) { return sub(T(0), x); }
INLINE f32 neg(f32 x) { return -x; }
INLINE f64 neg(f64 x) { return -x; }

// Dividing the smallest integer by -1 overflows, and so do signed divisions that negate.
template <class T> INLINE T div(T a, T b) { return b == T(0) ? T(0) : T(-1) < T(0) && b == T(-1) ? neg(a) : T(a / b); }
INLINE f32 div(f32 a, f32 b) { return a / b; }
INLINE f64 div(f64 a, f64 b) { return a / b; }

template <class T> INLINE T fmod(T a, T b) { return b == T(0) || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b); }
INLINE f32 fmod(f32 a, f32 b) { return ::fmodf(a, b); }
INLINE f64 fmod(f64 a, f64 b) { return ::fmod(a, b); }

// With the sign of b, as in Python.
template <class T> INLINE T mod(T a, T b) {
    const T rest = fmod(a, b);
    return rest != T(0) && b != T(0) && (rest < T(0)) != (b < T(0)) ? add(rest, b) : rest;
}

// NaN where one of them is; a comparison with it is false.
template <class T> INLINE T larger(T a, T b) { return a != a || a > b ? a : b; }
template <class T> INLINE T smaller(T a, T b) { return a != a || a < b ? a : b; }

template <class T> INLINE T abs(T x) { return x < T(0) ? neg(x) : x; }
INLINE f32 abs(f32 x) { return ::fabsf(x); }
INLINE f64 abs(f64 x) { return ::fabs(x); }
template <class T> INLINE T sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }

// ---- functions of floating point

#define FUNCTION(NAME) \
    INLINE f32 NAME(f32 x) { return ::NAME##f(x); } \
    INLINE f64 NAME(f64 x) { return ::NAME(x); }
FUNCTION(sqrt)
FUNCTION(exp)
FUNCTION(expm1)
FUNCTION(log)
FUNCTION(log1p)
FUNCTION(erf)
FUNCTION(sin)
FUNCTION(cos)
FUNCTION(tan)
FUNCTION(asin)
FUNCTION(acos)
FUNCTION(atan)
FUNCTION(sinh)
FUNCTION(cosh)
FUNCTION(tanh)
FUNCTION(asinh)
FUNCTION(acosh)
FUNCTION(atanh)
FUNCTION(ceil)
FUNCTION(floor)
FUNCTION(trunc)
FUNCTION(rint)
#undef FUNCTION

template <class T> INLINE T reciprocal(T x) { return T(1) / x; }

// The square is by far the most frequent power; when the exponent is one number for all, the branch is free.
INLINE f32 power(f32 x, f32 y) { return y == 2 ? x * x : ::powf(x, y); }
INLINE f64 power(f64 x, f64 y) { return y == 2 ? x * x : ::pow(x, y); }

// CUDA's pow is off by up to 2 units in the last place, so that 9 to the power 0.5 may be 2.9999999999999996, which loses
// a whole unit when its fraction is dropped. What is as close as 4 units to a whole number is that number.
INLINE f64 whole_if_close(f64 x) {
    const f64 whole = ::rint(x);
    return ::fabs(x - whole) <= 4 * 2.220446049250313e-16 * ::fabs(whole) ? whole : x;
}

// By squaring; a negative power is 0 but for the bases 1 and -1.
INLINE i64 power(i64 x, i64 y) {
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 != 0 ? -1 : 1) : 0;
    u64 result = 1, base = u64(x);
    for (u64 rest = u64(y); rest != 0; rest >>= 1, base *= base) {
        if (rest & 1) result *= base;
    }
    return i64(result);
}

// ---- activations, each by the formula of its ONNX text

template <class T> INLINE T relu(T x) { return x < T(0) ? T(0) : x; }
template <class T> INLINE T prelu(T x, T slope) { return x < T(0) ? mul(slope, x) : x; }
template <class T> INLINE T elu(T x, T alpha) { return x < T(0) ? alpha * expm1(x) : x; }
template <class T> INLINE T selu(T x, T alpha, T gamma) { return gamma * (x <= T(0) ? alpha * expm1(x) : x); }
template <class T> INLINE T celu(T x, T alpha) { return larger(T(0), x) + smaller(T(0), alpha * expm1(x / alpha)); }
template <class T> INLINE T gelu(T x, T sqrt_2) { return T(0.5) * x * (T(1) + erf(x / sqrt_2)); }
template <class T> INLINE T gelu_tanh(T x, T scale, T cubic) {
    return T(0.5) * x * (T(1) + tanh(scale * (x + cubic * x * x * x)));
}
// With the exponential of a negative number whatever the sign of x, so that it never overflows.
template <class T> INLINE T sigmoid(T x) {
    const T decay = exp(-abs(x));
    return (x >= T(0) ? T(1) : decay) / (T(1) + decay);
}
template <class T> INLINE T hard_sigmoid(T x, T alpha, T beta) {
    return larger(T(0), smaller(T(1), alpha * x + beta));
}
template <class T> INLINE T hard_swish(T x) { return x * larger(T(0), smaller(T(1), x / T(6) + T(0.5))); }
template <class T> INLINE T swish(T x, T alpha) { return x * sigmoid(alpha * x); }
template <class T> INLINE T softplus(T x) { return larger(x, T(0)) + log1p(exp(-abs(x))); }
template <class T> INLINE T mish(T x) { return x * tanh(softplus(x)); }
template <class T> INLINE T softsign(T x) { return x / (T(1) + abs(x)); }
template <class T> INLINE T thresholded_relu(T x, T alpha) { return x <= alpha ? T(0) : x; }
template <class T> INLINE T shrink(T x, T lambd, T bias) {
    return x < -lambd ? x + bias : x > lambd ? x - bias : x != x ? x : T(0);
}

// ---- integers as bits

template <class T> INLINE T shift_left(T x, T y) {
    typedef typename Wrapping<T>::type W;
    return y >= T(0) && u64(y) < 8 * sizeof(T) ? T(W(x) << u32(y)) : T(0);
}
template <class T> INLINE T shift_right(T x, T y) {
    return y >= T(0) && u64(y) < 8 * sizeof(T) ? T(x >> u32(y)) : x < T(0) ? T(-1) : T(0);
}

// ---- conversions

template <class T> struct Limits;
#define LIMITS(T, LOW, HIGH) template <> struct Limits<T> { static constexpr T low = LOW, high = HIGH; };
LIMITS(i8, -0x7f - 1, 0x7f)
LIMITS(i16, -0x7fff - 1, 0x7fff)
LIMITS(i32, -0x7fffffff - 1, 0x7fffffff)
LIMITS(i64, -0x7fffffffffffffffll - 1, 0x7fffffffffffffffll)
LIMITS(u8, 0, 0xff)
LIMITS(u16, 0, 0xffff)
LIMITS(u32, 0, 0xffffffffu)
LIMITS(u64, 0, 0xffffffffffffffffull)
#undef LIMITS

// A float without its fraction; the nearest limit beyond the range, and 0 for NaN. The end of each range is a power of
// two, so the comparisons are exact, though the largest integer itself is no float of every type.
template <class T, class F> INLINE T saturated(F x) {
    const F whole = trunc(x), end = F(Limits<T>::high / 2 + 1) * F(2);
    if (whole != whole) return T(0);
    return whole >= end ? Limits<T>::high : whole < F(Limits<T>::low) ? Limits<T>::low : T(whole);
}

template <class To, class From> struct Conversion {
    static __device__ __forceinline__ To of(From x) { return To(x); }
};
template <class To> struct Conversion<To, f32> {
    static __device__ __forceinline__ To of(f32 x) { return saturated<To>(x); }
};
template <class To> struct Conversion<To, f64> {
    static __device__ __forceinline__ To of(f64 x) { return saturated<To>(x); }
};
template <> struct Conversion<f32, f32> { static __device__ __forceinline__ f32 of(f32 x) { return x; } };
template <> struct Conversion<f64, f32> { static __device__ __forceinline__ f64 of(f32 x) { return x; } };
template <> struct Conversion<f32, f64> { static __device__ __forceinline__ f32 of(f64 x) { return f32(x); } };
template <> struct Conversion<f64, f64> { static __device__ __forceinline__ f64 of(f64 x) { return x; } };
template <> struct Conversion<bool, f32> { static __device__ __forceinline__ bool of(f32 x) { return x != 0; } };
template <> struct Conversion<bool, f64> { static __device__ __forceinline__ bool of(f64 x) { return x != 0; } };

// Between types to compute with; an integer that does not fit keeps its low bits.
template <class To, class From> INLINE To converted(From x) { return Conversion<To, From>::of(x); }

}  // namespace aicore
