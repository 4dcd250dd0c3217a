// ScatterElements and ScatterND without a reduction, on a copy of the operand.
//
// Two updates may have one place; the later one wins, as if they came one after the other. So every update first claims
// its place under its number, and the largest number stays; then each writes where the claim is its own.
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

}  // namespace
