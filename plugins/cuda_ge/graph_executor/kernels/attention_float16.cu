// Attention on float16; see attention.cuh.
#include "attention.cuh"

namespace {

using namespace aicore;

constexpr auto attention_of_64 = attention<__half, 64>;
constexpr auto attention_of_16 = attention<__half, 16>;
constexpr auto attention_of_8 = attention<__half, 8>;
AICORE_KERNEL(attention_64_float16, AttentionParams, 6, attention_of_64);
AICORE_KERNEL(attention_16_float16, AttentionParams, 6, attention_of_16);
AICORE_KERNEL(attention_8_float16, AttentionParams, 6, attention_of_8);

}  // namespace
