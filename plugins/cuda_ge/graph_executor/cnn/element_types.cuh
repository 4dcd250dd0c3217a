// From a number of the enum Element to the type in memory.
#pragma once

#include <cstdint>

#include "fours.cuh"
#include "window.cuh"

namespace aicore::cnn {

// Calls run(TypeOf<T>{}) for every element type; returns what it returns, or 1 for other numbers.
template <class Run>
int for_number(std::int64_t element, Run run) {
    switch (element) {
        case kFloat64: return run(TypeOf<double>{});
        case kInt8: return run(TypeOf<std::int8_t>{});
        case kUint8: return run(TypeOf<std::uint8_t>{});
        case kInt16: return run(TypeOf<std::int16_t>{});
        case kUint16: return run(TypeOf<std::uint16_t>{});
        case kInt32: return run(TypeOf<std::int32_t>{});
        case kUint32: return run(TypeOf<std::uint32_t>{});
        case kInt64: return run(TypeOf<std::int64_t>{});
        case kUint64: return run(TypeOf<std::uint64_t>{});
        default: return for_float(element, run);
    }
}

// The same for unsigned words of so many bytes, where numbers are moved and nothing is computed.
template <class Run>
int for_word(std::int64_t bytes, Run run) {
    switch (bytes) {
        case 1: return run(TypeOf<std::uint8_t>{});
        case 2: return run(TypeOf<std::uint16_t>{});
        case 4: return run(TypeOf<std::uint32_t>{});
        case 8: return run(TypeOf<std::uint64_t>{});
        default: return 1;  // cudaErrorInvalidValue
    }
}

}  // namespace aicore::cnn
