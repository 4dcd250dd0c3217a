// Attention on bfloat16; see attention.cuh.
#include "attention.cuh"

namespace {

using namespace aicore;

constexpr auto attention_of_64 = attention<__nv_bfloat16, 64>;
constexpr auto attention_of_16 = attention<__nv_bfloat16, 16>;
constexpr auto attention_of_8 = attention<__nv_bfloat16, 8>;
AICORE_KERNEL(attention_64_bfloat16, AttentionParams, 6, attention_of_64);
AICORE_KERNEL(attention_16_bfloat16, AttentionParams, 6, attention_of_16);
AICORE_KERNEL(attention_8_bfloat16, AttentionParams, 6, attention_of_8);

}  // namespace
