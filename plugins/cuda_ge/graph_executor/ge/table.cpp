#include <vector>

#include "kernel.cuh"

namespace aicore {

namespace {

// Inside a function, so that it exists before the first file lists a kernel, in whatever order files start up.
std::vector<const aicore_cuda_kernel *> &table() {
    static std::vector<const aicore_cuda_kernel *> kernels;
    return kernels;
}

}  // namespace

bool list_kernel(const aicore_cuda_kernel *kernel) {
    table().push_back(kernel);
    return true;
}

std::size_t kernel_count() { return table().size(); }

const aicore_cuda_kernel *kernel_at(std::size_t index) { return table().at(index); }

}  // namespace aicore
