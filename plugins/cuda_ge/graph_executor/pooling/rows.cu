// The launch of rows.cuh.
#include "rows.cuh"

namespace {

using namespace aicore;
using namespace aicore::pooling;

int pool_rows(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    if (outputs_of(p) == 0) return cudaSuccess;
    return for_float(p.element, [&](auto type) -> int {
        using T = typename decltype(type)::Type;
        const auto kernel = p.kind == kMaxPool ? rows_kernel<true, T> : rows_kernel<false, T>;
        return launch_early(kernel, blocks_for(outputs_of(p) / 4, kRowThreads), kRowThreads, 0, stream, p,
                            static_cast<const T *>(pointers[0]), static_cast<T *>(pointers[1]));
    });
}

AICORE_KERNEL(pool_rows, PoolParams, 2, pool_rows);

}  // namespace
