// ScatterElements and ScatterND without a reduction, on a copy of the operand; and ScatterND that adds.
//
// Two updates may have one place; the later one wins, as if they came one after the other. So every update first claims
// its place under its number, and the largest number stays; then each writes where the claim is its own.
//
// What is added comes in the order of the updates, so that a sum has the same bits in every run, and as many as the
// reference: each slice of the result looks for its updates among all of them, unless it has none.
#include "../ge/kernel.cuh"

#include "../cnn/element_types.cuh"

namespace {

using namespace aicore;

constexpr int kThreads = 256, kMostAxes = 8;

struct ScatterParams {
    std::int64_t bytes;         // of an element
    std::int64_t wide_indices;  // int64, otherwise int32
    std::int64_t count;         // of updates: elements
    std::int64_t depth;         // numbers of an index tuple; 1 for ScatterElements
    std::int64_t slice;         // elements that a tuple stands for; 1 for ScatterElements
    std::int64_t sizes[kMostAxes], strides[kMostAxes];  // of the axes that index tuples run over, in the operand
    // ScatterElements: all axes of updates, and where they lead in the operand; 0 along the axis of indices.
    std::int64_t dims[kMostAxes], steps[kMostAxes];
};

// Where update number `i` goes; -1 if an index is out of range, which then is told.
__device__ __forceinline__ std::int64_t place_of(const ScatterParams &p, const void *indices, std::int64_t i,
                                                 long long *fault) {
    std::int64_t place = i % p.slice, rest = i;
    for (int axis = kMostAxes - 1; axis >= 0; axis--) {
        place += rest % p.dims[axis] * p.steps[axis];
        rest /= p.dims[axis];
    }
    for (std::int64_t k = 0; k < p.depth; k++) {
        const std::int64_t at = i / p.slice * p.depth + k;
        const std::int64_t index = p.wide_indices ? static_cast<const std::int64_t *>(indices)[at]
                                                  : static_cast<const std::int32_t *>(indices)[at];
        const std::int64_t counted = index < 0 ? index + p.sizes[k] : index;
        if (counted < 0 || counted >= p.sizes[k]) {
            *fault = index != 0 ? index : 1;
            return -1;
        }
        place += counted * p.strides[k];
    }
    return place;
}

__global__ void __launch_bounds__(kThreads) claim(const void *indices, int *owners, long long *fault,
                                                  const ScatterParams p) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= p.count) return;
    const std::int64_t place = place_of(p, indices, i, fault);
    if (place >= 0) atomicMax(owners + place, static_cast<int>(i));
}

template <class Word>
__global__ void __launch_bounds__(kThreads) write(const void *indices, const Word *updates, Word *y, const int *owners,
                                                  long long *fault, const ScatterParams p) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= p.count) return;
    const std::int64_t place = place_of(p, indices, i, fault);
    if (place >= 0 && owners[place] == static_cast<int>(i)) y[place] = updates[i];
}

// indices, owners, fault
int scatter_claim(void *const *pointers, const ScatterParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    const void *indices = pointers[0];
    return launch_early(claim, blocks_for(p.count, kThreads), kThreads, 0, stream, indices,
                        static_cast<int *>(pointers[1]), static_cast<long long *>(pointers[2]), p);
}
AICORE_KERNEL(scatter_claim, ScatterParams, 3, scatter_claim);

// indices, updates, y, owners, fault
int scatter_write(void *const *pointers, const ScatterParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    return cnn::for_word(p.bytes, [&](auto type) {
        using Word = typename decltype(type)::Type;
        const void *indices = pointers[0];
        return static_cast<int>(launch_early(write<Word>, blocks_for(p.count, kThreads), kThreads, 0, stream, indices,
                                             static_cast<const Word *>(pointers[1]), static_cast<Word *>(pointers[2]),
                                             static_cast<const int *>(pointers[3]),
                                             static_cast<long long *>(pointers[4]), p));
    });
}
AICORE_KERNEL(scatter_write, ScatterParams, 5, scatter_write);

struct SumParams {
    ScatterParams places;  // of slices: its own slice is 1, its strides count them
    std::int64_t slice, slices;
    std::int64_t lanes;  // threads of a slice, a power of two from 32 on
    std::int64_t type;   // SumType
};
enum SumType : std::int64_t { kFloat32, kFloat64, kInt32, kInt64 };

// targets[i]: the slice that update i is added to, or -1. hits: how many updates each slice has, 0 before.
__global__ void __launch_bounds__(kThreads) find_targets(const void *indices, int *targets, int *hits,
                                                         long long *fault, const ScatterParams p) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= p.count) return;
    const std::int64_t place = place_of(p, indices, i, fault);
    targets[i] = static_cast<int>(place);
    if (place >= 0) atomicAdd(hits + place, 1);
}

// A thread adds up one element. Several targets are read before the first is compared, and several updates before the
// first is added: there are many to look through, and a slice may have many.
template <class T>
__global__ void __launch_bounds__(kThreads) add_up(const T *x, const T *updates, T *y, const int *targets,
                                                   const int *hits, const SumParams p) {
    constexpr int kTargets = 8, kAhead = 16;
    wait_for_previous();
    let_next_begin();
    const std::int64_t slice = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    const std::int64_t element = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
    if (slice >= p.slices) return;  // whole warps, as lanes are
    const bool exists = element < p.slice;
    const std::int64_t own = slice * p.slice + element;
    const int lane = static_cast<int>(threadIdx.x % 32);
    T sum = exists ? x[own] : T(0);
    const auto add = [&](std::int64_t first, unsigned found) {
        while (found != 0) {
            T ahead[kAhead] = {};
            int count = 0;
#pragma unroll
            for (int i = 0; i < kAhead; i++) {
                if (found == 0) continue;
                const std::int64_t update = first + __ffs(static_cast<int>(found)) - 1;
                if (exists) ahead[i] = updates[update * p.slice + element];
                found &= found - 1;
                count++;
            }
#pragma unroll
            for (int i = 0; i < kAhead; i++)
                if (i < count) sum += ahead[i];
        }
    };
    for (std::int64_t first = 0, left = hits[slice]; left > 0 && first < p.places.count; first += 32 * kTargets) {
        int next[kTargets];
#pragma unroll
        for (int i = 0; i < kTargets; i++) {
            const std::int64_t at = first + 32 * i + lane;
            next[i] = at < p.places.count ? targets[at] : -1;
        }
#pragma unroll 1
        for (int i = 0; i < kTargets; i++) {
            int own = next[0];
#pragma unroll
            for (int k = 1; k < kTargets; k++) own = i == k ? next[k] : own;
            const unsigned found = __ballot_sync(0xffffffffu, own == static_cast<int>(slice));
            left -= __popc(found);
            if (found != 0) add(first + 32 * i, found);
        }
    }
    if (exists) y[own] = sum;
}

// indices, targets with hits behind them, fault
int scatter_targets(void *const *pointers, const ScatterParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    const void *indices = pointers[0];
    auto *targets = static_cast<int *>(pointers[1]);
    return launch_early(find_targets, blocks_for(p.count, kThreads), kThreads, 0, stream, indices, targets,
                        targets + p.count, static_cast<long long *>(pointers[2]), p);
}
AICORE_KERNEL(scatter_targets, ScatterParams, 3, scatter_targets);

template <class T>
int launch_sums(void *const *pointers, const SumParams &p, cudaStream_t stream) {
    const unsigned lanes = static_cast<unsigned>(p.lanes), rows = kThreads / lanes;
    const dim3 grid(blocks_for(p.slices, rows), blocks_for(p.slice, p.lanes)), block(lanes, rows);
    const auto *targets = static_cast<const int *>(pointers[3]);
    return launch_early(add_up<T>, grid, block, 0, stream, static_cast<const T *>(pointers[0]),
                        static_cast<const T *>(pointers[1]), static_cast<T *>(pointers[2]), targets,
                        targets + p.places.count, p);
}

// x, updates, y, targets with hits behind them
int scatter_sums(void *const *pointers, const SumParams &p, cudaStream_t stream) {
    if (p.slices * p.slice == 0) return cudaSuccess;
    if (p.type == kFloat32) return launch_sums<float>(pointers, p, stream);
    if (p.type == kFloat64) return launch_sums<double>(pointers, p, stream);
    if (p.type == kInt32) return launch_sums<unsigned>(pointers, p, stream);  // which wrap
    if (p.type == kInt64) return launch_sums<unsigned long long>(pointers, p, stream);
    return cudaErrorInvalidValue;
}
AICORE_KERNEL(scatter_sums, SumParams, 4, scatter_sums);

}  // namespace
