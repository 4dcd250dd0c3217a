#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
    std::uint16_t bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(float x) {
        std::uint32_t all;
        std::memcpy(&all, &x, 4);
        bits = static_cast<std::uint16_t>(x != x ? all >> 16 | 64 : (all + 0x7fff + (all >> 16 & 1)) >> 16);
    }
    explicit operator float() const {
        const std::uint32_t all = static_cast<std::uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &all, 4);
        return value;
    }
};
inline float __bfloat162float(__nv_bfloat16 x) { return static_cast<float>(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
