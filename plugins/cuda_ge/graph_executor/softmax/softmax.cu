// Softmax and LogSoftmax of float32 over the middle of [outer][length][inner].
//
// Three walks over a row, of which the second and third find it in cache: the largest element, the sum of exponentials,
// the result. A row that fits into registers is read once.
#include "../reduce/rows.cuh"

namespace {

using namespace aicore;

struct SoftmaxParams {
    std::int64_t outer, length, inner;
};

template <bool LOG> __device__ __forceinline__ float result(float x, float largest, float sum) {
    return LOG ? (x - largest) - logf(sum) : expf(x - largest) / sum;
}

constexpr int HELD = 8;  // elements of a row that one thread keeps

// The block takes one contiguous row at a time; each thread keeps its elements.
template <bool LOG> __global__ void softmax_held(const float *x, float *y, const SoftmaxParams p) {
    __shared__ float shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    for (std::int64_t row = blockIdx.x; row < p.outer; row += gridDim.x) {
        float held[HELD];
        float largest = -INFINITY;
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const std::int64_t i = threadIdx.x + static_cast<std::int64_t>(k) * blockDim.x;
            held[k] = i < p.length ? x[row * p.length + i] : -INFINITY;
            largest = Largest::join(largest, held[k]);
        }
        largest = reduce_block<Largest>(largest, shared);
        float sum = 0.f;
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const std::int64_t i = threadIdx.x + static_cast<std::int64_t>(k) * blockDim.x;
            if (i < p.length) sum += expf(held[k] - largest);
        }
        sum = reduce_block<Sum>(sum, shared);
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const std::int64_t i = threadIdx.x + static_cast<std::int64_t>(k) * blockDim.x;
            if (i < p.length) y[row * p.length + i] = result<LOG>(held[k], largest, sum);
        }
    }
}

template <bool LOG> __global__ void softmax_long(const float *x, float *y, const SoftmaxParams p) {
    __shared__ float shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    for (std::int64_t row = blockIdx.x; row < p.outer; row += gridDim.x) {
        const float *from = x + row * p.length;
        float largest = -INFINITY, sum = 0.f;
        for (std::int64_t i = threadIdx.x; i < p.length; i += blockDim.x) largest = Largest::join(largest, from[i]);
        largest = reduce_block<Largest>(largest, shared);
        for (std::int64_t i = threadIdx.x; i < p.length; i += blockDim.x) sum += expf(from[i] - largest);
        sum = reduce_block<Sum>(sum, shared);
        for (std::int64_t i = threadIdx.x; i < p.length; i += blockDim.x)
            y[row * p.length + i] = result<LOG>(from[i], largest, sum);
    }
}

// Columns: a thread for each, neighbours beside each other.
template <bool LOG> __global__ void softmax_columns(const float *x, float *y, const SoftmaxParams p) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < p.outer * p.inner; e += step) {
        const std::int64_t start = e / p.inner * p.length * p.inner + e % p.inner;
        float largest = -INFINITY, sum = 0.f;
        for (std::int64_t i = 0; i < p.length; i++) largest = Largest::join(largest, x[start + i * p.inner]);
        for (std::int64_t i = 0; i < p.length; i++) sum += expf(x[start + i * p.inner] - largest);
        for (std::int64_t i = 0; i < p.length; i++)
            y[start + i * p.inner] = result<LOG>(x[start + i * p.inner], largest, sum);
    }
}

template <bool LOG> int softmax(void *const *pointers, const SoftmaxParams &p, cudaStream_t stream) {
    const float *x = static_cast<const float *>(pointers[0]);
    float *y = static_cast<float *>(pointers[1]);
    if (p.outer * p.length * p.inner == 0) return 0;
    if (p.inner > 1)
        return launch_early(softmax_columns<LOG>, row_blocks((p.outer * p.inner + 127) / 128), 128, 0, stream, x, y, p);
    if (p.length > 512 * HELD) return launch_early(softmax_long<LOG>, row_blocks(p.outer), 1024, 0, stream, x, y, p);
    unsigned threads = WARP;
    while (static_cast<std::int64_t>(threads) * HELD < p.length) threads *= 2;
    return launch_early(softmax_held<LOG>, row_blocks(p.outer), threads, 0, stream, x, y, p);
}

constexpr auto plain = softmax<false>;
constexpr auto logarithm = softmax<true>;

AICORE_KERNEL(softmax_f32, SoftmaxParams, 2, plain);
AICORE_KERNEL(log_softmax_f32, SoftmaxParams, 2, logarithm);

}  // namespace
