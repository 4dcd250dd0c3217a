// The table of kernels, and how Python launches one by name.
#include <cstring>
#include <vector>

#include "aicore_cuda_launch.h"

namespace int8_quant {

std::vector<const aicore_cuda_kernel *> &table() {
    static std::vector<const aicore_cuda_kernel *> kernels;
    return kernels;
}

bool list_kernel(const aicore_cuda_kernel *kernel) {
    table().push_back(kernel);
    return true;
}

}  // namespace int8_quant

extern "C" int run(const char *name, void *const *pointers, std::size_t count, const void *params, std::size_t size) {
    for (const aicore_cuda_kernel *kernel : int8_quant::table()) {
        if (std::strcmp(kernel->name, name) != 0) continue;
        if (kernel->params != size) return -2;
        if (kernel->pointers > count) return -3;
        return kernel->launch(pointers, count, params, size, nullptr);
    }
    return -1;
}
