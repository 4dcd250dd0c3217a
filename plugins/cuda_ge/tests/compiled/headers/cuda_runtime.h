// Lets a host compiler take the kernels of graph_executor as they are: a thread of a block is a fiber, blocks run one
// after the other, and fibers go on in another order after each barrier, so that a missing barrier shows.
// Blocks are no clusters here: kernels take the way of GPUs before compute capability 9. Those that know AICORE_FIBERS and
// ask for clusters along x have the blocks of a cluster run at once, each with shared memory of its own.
#pragma once

#define AICORE_FIBERS

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ thread_local  // there is one host thread, so fibers share it
#define __align__(BYTES) __attribute__((aligned(BYTES)))

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace aicore {
constexpr std::size_t kMostShared = 1 << 16;
inline thread_local float shared[kMostShared] __align__(16);  // what kernels declare as dynamic shared memory
}  // namespace aicore

namespace host {

enum class State { kReady, kAtBlock, kAtWarp, kAtCluster, kEnded };

struct Fiber {
    ucontext_t context;
    State state = State::kReady;
    dim3 index;
    unsigned rank = 0;  // of its block in the cluster
    double shown = 0;
};

struct Block {
    std::vector<Fiber> fibers;
    ucontext_t scheduler;
    std::size_t current = 0, threads = 0;  // threads: of each block of the cluster
    unsigned first_block = 0;              // along x
    std::vector<std::vector<float>> shared;
    std::function<void()> body;
    std::mt19937 random{1};
};

inline Block *block = nullptr;
constexpr std::size_t kStack = 128 << 10;

inline void begin_fiber() {
    block->body();
    block->fibers[block->current].state = State::kEnded;
    swapcontext(&block->fibers[block->current].context, &block->scheduler);
}

inline void wait(State state) {
    Fiber &fiber = block->fibers[block->current];
    fiber.state = state;
    swapcontext(&fiber.context, &block->scheduler);
}

// Whether fibers from `first` on, `count` of them, all wait for each other; if so, they are ready.
inline bool release(std::size_t first, std::size_t count, State state) {
    bool any = false;
    for (std::size_t i = first; i < first + count; i++) {
        const State found = block->fibers[i].state;
        if (found != state && found != State::kEnded) return false;
        any = any || found == state;
    }
    for (std::size_t i = first; any && i < first + count; i++)
        if (block->fibers[i].state == state) block->fibers[i].state = State::kReady;
    return any;
}

inline bool run_ready() {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < block->fibers.size(); i++)
        if (block->fibers[i].state == State::kReady) ready.push_back(i);
    std::shuffle(ready.begin(), ready.end(), block->random);
    for (std::size_t i : ready) {
        block->current = i;
        threadIdx = block->fibers[i].index;
        blockIdx.x = block->first_block + block->fibers[i].rank;
        swapcontext(&block->scheduler, &block->fibers[i].context);
    }
    return !ready.empty();
}

inline bool release_any() {
    const std::size_t count = block->fibers.size();
    bool any = false;
    for (std::size_t warp = 0; warp < count; warp += 32)
        any = release(warp, std::min<std::size_t>(32, count - warp), State::kAtWarp) || any;
    for (std::size_t first = 0; first < count; first += block->threads)
        any = release(first, block->threads, State::kAtBlock) || any;
    return release(0, count, State::kAtCluster) || any;
}

// Dynamic shared memory of a block of this cluster. Every block asks for as much.
inline void *shared_of(unsigned rank, std::size_t bytes) {
    std::vector<std::vector<float>> &shared = block->shared;
    if (shared.empty())
        shared.assign(block->fibers.size() / block->threads,
                      std::vector<float>(bytes / sizeof(float) + 4, std::numeric_limits<float>::quiet_NaN()));
    const std::size_t address = reinterpret_cast<std::size_t>(shared.at(rank).data());
    return reinterpret_cast<void *>((address + 15) / 16 * 16);
}

// A block, or the blocks of a cluster.
inline void run_block(const dim3 &threads, unsigned blocks, const std::function<void()> &body) {
    constexpr std::size_t kMostFibers = 8 * 512;
    static std::unique_ptr<char[]> stacks(new char[kMostFibers * kStack]);
    Block one;
    block = &one;
    one.body = body;
    one.threads = threads.x * threads.y * threads.z;
    one.first_block = blockIdx.x;
    one.fibers.resize(one.threads * blocks);
    if (one.fibers.size() > kMostFibers) std::abort();
    for (std::size_t i = 0; i < one.fibers.size(); i++) {
        Fiber &fiber = one.fibers[i];
        fiber.rank = static_cast<unsigned>(i / one.threads);
        const unsigned at = static_cast<unsigned>(i % one.threads);
        fiber.index = dim3(at % threads.x, at / threads.x % threads.y, at / threads.x / threads.y);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = stacks.get() + i * kStack;
        fiber.context.uc_stack.ss_size = kStack;
        makecontext(&fiber.context, begin_fiber, 0);
    }
    std::fill(aicore::shared, aicore::shared + aicore::kMostShared, std::numeric_limits<float>::quiet_NaN());
    do {
        while (run_ready()) {
        }
    } while (release_any());
    for (const Fiber &fiber : one.fibers)
        if (fiber.state != State::kEnded) std::abort();  // a barrier that not all reach
    blockIdx.x = one.first_block;
    block = nullptr;
}

}  // namespace host

inline void __syncthreads() { host::wait(host::State::kAtBlock); }

inline void __syncwarp() { host::wait(host::State::kAtWarp); }

// Of floats, doubles, and integers that a double holds.
template <class T> T __shfl_xor_sync(unsigned, T value, unsigned mask) {
    const std::size_t self = host::block->current;
    host::block->fibers[self].shown = static_cast<double>(value);
    host::wait(host::State::kAtWarp);
    const double other = host::block->fibers[self ^ mask].shown;
    host::wait(host::State::kAtWarp);
    return static_cast<T>(other);
}

// Of the lane `from` of the warp.
template <class T> T __shfl_sync(unsigned, T value, int from) {
    const std::size_t self = host::block->current;
    host::block->fibers[self].shown = static_cast<double>(value);
    host::wait(host::State::kAtWarp);
    const double other = host::block->fibers[self / 32 * 32 + from % 32].shown;
    host::wait(host::State::kAtWarp);
    return static_cast<T>(other);
}

inline unsigned __ballot_sync(unsigned, bool vote) {
    const std::size_t self = host::block->current, warp = self / 32 * 32;
    host::block->fibers[self].shown = vote;
    host::wait(host::State::kAtWarp);
    unsigned votes = 0;
    for (std::size_t lane = 0; lane < 32 && warp + lane < host::block->fibers.size(); lane++) {
        const host::Fiber &fiber = host::block->fibers[warp + lane];
        if (fiber.state != host::State::kEnded && fiber.shown != 0) votes |= 1u << lane;
    }
    host::wait(host::State::kAtWarp);
    return votes;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }

// Threads take turns where they wait, so that nothing comes between these two.
inline int atomicAdd(int *at, int value) {
    return std::exchange(*at, static_cast<int>(static_cast<unsigned>(*at) + static_cast<unsigned>(value)));
}
inline int atomicMax(int *at, int value) {
    const int before = *at;
    if (value > before) *at = value;
    return before;
}

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9, cudaErrorUnknown = 999 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1, cudaStreamCaptureModeRelaxed = 2 };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize,
    cudaFuncAttributePreferredSharedMemoryCarveout
};
enum { cudaSharedmemCarveoutMaxShared = 100 };
using cudaStream_t = void *;
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization, cudaLaunchAttributeClusterDimension };
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
        dim3 clusterDim;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    std::size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    static cudaStreamCaptureMode current = cudaStreamCaptureModeThreadLocal;
    std::swap(current, *mode);
    return cudaSuccess;
}

template <class K>
cudaError_t cudaFuncSetAttribute(K, cudaFuncAttribute, int) {
    return cudaSuccess;
}

inline cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

// As if there was room for so few that small tests need several waves.
inline cudaError_t cudaOccupancyMaxActiveClusters(int *count, const void *, const cudaLaunchConfig_t *) {
    *count = 6;
    return cudaSuccess;
}

template <class... Wanted, class... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Wanted...), Given &&...arguments) {
    if (config->dynamicSmemBytes > 4 * aicore::kMostShared) return cudaErrorInvalidValue;
    if (config->gridDim.y > 65535 || config->gridDim.z > 65535) return cudaErrorInvalidConfiguration;
    gridDim = config->gridDim;
    blockDim = config->blockDim;
    unsigned blocks = 1;
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) blocks = config->attrs[i].val.clusterDim.x;
    if (gridDim.x % blocks != 0) return cudaErrorInvalidValue;
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x += blocks)
                host::run_block(config->blockDim, blocks, [&] { kernel(static_cast<Wanted>(arguments)...); });
    return cudaSuccess;
}
