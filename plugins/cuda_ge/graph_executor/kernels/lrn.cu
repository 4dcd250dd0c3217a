// Local response normalisation of float32: a thread for each element, which walks over the channels around its own.
//
// x / (bias + alpha / size * sum of squares) ** beta. Channels lie `step` elements apart, so that one kernel serves
// channels-first tensors, where step is the size of an image, and channels-last ones, where it is 1.
#include "../ge/kernel.cuh"

namespace {

using namespace aicore;

struct LrnParams {
    std::int64_t count, channels, step, size;
    float alpha, unused_alpha;  // divided by size already
    float beta, unused_beta;
    float bias, unused_bias;
};

__global__ void lrn(const float *x, float *y, const LrnParams p) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < p.count; e += stride) {
        const std::int64_t c = e / p.step % p.channels;
        std::int64_t first = c - (p.size - 1) / 2, last = c + p.size / 2;
        first = first < 0 ? 0 : first;
        last = last < p.channels ? last : p.channels - 1;
        float squares = 0.f;
        for (std::int64_t i = first; i <= last; i++) {
            const float one = x[e + (i - c) * p.step];
            squares += one * one;
        }
        y[e] = x[e] / powf(p.bias + p.alpha * squares, p.beta);
    }
}

int launch(void *const *pointers, const LrnParams &p, cudaStream_t stream) {
    if (p.count == 0) return 0;
    const std::int64_t blocks = (p.count + 255) / 256;
    return launch_early(lrn, static_cast<unsigned>(blocks < (1 << 20) ? blocks : 1 << 20), 256, 0, stream,
                        static_cast<const float *>(pointers[0]), static_cast<float *>(pointers[1]), p);
}

AICORE_KERNEL(lrn_f32, LrnParams, 2, launch);

}  // namespace
