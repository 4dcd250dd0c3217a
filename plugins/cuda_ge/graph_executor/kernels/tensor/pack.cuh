// Operands in the order in which tensor cores take them: numbers along the inner axis side by side, then zeros.
#pragma once

#include <cstdint>

#include "../../activation/activation.cuh"

namespace aicore::tensor {

// to[outer][row][0 .. padded) from elements at strides; those from `inner` on are zero.
struct PackRows {
    std::int64_t outer, rows, inner, padded;
    std::int64_t outer_stride, row_stride, inner_stride;  // in elements
    std::int64_t from_at, to_at;                          // which pointers
    std::int64_t to_byte;                                 // where in the second one
    std::int64_t element_bytes;                           // 2 or 4
};

template <class Word>
AICORE_HOST_DEVICE Word packed(const PackRows &p, const Word *from, std::int64_t outer, std::int64_t row,
                               std::int64_t inner) {
    if (inner >= p.inner) return 0;
    return from[outer * p.outer_stride + row * p.row_stride + inner * p.inner_stride];
}

}  // namespace aicore::tensor
