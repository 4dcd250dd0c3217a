// Lets a host compiler take the kernels of graph_executor as they are: a thread of a block is a fiber, blocks run one
// after the other, and fibers go on in another order after each barrier, so that a missing barrier shows.
// Blocks are no clusters here: kernels take the way of GPUs before compute capability 9.
#pragma once

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

enum class State { kReady, kAtBlock, kAtWarp, kEnded };

struct Fiber {
    ucontext_t context;
    State state = State::kReady;
    dim3 index;
    double shown = 0;
};

struct Block {
    std::vector<Fiber> fibers;
    ucontext_t scheduler;
    std::size_t current = 0;
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
        swapcontext(&block->scheduler, &block->fibers[i].context);
    }
    return !ready.empty();
}

inline bool release_any() {
    const std::size_t count = block->fibers.size();
    bool any = false;
    for (std::size_t warp = 0; warp < count; warp += 32)
        any = release(warp, std::min<std::size_t>(32, count - warp), State::kAtWarp) || any;
    return release(0, count, State::kAtBlock) || any;
}

inline void run_block(const dim3 &threads, const std::function<void()> &body) {
    static std::unique_ptr<char[]> stacks(new char[1024 * kStack]);
    Block one;
    block = &one;
    one.body = body;
    one.fibers.resize(threads.x * threads.y * threads.z);
    for (std::size_t i = 0; i < one.fibers.size(); i++) {
        Fiber &fiber = one.fibers[i];
        const unsigned at = static_cast<unsigned>(i);
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

// Threads take turns where they wait, so that nothing comes between these two.
inline int atomicMax(int *at, int value) {
    const int before = *at;
    if (value > before) *at = value;
    return before;
}

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorUnknown = 999 };
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

template <class... Wanted, class... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Wanted...), Given &&...arguments) {
    if (config->dynamicSmemBytes > 4 * aicore::kMostShared) return cudaErrorInvalidValue;
    gridDim = config->gridDim;
    blockDim = config->blockDim;
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
                host::run_block(config->blockDim, [&] { kernel(static_cast<Wanted>(arguments)...); });
    return cudaSuccess;
}
