// Resize: images sampled at other places, each axis by a table that was made when the step was bound.
//
// For each result of a resized axis the table has places on the operand's axis and, unless there is but one, weights.
// One thread mixes what lies at all combinations of places. Axes that stay as they are lie between resized ones and are
// merged: copied[0], resized[0], copied[1], resized[1], ... A thread keeps its places and goes through copied[0], the
// planes of an image as a rule: to find them out takes longer than to mix.
// A place of -1 is outside: the result is the extrapolation value.
//
// 1. any taps: tables are read for each plane.
// 2. at most TAPS of each axis: they are kept in registers.
#include "../ge/kernel.cuh"

#include "../cnn/window.cuh"
#include "scalars.cuh"

namespace {

using namespace aicore;

constexpr int kMost = 3, kThreads = 256;

struct ResizedAxis {
    std::int64_t size;    // of the result
    std::int64_t stride;  // of the operand
    std::int64_t taps;    // for each result
    std::int64_t table;   // where its rows begin, in the table of places and in that of weights
};

struct CopiedAxis {
    std::int64_t size, stride;
};

struct ResizeParams {
    std::int64_t element;  // cnn::Element; for nearest, bytes of an element
    std::int64_t count, axes;
    CopiedAxis copied[kMost + 1];
    ResizedAxis resized[kMost];
    std::int64_t extrapolation;  // bits of the value, as an element
};

// The sums of narrow types, and what is not summed at all.
template <class T>
struct SumOf {
    using Type = float;
};
template <>
struct SumOf<double> {
    using Type = double;
};

__device__ __forceinline__ double widen(double x) { return x; }
using aicore::widen;

template <class T>
__device__ __forceinline__ T stored(typename SumOf<T>::Type x) {
    if constexpr (std::is_same<T, double>::value)
        return x;
    else
        return narrow<T>(x);
}

template <int AXES>
struct Spot {
    std::int64_t from;       // in the operand, of copied axes but the first
    std::int64_t row[AXES];  // in the tables
};

// index: through all axes but copied[0].
template <int AXES>
__device__ __forceinline__ Spot<AXES> spot_of(const ResizeParams &p, std::uint32_t index) {
    Spot<AXES> spot;
    const auto take = [&](std::int64_t size) {
        const std::uint32_t at = index % static_cast<std::uint32_t>(size);
        index /= static_cast<std::uint32_t>(size);
        return static_cast<std::int64_t>(at);
    };
    spot.from = 0;
#pragma unroll
    for (int axis = AXES; axis > 0; axis--) {
        spot.from += take(p.copied[axis].size) * p.copied[axis].stride;
        spot.row[axis - 1] = p.resized[axis - 1].table + take(p.resized[axis - 1].size) * p.resized[axis - 1].taps;
    }
    return spot;
}

template <int AXES>
__device__ __forceinline__ bool is_outside(const Spot<AXES> &spot, const int *places) {
    bool outside = false;
#pragma unroll
    for (int axis = 0; axis < AXES; axis++) outside = outside || places[spot.row[axis]] < 0;
    return outside;
}

template <class T, int AXES, int AXIS = 0>
__device__ __forceinline__ typename SumOf<T>::Type mixed(const ResizeParams &p, const Spot<AXES> &spot, const T *x,
                                                         const int *places, const typename SumOf<T>::Type *weights) {
    if constexpr (AXIS == AXES) {
        return widen(*x);
    } else {
        const ResizedAxis &axis = p.resized[AXIS];
        typename SumOf<T>::Type sum = 0;
        for (int tap = 0; tap < axis.taps; tap++) {
            const std::int64_t at = spot.row[AXIS] + tap;
            sum += weights[at] * mixed<T, AXES, AXIS + 1>(p, spot, x + places[at] * axis.stride, places, weights);
        }
        return sum;
    }
}

template <class T>
__device__ __forceinline__ T same_bits(std::int64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Places, as distances in the operand, and weights of one spot.
template <class T, int AXES, int TAPS>
struct Kept {
    using Sum = typename SumOf<T>::Type;
    int at[AXES][TAPS];
    Sum weight[AXES][TAPS];

    __device__ __forceinline__ Kept(const ResizeParams &p, const Spot<AXES> &spot, const int *places,
                                    const Sum *weights) {
#pragma unroll
        for (int axis = 0; axis < AXES; axis++)
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const bool exists = tap < p.resized[axis].taps;
                at[axis][tap] = exists ? places[spot.row[axis] + tap] * static_cast<int>(p.resized[axis].stride) : 0;
                weight[axis][tap] = exists ? weights[spot.row[axis] + tap] : Sum(0);
            }
    }

    template <int AXIS = 0>
    __device__ __forceinline__ Sum mixed(const ResizeParams &p, const T *x) const {
        if constexpr (AXIS == AXES) {
            return widen(*x);
        } else {
            Sum sum = 0;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++)
                if (tap < p.resized[AXIS].taps) sum += weight[AXIS][tap] * mixed<AXIS + 1>(p, x + at[AXIS][tap]);
            return sum;
        }
    }
};

// Results of a plane, each by the threads of one spot.
__device__ __forceinline__ std::uint32_t plane_size(const ResizeParams &p) {
    return static_cast<std::uint32_t>(p.count) / static_cast<std::uint32_t>(p.copied[0].size);
}

template <class T, int AXES, int TAPS>
__global__ void __launch_bounds__(kThreads) mix(const T *x, T *y, const int *places,
                                                const typename SumOf<T>::Type *weights, const ResizeParams p) {
    wait_for_previous();
    let_next_begin();
    const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x, size = plane_size(p);
    if (index >= size) return;
    const Spot<AXES> spot = spot_of<AXES>(p, index);
    const bool outside = is_outside(spot, places);
    const T filling = same_bits<T>(p.extrapolation);
    x += spot.from;
    y += index;
    if constexpr (TAPS == 0) {
        for (std::int64_t plane = blockIdx.y; plane < p.copied[0].size; plane += gridDim.y)
            y[plane * size] = outside ? filling
                                      : stored<T>(mixed<T, AXES>(p, spot, x + plane * p.copied[0].stride, places, weights));
    } else {
        const Kept<T, AXES, TAPS> kept(p, spot, places, weights);
        for (std::int64_t plane = blockIdx.y; plane < p.copied[0].size; plane += gridDim.y)
            y[plane * size] = outside ? filling : stored<T>(kept.mixed(p, x + plane * p.copied[0].stride));
    }
}

template <class Word, int AXES>
__global__ void __launch_bounds__(kThreads) pick(const Word *x, Word *y, const int *places, const ResizeParams p) {
    wait_for_previous();
    let_next_begin();
    const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x, size = plane_size(p);
    if (index >= size) return;
    const Spot<AXES> spot = spot_of<AXES>(p, index);
    const bool outside = is_outside(spot, places);
    const Word filling = same_bits<Word>(p.extrapolation);
    std::int64_t from = spot.from;
#pragma unroll
    for (int axis = 0; axis < AXES; axis++) from += places[spot.row[axis]] * p.resized[axis].stride;
    for (std::int64_t plane = blockIdx.y; plane < p.copied[0].size; plane += gridDim.y)
        y[plane * size + index] = outside ? filling : x[from + plane * p.copied[0].stride];
}

// Enough threads for all multiprocessors, and as many planes for each thread as that leaves.
dim3 grid_of(const ResizeParams &p) {
    constexpr std::int64_t kEnough = std::int64_t{1} << 20, kMostBlocks = 65535;
    const std::int64_t planes = p.copied[0].size, size = p.count / planes;
    const std::int64_t wanted = (kEnough + size - 1) / size, most = planes < kMostBlocks ? planes : kMostBlocks;
    return dim3(blocks_for(size, kThreads), static_cast<unsigned>(wanted < most ? wanted : most));
}

template <class T, int AXES, int TAPS>
cudaError_t launch_mix(void *const *pointers, const ResizeParams &p, cudaStream_t stream) {
    const T *x = static_cast<const T *>(pointers[0]);
    const auto *weights = static_cast<const typename SumOf<T>::Type *>(pointers[3]);
    return launch_early(mix<T, AXES, TAPS>, grid_of(p), kThreads, 0, stream, x, static_cast<T *>(pointers[1]),
                        static_cast<const int *>(pointers[2]), weights, p);
}

template <class T, int AXES>
cudaError_t launch_mix(void *const *pointers, const ResizeParams &p, cudaStream_t stream) {
    std::int64_t taps = 0;
    for (int axis = 0; axis < AXES; axis++) taps = taps < p.resized[axis].taps ? p.resized[axis].taps : taps;
    if (taps <= 2) return launch_mix<T, AXES, 2>(pointers, p, stream);
    return taps <= 4 ? launch_mix<T, AXES, 4>(pointers, p, stream) : launch_mix<T, AXES, 0>(pointers, p, stream);
}

template <class Word, int AXES>
cudaError_t launch_pick(void *const *pointers, const ResizeParams &p, cudaStream_t stream) {
    return launch_early(pick<Word, AXES>, grid_of(p), kThreads, 0, stream, static_cast<const Word *>(pointers[0]),
                        static_cast<Word *>(pointers[1]), static_cast<const int *>(pointers[2]), p);
}

template <class T>
int mix_axes(void *const *pointers, const ResizeParams &p, cudaStream_t stream) {
    if (p.axes == 1) return launch_mix<T, 1>(pointers, p, stream);
    return p.axes == 2 ? launch_mix<T, 2>(pointers, p, stream) : launch_mix<T, 3>(pointers, p, stream);
}

template <class Word>
int pick_axes(void *const *pointers, const ResizeParams &p, cudaStream_t stream) {
    if (p.axes == 1) return launch_pick<Word, 1>(pointers, p, stream);
    return p.axes == 2 ? launch_pick<Word, 2>(pointers, p, stream) : launch_pick<Word, 3>(pointers, p, stream);
}

int resize_mix(void *const *pointers, const ResizeParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    switch (p.element) {
        case cnn::kFloat32: return mix_axes<float>(pointers, p, stream);
        case cnn::kFloat16: return mix_axes<__half>(pointers, p, stream);
        case cnn::kBfloat16: return mix_axes<__nv_bfloat16>(pointers, p, stream);
        case cnn::kFloat64: return mix_axes<double>(pointers, p, stream);
        default: return cudaErrorInvalidValue;
    }
}
AICORE_KERNEL(resize_mix, ResizeParams, 4, resize_mix);

int resize_pick(void *const *pointers, const ResizeParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    switch (p.element) {
        case 1: return pick_axes<std::uint8_t>(pointers, p, stream);
        case 2: return pick_axes<std::uint16_t>(pointers, p, stream);
        case 4: return pick_axes<std::uint32_t>(pointers, p, stream);
        case 8: return pick_axes<std::uint64_t>(pointers, p, stream);
        default: return cudaErrorInvalidValue;
    }
}
AICORE_KERNEL(resize_pick, ResizeParams, 3, resize_pick);

}  // namespace
