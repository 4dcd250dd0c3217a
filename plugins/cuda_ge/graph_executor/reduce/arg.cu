// ArgMax and ArgMin of float32 over the middle of [outer][length][inner]: a thread for each result.
//
// NaN counts as the extreme, and the first of equals wins, or the last if that is asked for; as in the reference.
#include "rows.cuh"

namespace {

using namespace aicore;

struct ArgParams {
    std::int64_t outer, length, inner, largest, last;
};

// Whether b, which comes later, replaces a.
__device__ bool replaces(float b, float a, bool largest, bool last) {
    const bool a_is_nan = a != a, b_is_nan = b != b;
    if (a_is_nan || b_is_nan) return b_is_nan && (!a_is_nan || last);
    if (a == b) return last;
    return largest ? b > a : b < a;
}

__global__ void arg_extreme(const float *x, std::int64_t *y, const ArgParams p) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < p.outer * p.inner; e += step) {
        const float *from = x + e / p.inner * p.length * p.inner + e % p.inner;
        float best = from[0];
        std::int64_t place = 0;
        for (std::int64_t i = 1; i < p.length; i++) {
            const float one = from[i * p.inner];
            if (replaces(one, best, p.largest != 0, p.last != 0)) {
                best = one;
                place = i;
            }
        }
        y[e] = place;
    }
}

int arg(void *const *pointers, const ArgParams &p, cudaStream_t stream) {
    if (p.outer * p.inner == 0) return 0;
    return launch_early(arg_extreme, row_blocks((p.outer * p.inner + 127) / 128), 128, 0, stream,
                        static_cast<const float *>(pointers[0]), static_cast<std::int64_t *>(pointers[1]), p);
}

AICORE_KERNEL(arg_extreme_f32, ArgParams, 2, arg);

}  // namespace
