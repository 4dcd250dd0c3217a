// Attributes and sizes of ops as kernels take them, packed by Python's struct module: see aicore_cuda_ge/kernels/.
// Fields are 64-bit integers or 32-bit floats in pairs, so that no padding hides between them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/aicore_cuda_launch.h"

namespace aicore {

// Every compiled kernel; see ge/table.cpp.
std::size_t kernel_count();
const aicore_cuda_kernel *kernel_at(std::size_t index);

}  // namespace aicore
