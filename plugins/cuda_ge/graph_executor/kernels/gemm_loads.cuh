// How a block brings [STEP][EXTENT] numbers of an operand into shared memory, neighbours along EXTENT side by side.
//
// 1. Elements: one after the other, for every stride and type.
// 2. Outer: the axis along EXTENT has stride 1; 16 bytes at a time.
// 3. Inner: the inner axis has stride 1; 16 bytes at a time into registers, from where they go to four rows of shared
//    memory. `load` asks for them before the arithmetic of a step, `store` puts them down behind it.
#pragma once

#include "../cnn/block.cuh"
#include "scalars.cuh"

namespace aicore {

// Narrow types pass through registers, where they become float32.
__device__ __forceinline__ void copy_element(float *shared, const float *global, bool there) {
    cnn::copy_floats<1>(shared, global, there);
}
template <class T>
__device__ __forceinline__ void copy_element(float *shared, const T *global, bool there) {
    *shared = there ? widen(*global) : 0.0f;
}

// Neighbouring threads follow the axis whose stride is 1.
template <class T, int EXTENT, int STEP, int THREADS>
struct ElementLoads {
    static constexpr int kCount = EXTENT * STEP / THREADS, kPitch = EXTENT + 4;
    const T *source;
    std::int64_t source_each, source_step;
    int shared, shared_each;
    int inner, inner_each;
    unsigned there;  // a bit for each of the copies: inside the matrix along its outer axis

    // `first` is the element of this tile at inner index 0; `left` is how many outer indices from there exist.
    __device__ __forceinline__ ElementLoads(const T *first, std::int64_t outer_stride, std::int64_t inner_stride,
                                            std::int64_t left) {
        const int thread = threadIdx.x;
        const bool along_inner = inner_stride == 1;
        const int outer = along_inner ? thread / STEP : thread % EXTENT;
        const int outer_each = along_inner ? THREADS / STEP : 0;
        inner = along_inner ? thread % STEP : thread / EXTENT;
        inner_each = along_inner ? 0 : THREADS / EXTENT;
        source = first + outer * outer_stride + inner * inner_stride;
        source_each = outer_each * outer_stride + inner_each * inner_stride;
        source_step = STEP * inner_stride;
        shared = inner * kPitch + outer;
        shared_each = inner_each * kPitch + outer_each;
        there = 0;
#pragma unroll
        for (int i = 0; i < kCount; i++) there |= (outer + i * outer_each < left ? 1u : 0u) << i;
    }

    // `left` is how many inner indices from the beginning of this step exist.
    __device__ __forceinline__ void load(float *stage, int step, int left) {
        const T *from = source + step * source_step;
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            const bool exists = (there >> i & 1u) != 0 && inner + i * inner_each < left;
            copy_element(stage + shared + i * shared_each, from + i * source_each, exists);
        }
    }

    __device__ __forceinline__ void store(float *) const {}
};

template <int EXTENT, int STEP, int THREADS>
struct OuterLoads {
    static constexpr int kCount = EXTENT * STEP / 4 / THREADS, kPitch = EXTENT + 4;
    static constexpr int kInnerEach = THREADS / (EXTENT / 4);
    static_assert(kCount * THREADS * 4 == EXTENT * STEP && THREADS % (EXTENT / 4) == 0);
    const float *source;
    std::int64_t inner_stride;
    int shared, inner;
    bool there;

    __device__ __forceinline__ OuterLoads(const float *first, std::int64_t, std::int64_t inner_stride_,
                                          std::int64_t left)
        : inner_stride(inner_stride_) {
        const int thread = threadIdx.x;
        const int outer = thread % (EXTENT / 4) * 4;
        inner = thread / (EXTENT / 4);
        source = first + outer + inner * inner_stride;
        shared = inner * kPitch + outer;
        there = outer < left;
    }

    __device__ __forceinline__ void load(float *stage, int step, int left) {
        const float *from = source + step * STEP * inner_stride;
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            const bool exists = there && inner + i * kInnerEach < left;
            cnn::copy_floats<4>(stage + shared + i * kInnerEach * kPitch, from + i * kInnerEach * inner_stride, exists);
        }
    }

    __device__ __forceinline__ void store(float *) const {}
};

// A warp takes two fours of 16 rows: then each of its stores to shared memory meets every bank once, and the halves of
// 32 bytes in which memory is read are whole.
template <int EXTENT, int STEP, int THREADS>
struct InnerLoads {
    static constexpr int kCount = EXTENT * STEP / 4 / THREADS, kPitch = EXTENT + 4;
    static constexpr int kOuterEach = THREADS / (STEP / 4);
    static_assert(kCount * THREADS * 4 == EXTENT * STEP && kOuterEach * (STEP / 4) == THREADS);
    static_assert(STEP % 8 == 0 && kOuterEach % 16 == 0 && kPitch % 32 == 4);
    const float *source;
    std::int64_t source_each;
    int shared, inner;
    unsigned there;
    float4 fours[kCount];

    __device__ __forceinline__ InnerLoads(const float *first, std::int64_t outer_stride, std::int64_t,
                                          std::int64_t left) {
        const int thread = threadIdx.x;
        const int warp = thread / 32, outer = warp / (STEP / 8) * 16 + thread % 16;
        inner = warp % (STEP / 8) * 8 + thread / 16 % 2 * 4;
        source = first + outer * outer_stride + inner;
        source_each = kOuterEach * outer_stride;
        shared = inner * kPitch + outer;
        there = 0;
#pragma unroll
        for (int i = 0; i < kCount; i++) there |= (outer + i * kOuterEach < left ? 1u : 0u) << i;
    }

    __device__ __forceinline__ void load(float *, int step, int left) {
        const float *from = source + step * STEP;
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            fours[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if ((there >> i & 1u) != 0 && inner < left)
                fours[i] = *reinterpret_cast<const float4 *>(from + i * source_each);
        }
    }

    __device__ __forceinline__ void store(float *stage) const {
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            float *to = stage + shared + i * kOuterEach;
            to[0] = fours[i].x;
            to[kPitch] = fours[i].y;
            to[2 * kPitch] = fours[i].z;
            to[3 * kPitch] = fours[i].w;
        }
    }
};

// Along which axis neighbours lie, if they are aligned to 16 bytes.
enum class Along { kNone, kOuter, kInner };

template <class T, int EXTENT, int STEP, int THREADS, Along ALONG>
struct LoadsOf {
    using Type = ElementLoads<T, EXTENT, STEP, THREADS>;
};
template <int EXTENT, int STEP, int THREADS>
struct LoadsOf<float, EXTENT, STEP, THREADS, Along::kOuter> {
    using Type = OuterLoads<EXTENT, STEP, THREADS>;
};
template <int EXTENT, int STEP, int THREADS>
struct LoadsOf<float, EXTENT, STEP, THREADS, Along::kInner> {
    using Type = InnerLoads<EXTENT, STEP, THREADS>;
};

}  // namespace aicore
