// The launch of rows.cuh.
#include "rows.cuh"

namespace {

using namespace aicore;
using namespace aicore::pooling;

int pool_rows(void *const *pointers, const PoolParams &p, cudaStream_t stream) {
    if (outputs_of(p) == 0) return cudaSuccess;
    const auto kernel = p.kind == kMaxPool ? rows_kernel<true> : rows_kernel<false>;
    return launch_early(kernel, blocks_for(outputs_of(p) / 4, kRowThreads), kRowThreads, 0, stream, p,
                        static_cast<const float *>(pointers[0]), static_cast<float *>(pointers[1]));
}

AICORE_KERNEL(pool_rows, PoolParams, 2, pool_rows);

}  // namespace
