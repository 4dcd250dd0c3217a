// Divisions by a number that stays: of floats as the division rounds them, of places without dividing at all.
#pragma once

#include "kernel.cuh"

namespace int8_quant {

// Floats by `value`, through its inverse.
//
// quotient() is real / value as IEEE 754 rounds it. With u half a unit in the last place: the inverse is the nearest
// number to 1 / value, so the first product is within 2 units of the quotient (one rounding of the inverse, one of the
// product). A rest `real - q * value` is exact or off by a part in 2^24 of itself, so that the first correction leaves no
// more than its own rounding, u and a little: within one unit. Of such a quotient the rest is exact, and then the second
// correction gives the nearest number (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000
// processor", 1990, theorem of the correctly rounded inverse). This holds where nothing is subnormal or overflows: where
// `exact` is true, and real / value below 2^20 and zero or above 2^-40. Smaller quotients keep their sign and stay far
// below one half, which is all that rounding to codes asks of them.
struct Divisor {
    float value, inverse;
    bool exact;  // whether inverse and rests are normal numbers

    __device__ __forceinline__ explicit Divisor(float by) : value(by) {
        inverse = __fdiv_rn(1.0f, by);  // not above: nvcc hands initialisers of device code to the host's compiler, too
        exact = by >= 0x1p-60f && by <= 0x1p60f;  // neither negative nor NaN
    }

    __device__ __forceinline__ float quotient(float real) const {
        const float first = __fmul_rn(real, inverse);
        const float second = __fmaf_rn(__fmaf_rn(-first, value, real), inverse, first);
        return __fmaf_rn(__fmaf_rn(-second, value, real), inverse, second);
    }
};

// Places below 2^31 by a whole number d of 1 to 2^31. With the least s so that 2^s >= d, the multiplier 2^32 + factor is
// more than 2^(32 + s) / d by at most 1, which is too little for a place below 2^32 to reach the next whole number
// (T. Granlund, P. Montgomery, "Division by invariant integers using multiplication", 1994).
struct Steps {
    unsigned divisor, factor, shift;

    static Steps of(std::int64_t d) {
        unsigned shift = 0;
        while ((std::int64_t(1) << shift) < d) shift++;
        const std::uint64_t over = (std::uint64_t(1) << shift) - std::uint64_t(d);
        return {unsigned(d), unsigned((over << 32) / std::uint64_t(d) + 1), shift};
    }

#ifdef __CUDACC__
    __device__ __forceinline__ unsigned quotient(unsigned place) const {
        return (__umulhi(place, factor) + place) >> shift;
    }
    __device__ __forceinline__ unsigned rest(unsigned place) const { return place - quotient(place) * divisor; }
#endif
};

}  // namespace int8_quant
