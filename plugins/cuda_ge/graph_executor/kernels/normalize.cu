// Normalisations of float32 whose statistics run over contiguous elements: layer, RMS, instance, group.
//
// The mean is subtracted before squares are summed, in a second walk that finds the row in cache: E[x^2] - E[x]^2 would
// cancel. A group of rows shares scale and bias by a rule that differs between the ops:
//   scale[(row / every) % count] * ... with `each` elements of a row for one entry.
#include "../reduce/rows.cuh"

namespace {

using namespace aicore;

struct NormalizeParams {
    std::int64_t rows, length;
    // Entry of scale and bias for element i of a row: (row % period) * stride + i / each % entries.
    std::int64_t period, stride, each, entries;
    std::int64_t centred;  // 0: RMS, no mean is subtracted
    float epsilon, unused;
};

// pointers: x, scale, bias or null, y, and the mean and the inverse deviation of each row, or null.
__global__ void normalize_rows(const float *x, const float *scale, const float *bias, float *y, float *means,
                               float *inverses, const NormalizeParams p) {
    __shared__ float shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const float *from = x + row * p.length;
        float mean = 0.f;
        if (p.centred) {
            float sum = 0.f;
            for (std::int64_t i = threadIdx.x; i < p.length; i += blockDim.x) sum += from[i];
            mean = reduce_block<Sum>(sum, shared) / static_cast<float>(p.length);
        }
        float squares = 0.f;
        for (std::int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
            const float off = from[i] - mean;
            squares += off * off;
        }
        squares = reduce_block<Sum>(squares, shared) / static_cast<float>(p.length);
        const float inverse = 1.f / sqrtf(squares + p.epsilon);
        const std::int64_t first = row % p.period * p.stride;
        for (std::int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
            const std::int64_t entry = first + i / p.each % p.entries;
            const float one = (from[i] - mean) * inverse * scale[entry];
            y[row * p.length + i] = bias == nullptr ? one : one + bias[entry];
        }
        if (threadIdx.x == 0) {
            if (means != nullptr) means[row] = mean;
            if (inverses != nullptr) inverses[row] = inverse;
        }
    }
}

int normalize(void *const *pointers, const NormalizeParams &p, cudaStream_t stream) {
    if (p.rows * p.length == 0) return 0;
    return launch_early(normalize_rows, row_blocks(p.rows), threads_for(p.length), 0, stream,
                        static_cast<const float *>(pointers[0]), static_cast<const float *>(pointers[1]),
                        static_cast<const float *>(pointers[2]), static_cast<float *>(pointers[3]),
                        static_cast<float *>(pointers[4]), static_cast<float *>(pointers[5]), p);
}

AICORE_KERNEL(normalize_f32, NormalizeParams, 6, normalize);

struct BatchParams {
    std::int64_t count, channels, inner;
    float epsilon, unused;
};

// (x - mean) / sqrt(variance + epsilon) * scale + bias, with statistics from training. In the order of the ONNX text.
__global__ void batch_normalize(const float *x, const float *scale, const float *bias, const float *mean,
                                const float *variance, float *y, const BatchParams p) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < p.count; e += step) {
        const std::int64_t c = e / p.inner % p.channels;
        y[e] = (x[e] - mean[c]) / sqrtf(variance[c] + p.epsilon) * scale[c] + bias[c];
    }
}

int batch(void *const *pointers, const BatchParams &p, cudaStream_t stream) {
    if (p.count == 0) return 0;
    return launch_early(batch_normalize, row_blocks((p.count + 255) / 256), 256, 0, stream,
                        static_cast<const float *>(pointers[0]), static_cast<const float *>(pointers[1]),
                        static_cast<const float *>(pointers[2]), static_cast<const float *>(pointers[3]),
                        static_cast<const float *>(pointers[4]), static_cast<float *>(pointers[5]), p);
}

AICORE_KERNEL(batch_normalize_f32, BatchParams, 6, batch);

}  // namespace
