// Many tensors in one launch: their addresses are parameters of the kernel, and each block takes a part of one of them.
//
// A tensor of n elements has ceil(n / chunk) blocks. `first` says with which block each tensor begins, so that a block
// finds its tensor by halving that list: all its threads read the same constants.
#pragma once

#include "../reduce/rows.cuh"

#ifndef __grid_constant__
#define __grid_constant__  // for host compilers
#endif

namespace aicore {

constexpr int kMostTensors = 64;
constexpr int kThreads = 256;
constexpr int kWidth = 4;  // floats that a thread takes at once

// As Python packs it. decays: bit i is set where tensor i has weight decay. numbers: of the formula.
struct TensorParams {
    std::int64_t count;  // of tensors
    std::int64_t chunk;  // elements of a block, a multiple of kThreads * kWidth
    std::int64_t decays;
    struct {
        float value, unused;
    } numbers[8];
    std::int64_t sizes[kMostTensors];
};

// READ operands and WRITTEN results of each tensor.
template <int READ, int WRITTEN> struct Tensors {
    const float *read[READ][kMostTensors];
    float *written[WRITTEN > 0 ? WRITTEN : 1][kMostTensors];
    std::int64_t sizes[kMostTensors];
    int first[kMostTensors + 1];
    int count, chunk;
    unsigned long long decays;
};

// The elements of a block.
struct Part {
    int tensor;
    std::int64_t begin, end;
    bool decays;
};

template <class T> __device__ __forceinline__ Part part_of(const T &tensors, int block) {
    int low = 0, high = tensors.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (tensors.first[middle] <= block) low = middle;
        else high = middle;
    }
    const std::int64_t begin = static_cast<std::int64_t>(block - tensors.first[low]) * tensors.chunk;
    const std::int64_t size = tensors.sizes[low], end = begin + tensors.chunk;
    return {low, begin, end < size ? end : size, (tensors.decays >> low & 1) != 0};
}

// The table of tensors whose addresses are, role by role, those from `pointers` on.
template <int READ, int WRITTEN> Tensors<READ, WRITTEN> tensors_of(void *const *pointers, const TensorParams &p) {
    Tensors<READ, WRITTEN> found = {};
    found.count = static_cast<int>(p.count);
    found.chunk = static_cast<int>(p.chunk);
    found.decays = static_cast<unsigned long long>(p.decays);
    for (int i = 0; i < found.count; i++) {
        for (int role = 0; role < READ; role++)
            found.read[role][i] = static_cast<const float *>(pointers[role * found.count + i]);
        for (int role = 0; role < WRITTEN; role++)
            found.written[role][i] = static_cast<float *>(pointers[(READ + role) * found.count + i]);
        found.sizes[i] = p.sizes[i];
        found.first[i + 1] = found.first[i] + static_cast<int>((p.sizes[i] + p.chunk - 1) / p.chunk);
    }
    return found;
}

// N neighbouring floats of an array that begins at a multiple of 16 bytes, as does `at`; 0 beyond the end.
struct Four {
    float of[kWidth];
};

__device__ __forceinline__ Four read_four(const float *from, std::int64_t at, std::int64_t end) {
    Four found = {};
    if (at + kWidth <= end) {
        const float4 pack = *reinterpret_cast<const float4 *>(from + at);
        return {{pack.x, pack.y, pack.z, pack.w}};
    }
    for (int i = 0; i < kWidth; i++)
        if (at + i < end) found.of[i] = from[at + i];
    return found;
}

__device__ __forceinline__ void write_four(float *to, std::int64_t at, std::int64_t end, const Four &x) {
    if (at + kWidth <= end) {
        *reinterpret_cast<float4 *>(to + at) = make_float4(x.of[0], x.of[1], x.of[2], x.of[3]);
        return;
    }
    for (int i = 0; i < kWidth; i++)
        if (at + i < end) to[at + i] = x.of[i];
}

// 1 - beta^step from the logarithm of beta: without the cancellation that comes while the power is close to 1.
__device__ __forceinline__ float begun(float logarithm_of_beta, float step) { return -expm1f(logarithm_of_beta * step); }

}  // namespace aicore
