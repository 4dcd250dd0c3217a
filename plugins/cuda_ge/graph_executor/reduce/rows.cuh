// What softmax, normalisation and reductions share. A tensor is seen as [outer][length][inner]; where inner is 1, a row
// is contiguous.
//
// 1. A team takes a row: a part of a warp for a short one, a whole block for a long one. A block holds many short rows.
// 2. A row comes 16 bytes at a time and stays in registers (Held), so that memory is read once; a row too long for that
//    is walked over (walk) as often as needed.
// 3. Rows whose length is no multiple of 16 bytes begin between two packs: the first and the last pack of such a row
//    are read element by element, the others whole.
// Sums are float32 (float64 for float64), in a fixed order: of a thread, then of lanes, then of warps.
#pragma once

#include "../ge/kernel.cuh"
#include "../kernels/scalars.cuh"

namespace aicore {

constexpr int WARP = 32;
constexpr unsigned EVERYBODY = 0xffffffffu;

// How elements of a type are computed with.
template <class T> struct Number {
    using Wide = float;
    __device__ static float widen(T x) { return aicore::widen(x); }
    __device__ static T narrow(float x) { return aicore::narrow<T>(x); }
};
template <> struct Number<double> {
    using Wide = double;
    __device__ static double widen(double x) { return x; }
    __device__ static double narrow(double x) { return x; }
};
template <class T> using Wide = typename Number<T>::Wide;

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }

// Ways to make one number of two, each with the number that changes nothing.
struct Sum {
    template <class C> __device__ static C neutral() { return C(0); }
    template <class C> __device__ static C join(C a, C b) { return a + b; }
};

struct Product {
    template <class C> __device__ static C neutral() { return C(1); }
    template <class C> __device__ static C join(C a, C b) { return a * b; }
};

// NaN is larger than everything, as in NumPy.
struct Largest {
    template <class C> __device__ static C neutral() { return C(-INFINITY); }
    template <class C> __device__ static C join(C a, C b) { return a != a || a > b ? a : b; }
};

struct Smallest {
    template <class C> __device__ static C neutral() { return C(INFINITY); }
    template <class C> __device__ static C join(C a, C b) { return a != a || a < b ? a : b; }
};

// The same result in `lanes` neighbouring threads of a warp, a power of two.
template <class Op, class C> __device__ __forceinline__ C reduce_lanes(C x, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) x = Op::join(x, __shfl_xor_sync(EVERYBODY, x, step));
    return x;
}

template <class Op, class C> __device__ __forceinline__ C reduce_warp(C x) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) x = Op::join(x, __shfl_xor_sync(EVERYBODY, x, step));
    return x;
}

// The same result in every thread of the block, whose size is a multiple of 32; `shared` has room for 33 numbers.
template <class Op, class C> __device__ __forceinline__ C reduce_block(C x, C *shared) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    x = reduce_warp<Op>(x);
    if (warps == 1) return x;
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    if (warp == 0) {
        x = reduce_warp<Op>(lane < warps ? shared[lane] : Op::template neutral<C>());
        if (lane == 0) shared[WARP] = x;
    }
    __syncthreads();
    x = shared[WARP];
    __syncthreads();  // before anybody uses `shared` again
    return x;
}

// A team is the block, or `lanes` threads of a warp.
template <bool BLOCK, class Op, class C> __device__ __forceinline__ C reduce_team(C x, int lanes, C *shared) {
    if constexpr (BLOCK) return reduce_block<Op>(x, shared);
    return reduce_lanes<Op>(x, lanes);
}

// 16 bytes of neighbouring elements.
template <class T> struct alignas(16) Pack {
    static constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
    T of[kWidth];
};

// How many elements a row of a dense tensor that begins at a multiple of 16 bytes begins behind one.
template <class T> __device__ __forceinline__ int shift_of(std::int64_t row, std::int64_t length) {
    return static_cast<int>(row * length % Pack<T>::kWidth);
}

// The pack at place `from` of a row of `length`; elements that are not of the row are `neutral`.
template <class T, class I>
__device__ __forceinline__ void read_pack(const T *row, I from, I length, Wide<T> neutral, Wide<T> *to) {
    constexpr int kWidth = Pack<T>::kWidth;
    if (from >= 0 && from + kWidth <= length) {
        const Pack<T> pack = *reinterpret_cast<const Pack<T> *>(row + from);
#pragma unroll
        for (int e = 0; e < kWidth; e++) to[e] = Number<T>::widen(pack.of[e]);
        return;
    }
#pragma unroll
    for (int e = 0; e < kWidth; e++)
        to[e] = from + e >= 0 && from + e < length ? Number<T>::widen(row[from + e]) : neutral;
}

template <class T> __device__ __forceinline__ void write_whole_pack(T *to, const Wide<T> *of) {
    Pack<T> pack;
#pragma unroll
    for (int e = 0; e < Pack<T>::kWidth; e++) pack.of[e] = Number<T>::narrow(of[e]);
    *reinterpret_cast<Pack<T> *>(to) = pack;
}

template <class T, class I>
__device__ __forceinline__ void write_pack(T *row, I from, I length, const Wide<T> *of) {
    constexpr int kWidth = Pack<T>::kWidth;
    if (from >= 0 && from + kWidth <= length) {
        write_whole_pack(row + from, of);
        return;
    }
#pragma unroll
    for (int e = 0; e < kWidth; e++)
        if (from + e >= 0 && from + e < length) row[from + e] = Number<T>::narrow(of[e]);
}

// The elements of a row that one thread of a team keeps: N packs, a team apart.
// WHOLE: rows are of whole packs, so that there is one way to read one, and loads need not wait for branches.
// FULL: and of N packs for each lane, so that there is nothing to ask: half of the instructions, 1.15 times as fast.
template <class T, int N, bool WHOLE = false, bool FULL = false> struct Held {
    static_assert(WHOLE || !FULL);
    static constexpr int kWidth = Pack<T>::kWidth, kCount = N * kWidth;
    Wide<T> of[kCount];
    int first, step, length;

    // lane: of the team. shift: see shift_of.
    __device__ __forceinline__ Held(int lane, int lanes, int length_, int shift)
        : first(lane * kWidth - shift), step(lanes * kWidth), length(length_) {}

    __device__ __forceinline__ void read(const T *row, Wide<T> neutral) {
        if constexpr (!WHOLE) {
#pragma unroll
            for (int k = 0; k < N; k++) read_pack<T>(row, first + k * step, length, neutral, of + k * kWidth);
            return;
        }
        Pack<T> packs[N] = {};
#pragma unroll
        for (int k = 0; k < N; k++)
            if (FULL || first + k * step < length)
                packs[k] = *reinterpret_cast<const Pack<T> *>(row + first + k * step);
#pragma unroll
        for (int i = 0; i < kCount; i++) {
            const bool there = FULL || first + i / kWidth * step < length;
            of[i] = there ? Number<T>::widen(packs[i / kWidth].of[i % kWidth]) : neutral;
        }
    }

    __device__ __forceinline__ void write(T *row) const {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int from = first + k * step;
            if constexpr (!WHOLE) write_pack<T>(row, from, length, of + k * kWidth);
            else if (FULL || from < length) write_whole_pack(row + from, of + k * kWidth);
        }
    }

    // Adds another row of the same length and shift.
    __device__ __forceinline__ void add(const T *row) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int from = first + k * step;
            Wide<T> other[kWidth];
            if (WHOLE && !FULL && from >= length) continue;
            read_pack<T>(row + (WHOLE ? from : 0), WHOLE ? 0 : from, WHOLE ? kWidth : length, Wide<T>(0), other);
#pragma unroll
            for (int e = 0; e < kWidth; e++) of[k * kWidth + e] += other[e];
        }
    }

    // f(element) for those that are of the row.
    template <class F> __device__ __forceinline__ void each(F f) {
#pragma unroll
        for (int k = 0; k < N; k++)
#pragma unroll
            for (int e = 0; e < kWidth; e++) {
                const int i = first + k * step + (WHOLE ? 0 : e);
                if (FULL || static_cast<unsigned>(i) < static_cast<unsigned>(length)) f(of[k * kWidth + e]);
            }
    }

    template <class Op> __device__ __forceinline__ Wide<T> joined() const {
        Wide<T> all = of[0];
#pragma unroll
        for (int i = 1; i < kCount; i++) all = Op::join(all, of[i]);
        return all;
    }
};

constexpr int kWalkAhead = 4;  // packs that a thread reads before it uses the first

// f(pack, place) for the packs of places begin to end of a row that are this thread's; the pack has `neutral` where an
// element is not of the row. `begin` and `end` are multiples of the width of a pack, less the shift.
template <class T, class F>
__device__ __forceinline__ void walk(const T *row, std::int64_t length, std::int64_t begin, std::int64_t end, int lane,
                                     int lanes, Wide<T> neutral, F f) {
    constexpr int kWidth = Pack<T>::kWidth;
    const std::int64_t step = static_cast<std::int64_t>(lanes) * kWidth;
    for (std::int64_t from = begin + lane * kWidth; from < end; from += kWalkAhead * step) {
        Wide<T> packs[kWalkAhead][kWidth];
#pragma unroll
        for (int k = 0; k < kWalkAhead; k++)
            if (from + k * step < end) read_pack<T>(row, from + k * step, length, neutral, packs[k]);
#pragma unroll
        for (int k = 0; k < kWalkAhead; k++)
            if (from + k * step < end) f(packs[k], from + k * step);
    }
}

// How a kernel that holds rows takes rows of this length.
struct RowPlan {
    unsigned packs;    // of each thread, a power of two
    unsigned lanes;    // of the team
    unsigned threads;  // of the block
    unsigned rows;     // that a block takes at once
    bool block;        // whether the block is the team
};

constexpr unsigned kLargestTeam = 512;  // threads; with more, registers would be too few
constexpr unsigned kBusyBlocks = 264;   // two for each multiprocessor of a large GPU

// Threads keep at most `most` packs. Where that is too little for the largest team, packs is 0: rows cannot be held.
inline RowPlan plan_rows(std::int64_t rows, std::int64_t length, int width, unsigned most) {
    const std::int64_t packs = (length + width - 1) / width + (length % width != 0);
    if (packs > static_cast<std::int64_t>(kLargestTeam) * most) return {0, 0, 0, 0, true};
    RowPlan plan = {1, 1, 256, 1, packs > WARP * most};
    if (plan.block) {
        plan.packs = most;
        plan.threads = 2 * WARP;
        while (static_cast<std::int64_t>(plan.threads) * most < packs) plan.threads *= 2;
        plan.lanes = plan.threads;
        return plan;
    }
    while (plan.lanes < WARP && plan.lanes < packs) plan.lanes *= 2;
    while (plan.lanes * plan.packs < packs) plan.packs *= 2;
    while (plan.threads > WARP && rows * plan.lanes < static_cast<std::int64_t>(plan.threads) * kBusyBlocks)
        plan.threads /= 2;
    plan.rows = plan.threads / plan.lanes;
    return plan;
}

// The lanes of such a plan. Threads that hold several packs are a whole warp, so that all distances are constants.
template <int N, bool BLOCK> __device__ __forceinline__ constexpr int lanes_of(int lanes) {
    return !BLOCK && N > 1 ? WARP : lanes;
}

constexpr std::int64_t MOST_BLOCKS = 1 << 20;

inline unsigned row_blocks(std::int64_t rows) { return static_cast<unsigned>(rows < MOST_BLOCKS ? rows : MOST_BLOCKS); }

inline unsigned row_blocks(std::int64_t rows, unsigned each) { return row_blocks((rows + each - 1) / each); }

// Threads of the block that walks over one row.
inline unsigned threads_for(std::int64_t length) {
    unsigned threads = WARP;
    while (threads < 512 && threads * 4 < length) threads *= 2;
    return threads;
}

// The most packs that a thread holds: 32 registers.
template <class T> constexpr unsigned kMostPacks = sizeof(T) == 2 ? 4 : 8;

// Lanes along neighbouring columns; the other threads of the block share the length.
inline unsigned column_lanes(std::int64_t columns) {
    unsigned lanes = 1;
    while (lanes < WARP && lanes < columns) lanes *= 2;
    return lanes;
}

}  // namespace aicore
