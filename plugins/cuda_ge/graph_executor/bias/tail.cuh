// What follows a matrix product in the same kernel: y = activation(alpha * product + beta * c), c broadcast by strides.
#pragma once

#include "../activation/activation.cuh"

namespace aicore {

// Strides are in elements, 0 along an axis that c is broadcast over.
struct Tail {
    std::int64_t c_row;
    std::int64_t c_column;
    float alpha;
    float unused_alpha;
    float beta;
    float unused_beta;
    Activation activation;
};

// `c` is what c has at the element, 0 where there is no c; then beta does not count, so that 0 * infinity cannot be.
AICORE_HOST_DEVICE float finish(const Tail &tail, float product, bool has_c, float c) {
    float y = tail.alpha * product;
    if (has_c) y = fmaf(tail.beta, c, y);
    return activate(tail.activation, y);
}

}  // namespace aicore
