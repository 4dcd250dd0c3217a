// Attention on float32; see attention.cuh.
#include "attention.cuh"

namespace {

using namespace aicore;

constexpr auto attention_of_64 = attention<float, 64>;
constexpr auto attention_of_16 = attention<float, 16>;
constexpr auto attention_of_8 = attention<float, 8>;
AICORE_KERNEL(attention_64_float32, AttentionParams, 6, attention_of_64);
AICORE_KERNEL(attention_16_float32, AttentionParams, 6, attention_of_16);
AICORE_KERNEL(attention_8_float32, AttentionParams, 6, attention_of_8);

}  // namespace
