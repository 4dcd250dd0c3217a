// How many quotients of csrc/division.cuh are not those of a division, over ranges of numbers too large for Python.
#include "division.cuh"

namespace {
using int8_quant::Divisor;
using int8_quant::Steps;

// halves / 2, and as many as `around` next numbers on either side, times the divisor: where rounding decides the code.
std::int64_t wrong_near_halves(float by, int halves, int around) {
    const Divisor divisor(by);
    std::int64_t wrong = 0;
    for (int near = -around; near <= around; near++) {
        const float real = __int_as_float(__float_as_int(0.5f * float(halves) * by) + near);
        wrong += __float_as_int(divisor.quotient(real)) != __float_as_int(real / by);
    }
    return wrong;
}
}  // namespace

extern "C" {

// Divisors of every mantissa from `first` on, in steps, with exponents of their own; numbers around all halves of codes.
std::int64_t wrong_codes(std::int64_t first, std::int64_t step) {
    std::int64_t wrong = 0;
    for (std::int64_t mantissa = first, i = 0; mantissa < 1 << 23; mantissa += step, i++) {
        const int exponent = int(67 + i % 120);  // 2^-60 to 2^59
        const float by = __int_as_float(int(exponent << 23 | mantissa));
        for (int halves = -511; halves <= 511; halves += 2) wrong += wrong_near_halves(by, halves, 2);
    }
    return wrong;
}

// Every mantissa as the divisor of one number, and one divisor of every mantissa.
std::int64_t wrong_mantissas(float one) {
    const Divisor divisor(one);
    std::int64_t wrong = 0;
    for (int mantissa = 0; mantissa < 1 << 23; mantissa++) {
        const float other = __int_as_float(0x3F800000 | mantissa);
        wrong += __float_as_int(Divisor(other).quotient(one)) != __float_as_int(one / other);
        wrong += __float_as_int(divisor.quotient(other)) != __float_as_int(other / one);
    }
    return wrong;
}

// Places around multiples of `by`, and the last ones.
std::int64_t wrong_places(std::int64_t by) {
    const Steps steps = Steps::of(by);
    std::int64_t wrong = 0;
    const std::int64_t most = (std::int64_t(1) << 31) - 1, stride = most / 9973 / by * by + by;
    const auto check = [&](std::int64_t place) {
        if (place < 0 || place > most) return;
        wrong += steps.quotient(unsigned(place)) != place / by || steps.rest(unsigned(place)) != place % by;
    };
    for (std::int64_t multiple = 0; multiple <= most; multiple += stride)
        for (int near = -1; near <= 1; near++) check(multiple + near);
    for (int i = 0; i < 100; i++) check(most - i);
    return wrong;
}

}  // extern "C"
