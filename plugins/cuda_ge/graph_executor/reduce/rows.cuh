// Reductions by a warp, by a block, and over (outer, reduced, inner).
//
// A tensor is seen as [outer][length][inner], the middle reduced. Where inner is 1 a row is contiguous: one warp takes a
// short row, one block a long one. Otherwise neighbouring threads take neighbouring columns, so that every load is whole
// lines, and rows of threads share the length.
#pragma once

#include "../ge/kernel.cuh"

namespace aicore {

constexpr int WARP = 32;
constexpr unsigned EVERYBODY = 0xffffffffu;

// Sums of float32 go through pairs of partial sums: threads, then lanes, then warps, so errors grow with the logarithm.
struct Sum {
    __device__ static float neutral() { return 0.f; }
    __device__ static float join(float a, float b) { return a + b; }
};

struct Product {
    __device__ static float neutral() { return 1.f; }
    __device__ static float join(float a, float b) { return a * b; }
};

// NaN is larger than everything, as in NumPy.
struct Largest {
    __device__ static float neutral() { return -INFINITY; }
    __device__ static float join(float a, float b) { return a != a || a > b ? a : b; }
};

struct Smallest {
    __device__ static float neutral() { return INFINITY; }
    __device__ static float join(float a, float b) { return a != a || a < b ? a : b; }
};

template <class Op> __device__ __forceinline__ float reduce_warp(float x) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) x = Op::join(x, __shfl_xor_sync(EVERYBODY, x, step));
    return x;
}

// The same result in every thread of the block, whose size is a multiple of 32; `shared` has room for 33 floats.
template <class Op> __device__ __forceinline__ float reduce_block(float x, float *shared) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    x = reduce_warp<Op>(x);
    if (warps == 1) return x;
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    if (warp == 0) {
        x = reduce_warp<Op>(lane < warps ? shared[lane] : Op::neutral());
        if (lane == 0) shared[WARP] = x;
    }
    __syncthreads();
    x = shared[WARP];
    __syncthreads();  // before anybody uses `shared` again
    return x;
}

// Threads of the block that takes one row: a warp for short ones.
inline unsigned threads_for(std::int64_t length) {
    unsigned threads = WARP;
    while (threads < 512 && threads * 4 < length) threads *= 2;
    return threads;
}

constexpr std::int64_t MOST_BLOCKS = 1 << 20;

inline unsigned row_blocks(std::int64_t rows) { return static_cast<unsigned>(rows < MOST_BLOCKS ? rows : MOST_BLOCKS); }

}  // namespace aicore
