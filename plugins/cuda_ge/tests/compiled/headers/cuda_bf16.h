#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
    std::uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 x) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x) return {static_cast<std::uint16_t>(bits >> 16 | 64)};
    return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
