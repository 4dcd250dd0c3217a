#pragma once

struct __half {
    _Float16 value;

    __half() = default;
    __half(float x) : value(static_cast<_Float16>(x)) {}
    explicit operator float() const { return static_cast<float>(value); }
};
inline float __half2float(__half x) { return static_cast<float>(x.value); }
inline __half __float2half_rn(float x) { return __half(x); }
