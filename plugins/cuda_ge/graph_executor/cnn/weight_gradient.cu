// Launches of weight_gradient.cuh, the sum of what the splits leave, and the gradient of weights as it is defined.
#include "../reduce/rows.cuh"
#include "weight_gradient.cuh"

namespace {

using namespace aicore;

template <class TILE>
int launch_tile(void *const *pointers, const WeightGradientParams &params, cudaStream_t stream) {
    const WeightGradient p = weight_gradient(pointers, params, TILE::kRows, TILE::kColumns, TILE::kStep);
    const cudaError_t error = cnn::allow_shared(weight_gradient_tile<TILE>, TILE::kSharedBytes);
    if (error != cudaSuccess) return error;
    const dim3 grid(static_cast<unsigned>(p.row_tiles * p.column_tiles * p.groups), static_cast<unsigned>(p.splits));
    return launch_early(weight_gradient_tile<TILE>, grid, TILE::kThreads, TILE::kSharedBytes, stream, p);
}

using Launch = int (*)(void *const *, const WeightGradientParams &, cudaStream_t);
// aicore_cuda_ge/kernels/_weight_gradient.py has the same list.
constexpr Launch kWeightGradientTiles[] = {
    launch_tile<WeightGradientTile<4, 2, 8, 8, 4, 4, 2>>,  // 128 maps x 128
    launch_tile<WeightGradientTile<2, 2, 8, 8, 4, 4, 4>>,  // 64 x 128
    launch_tile<WeightGradientTile<2, 2, 8, 4, 4, 4, 5>>,  // 64 x 64
    launch_tile<WeightGradientTile<2, 2, 4, 4, 4, 4, 8>>,  // 32 x 64
    launch_tile<WeightGradientTile<2, 2, 8, 4, 4, 1, 4>>,  // 64 x 64, any channels
    launch_tile<WeightGradientTile<2, 2, 4, 4, 4, 1, 6>>,  // 32 x 64, any channels
    launch_tile<WeightGradientTile<2, 2, 4, 4, 1, 1, 5>>,  // 32 x 64, any channels and maps
};

int conv_weight_gradient(void *const *pointers, const WeightGradientParams &p, cudaStream_t stream) {
    constexpr std::int64_t kTiles = sizeof(kWeightGradientTiles) / sizeof(kWeightGradientTiles[0]);
    if (p.conv.groups * p.conv.maps * p.conv.channels == 0) return cudaSuccess;
    if (p.tile < 0 || p.tile >= kTiles) return cudaErrorInvalidValue;
    return kWeightGradientTiles[p.tile](pointers, p, stream);
}
AICORE_KERNEL(conv_weight_gradient, WeightGradientParams, 3, conv_weight_gradient);

// dw[row][channel][tap] = sum over splits of partial[split][row][tap][channel], where rows are the maps of all groups.
struct WeightGradientSum {
    std::int64_t rows, channels, taps, splits;
    std::int64_t partial_at, partial_byte, dw_at;
};

constexpr int kSumThreads = 256, kMostParts = 32;

// Neighbouring threads take neighbouring weights; rows of threads share the splits.
__global__ void __launch_bounds__(1024) sum_splits(const float *partial, float *dw, const WeightGradientSum p) {
    __shared__ float shared[1024];
    let_next_begin();
    wait_for_previous();
    const int lanes = blockDim.x, parts = blockDim.y, part = threadIdx.y;
    const std::int64_t count = p.rows * p.channels * p.taps;
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * lanes + threadIdx.x;
    float sum = 0.0f;
    if (i < count) {
        const int splits = static_cast<int>(p.splits);
#pragma unroll 4
        for (int split = part; split < splits; split += parts) sum += partial[split * count + i];
    }
    if (parts > 1) {
        shared[part * lanes + threadIdx.x] = sum;
        __syncthreads();
        if (part > 0) return;
        for (int other = 1; other < parts; other++) sum += shared[other * lanes + threadIdx.x];
    }
    if (i >= count) return;
    const unsigned at = static_cast<unsigned>(i), channels = static_cast<unsigned>(p.channels);
    const unsigned taps = static_cast<unsigned>(p.taps), above = at / channels, row = above / taps;
    dw[(row * channels + (at - above * channels)) * taps + (above - row * taps)] = sum;
}

int conv_weight_gradient_sum(void *const *pointers, const WeightGradientSum &p, cudaStream_t stream) {
    const std::int64_t count = p.rows * p.channels * p.taps;
    if (count == 0) return cudaSuccess;
    unsigned parts = 1;
    while (parts < kMostParts && parts * 4 <= p.splits) parts *= 2;
    const unsigned lanes = parts <= 8 ? kSumThreads / parts : 32;
    const auto *partial = reinterpret_cast<const float *>(static_cast<char *>(pointers[p.partial_at]) + p.partial_byte);
    return launch_early(sum_splits, blocks_for(count, lanes), dim3(lanes, parts), 0, stream, partial,
                        static_cast<float *>(pointers[p.dw_at]), p);
}
AICORE_KERNEL(conv_weight_gradient_sum, WeightGradientSum, 2, conv_weight_gradient_sum);

// By the definition, for every layout and float type: a block sums one weight, its threads take pixels in turn.
// flag: nothing is done while it is 0; null for always.
constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads) direct_kernel(const T *x, const T *dy, T *dw, const int *flag,
                                                          const cnn::ConvParams p) {
    using Sum = Wide<T>;
    __shared__ Sum shared[kThreads];
    let_next_begin();
    wait_for_previous();
    if (flag != nullptr && *flag == 0) return;
    const cnn::Window &v = p.window;
    const std::int64_t taps = cnn::product(v.kernel), positions = cnn::product(v.out), pixels = p.images * positions;
    const std::int64_t count = p.groups * p.maps * p.channels * taps;
    for (std::int64_t index = blockIdx.x; index < count; index += gridDim.x) {
        std::int64_t tap = index % taps, k[3];
        const std::int64_t map = index / taps / p.channels;
        const std::int64_t channel = map / p.maps * p.channels + index / taps % p.channels;
        for (int axis = 2; axis >= 0; axis--) {
            k[axis] = tap % v.kernel[axis];
            tap /= v.kernel[axis];
        }
        Sum sum = 0;
        for (std::int64_t pixel = threadIdx.x; pixel < pixels; pixel += kThreads) {
            const std::int64_t image = pixel / positions, position = pixel % positions;
            std::int64_t rest = position, i[3];
            bool inside = true;
            for (int axis = 2; axis >= 0; axis--) {
                i[axis] = rest % v.out[axis] * v.stride[axis] - v.begin[axis] + k[axis] * v.dilation[axis];
                rest /= v.out[axis];
                inside = inside && i[axis] >= 0 && i[axis] < v.size[axis];
            }
            if (!inside) continue;
            const T under = x[image * p.x.image + channel * p.x.channel + cnn::pixel_of(i, v.size) * p.x.pixel];
            const T of = dy[image * p.y.image + map * p.y.channel + position * p.y.pixel];
            sum += Number<T>::widen(under) * Number<T>::widen(of);
        }
        shared[threadIdx.x] = sum;
        for (int half = kThreads / 2; half > 0; half /= 2) {
            __syncthreads();
            if (static_cast<int>(threadIdx.x) < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        if (threadIdx.x == 0) dw[index] = Number<T>::narrow(shared[0]);
        __syncthreads();
    }
}

template <class T>
int launch_direct(void *const *pointers, const cnn::ConvParams &p, std::int64_t count, cudaStream_t stream,
                  const int *flag = nullptr, std::int64_t most = std::int64_t{1} << 30) {
    return launch_early(direct_kernel<T>, blocks_for(count < most ? count : most, 1), kThreads, 0, stream,
                        static_cast<const T *>(pointers[0]), static_cast<const T *>(pointers[1]),
                        static_cast<T *>(pointers[2]), flag, p);
}

int conv_weight_gradient_direct(void *const *pointers, const cnn::ConvParams &p, cudaStream_t stream) {
    const std::int64_t count = p.groups * p.maps * p.channels * cnn::product(p.window.kernel);
    if (count == 0) return cudaSuccess;
    switch (p.element) {
        case cnn::kFloat32: return launch_direct<float>(pointers, p, count, stream);
        case cnn::kFloat16: return launch_direct<__half>(pointers, p, count, stream);
        case cnn::kBfloat16: return launch_direct<__nv_bfloat16>(pointers, p, count, stream);
        case cnn::kFloat64: return launch_direct<double>(pointers, p, count, stream);
        default: return cudaErrorInvalidValue;
    }
}
AICORE_KERNEL(conv_weight_gradient_direct, cnn::ConvParams, 3, conv_weight_gradient_direct);

// Where a library met numbers that it mixes; see library.cu.
struct RedoParams {
    cnn::ConvParams conv;
    std::int64_t flag_at;
};

int conv_weight_gradient_redo(void *const *pointers, const RedoParams &params, cudaStream_t stream) {
    const cnn::ConvParams &p = params.conv;
    const std::int64_t count = p.groups * p.maps * p.channels * cnn::product(p.window.kernel);
    if (count == 0) return cudaSuccess;
    const auto *flag = static_cast<const int *>(pointers[params.flag_at]);
    return launch_direct<float>(pointers, p, count, stream, flag, 2048);
}
AICORE_KERNEL(conv_weight_gradient_redo, RedoParams, 4, conv_weight_gradient_redo);

}  // namespace
