// Runs kernels of graph_executor on the host: each thread of a block is a fibre that runs from barrier to barrier.
//
// What hardware leaves open is made as bad as it can be: a copy arrives at the moment its thread waits for it, not
// before; shared memory begins as NaN; threads run in order or in reverse. Addresses of copies are checked.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#define AICORE_EMULATED_DEVICE
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define AICORE_SHARED_WORDS(NAME) float *NAME = aicore::fibre->block->shared.data()

#include "kernels/scalars.cuh"

struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct alignas(8) float2 {
    float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }

struct Index {
    int x = 0, y = 0, z = 0;
};

namespace aicore {

[[noreturn]] inline void fail(const char *what) {
    std::fprintf(stderr, "emulated device: %s\n", what);
    std::abort();
}

struct Barrier {
    int members = 0, arrived = 0, generation = 0;
};

template <class T>
struct AlignedTo16 {
    using value_type = T;
    T *allocate(std::size_t n) { return static_cast<T *>(std::aligned_alloc(16, (n * sizeof(T) + 15) / 16 * 16)); }
    void deallocate(T *p, std::size_t) { std::free(p); }
    bool operator==(const AlignedTo16 &) const { return true; }
    bool operator!=(const AlignedTo16 &) const { return false; }
};

struct Block {
    Index index;
    std::vector<float, AlignedTo16<float>> shared;
    Barrier barrier;
};

struct Cluster {
    std::vector<Block> blocks;
    Barrier barrier;
};

// What the lanes of a warp show each other.
struct Warp {
    Barrier barrier{32};
    const float *rows[32];
    unsigned a[32][4], b[32][2];
};

struct Copy {
    float *to;
    const float *from;  // null: zeros
    int count;
};

struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Index thread;
    Block *block = nullptr;
    Cluster *cluster = nullptr;
    Warp *warp = nullptr;
    std::deque<std::vector<Copy>> groups;  // committed
    std::vector<Copy> open;
    bool done = false;
};

struct Range {
    const float *begin, *end;
};

inline Fibre *fibre = nullptr;
inline ucontext_t scheduler;
inline Index grid;
inline std::vector<Range> readable;  // what copies may read
inline void (*body)(void *) = nullptr;
inline void *argument = nullptr;

inline void yield_to_others() { swapcontext(&fibre->context, &scheduler); }

inline void wait_at(Barrier &barrier) {
    const int generation = barrier.generation;
    if (++barrier.arrived == barrier.members) {
        barrier.arrived = 0;
        barrier.generation++;
        return;
    }
    while (barrier.generation == generation) yield_to_others();
}

inline void check_copy(const float *to, const float *from, int count) {
    if (reinterpret_cast<std::uintptr_t>(to) % (4 * count) != 0) fail("a copy to an address that is not aligned");
    const auto &shared = fibre->block->shared;
    if (to < shared.data() || to + count > shared.data() + shared.size()) fail("a copy beyond shared memory");
    if (from == nullptr) return;
    if (reinterpret_cast<std::uintptr_t>(from) % (4 * count) != 0) fail("a copy from an address that is not aligned");
    for (const Range &range : readable) {
        if (from >= range.begin && from + count <= range.end) return;
    }
    fail("a copy from outside of the arrays");
}

template <int Count>
void copy_floats(float *to, const float *from, bool take) {
    check_copy(to, take ? from : nullptr, Count);
    fibre->open.push_back({to, take ? from : nullptr, Count});
}

inline void commit_copies() {
    fibre->groups.push_back(std::move(fibre->open));
    fibre->open.clear();
}

template <int Pending>
void wait_for_copies() {
    while (fibre->groups.size() > Pending) {
        for (const Copy &copy : fibre->groups.front()) {
            for (int i = 0; i < copy.count; i++) copy.to[i] = copy.from == nullptr ? 0.0f : copy.from[i];
        }
        fibre->groups.pop_front();
    }
}

inline void sync_block() { wait_at(fibre->block->barrier); }
inline void sync_cluster() { wait_at(fibre->cluster->barrier); }
inline void let_next_begin() {}
inline void wait_for_previous() {}

inline float4 read_of_block(const float *own, int rank) {
    const std::ptrdiff_t at = own - fibre->block->shared.data();
    const float *from = fibre->cluster->blocks.at(rank).shared.data() + at;
    return *reinterpret_cast<const float4 *>(from);
}

namespace tensor {

inline void load_matrices(unsigned (&words)[4], const float *row) {
    const int lane = fibre->thread.x % 32;
    Warp &warp = *fibre->warp;
    check_copy(row, nullptr, 4);
    warp.rows[lane] = row;
    wait_at(warp.barrier);
    for (int m = 0; m < 4; m++) std::memcpy(&words[m], warp.rows[m * 8 + lane / 4] + lane % 4, 4);
    wait_at(warp.barrier);
}

inline unsigned to_tf32(unsigned word) { return (word + 0x1000u) & ~0x1fffu; }

// Number `k` of a row of 32 bytes, of which lanes hold word `k % 4` of each half, or pairs of 16-bit numbers.
template <class T, int Words>
float factor(const unsigned (&of_lanes)[32][Words], int row, int upper, int k, int stride) {
    constexpr int kEach = 4 / sizeof(T);
    const unsigned word = of_lanes[row * 4 + k / kEach % 4][upper + k / kEach / 4 * stride];
    if (sizeof(T) == 4 && (word & 0x1fffu) != 0) fail("a factor that was not rounded to tf32");
    T number;
    std::memcpy(&number, reinterpret_cast<const char *>(&word) + k % kEach * sizeof(T), sizeof(T));
    return widen(number);
}

template <class T>
void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const int lane = fibre->thread.x % 32;
    Warp &warp = *fibre->warp;
    for (int i = 0; i < 4; i++) warp.a[lane][i] = a[i];
    warp.b[lane][0] = b0;
    warp.b[lane][1] = b1;
    wait_at(warp.barrier);
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 32 / static_cast<int>(sizeof(T)); k++)
            sums[i] += factor<T>(warp.a, row, i / 2, k, 2) * factor<T>(warp.b, column, 0, k, 1);
    }
    wait_at(warp.barrier);
}

}  // namespace tensor

inline void run_body() {
    body(argument);
    if (!fibre->open.empty()) fail("copies that were never committed");
    fibre->done = true;
    yield_to_others();
}

// One cluster, of as many blocks along z as the grid has; first and last thread take turns to be the first to run.
inline void run_cluster(int x, int y, int threads, std::size_t words) {
    Cluster cluster;
    cluster.blocks.resize(grid.z);
    cluster.barrier.members = threads * grid.z;
    std::vector<Fibre> fibres(threads * grid.z);
    std::vector<Warp> warps((threads + 31) / 32 * grid.z);
    for (int z = 0; z < grid.z; z++) {
        Block &block = cluster.blocks[z];
        block.index = {x, y, z};
        block.shared.assign(words, std::numeric_limits<float>::quiet_NaN());
        block.barrier.members = threads;
        for (int t = 0; t < threads; t++) {
            Fibre &one = fibres[z * threads + t];
            constexpr std::size_t kStack = 1 << 16;
            one.stack.reset(new char[kStack]);
            one.thread = {t, 0, 0};
            one.block = &block;
            one.cluster = &cluster;
            one.warp = &warps[z * ((threads + 31) / 32) + t / 32];
            getcontext(&one.context);
            one.context.uc_stack.ss_sp = one.stack.get();
            one.context.uc_stack.ss_size = kStack;
            one.context.uc_link = nullptr;
            makecontext(&one.context, run_body, 0);
        }
    }
    for (bool left = true, forward = (x + y) % 2 == 0; left; forward = !forward) {
        left = false;
        for (std::size_t i = 0; i < fibres.size(); i++) {
            fibre = &fibres[forward ? i : fibres.size() - 1 - i];
            if (fibre->done) continue;
            swapcontext(&scheduler, &fibre->context);
            left = left || !fibre->done;
        }
    }
}

template <class Kernel>
void run_kernel(Index blocks, int threads, std::size_t words, Kernel kernel) {
    grid = blocks;
    body = [](void *f) { (*static_cast<Kernel *>(f))(); };
    argument = &kernel;
    for (int y = 0; y < blocks.y; y++) {
        for (int x = 0; x < blocks.x; x++) run_cluster(x, y, threads, words);
    }
}

}  // namespace aicore

#define threadIdx (aicore::fibre->thread)
#define blockIdx (aicore::fibre->block->index)
#define gridDim (aicore::grid)
