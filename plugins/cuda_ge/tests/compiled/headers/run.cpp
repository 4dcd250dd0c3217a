// Finds a kernel by name and runs it.
#include <cstring>

#include "op_structs.cuh"

extern "C" int run(const char *name, void **pointers, std::size_t count, const void *params, std::size_t size) {
    for (std::size_t i = 0; i < aicore::kernel_count(); i++) {
        const aicore_cuda_kernel &kernel = *aicore::kernel_at(i);
        if (std::strcmp(kernel.name, name) != 0) continue;
        if (size != kernel.params || count < kernel.pointers) return -2;
        return kernel.launch(pointers, count, params, size, nullptr);
    }
    return -1;
}
