// The loss of classes with the softmax inside, and its gradient, over the middle of [outer][classes][inner]; in float32
// for narrower types. See aicore/ops/losses.py.
//
// A team takes a row: some lanes of a warp, a block, or, where the classes do not lie side by side, the threads of one
// column of a block, whose neighbours take neighbouring columns. It walks over the row once for the largest logit m and
// the sum of exponentials of x - m, which is corrected whenever a larger one comes (Milakov and Gimelshein, 2018), and
// for the sum of the target's probabilities. A second walk, which finds the row in the cache, gives the gradient, or
// what a loss needs beside the target's logit. Sums have a fixed order.
#include "../reduce/rows.cuh"

namespace {

using namespace aicore;

struct CrossEntropyParams {
    std::int64_t outer, classes, inner;
    std::int64_t wide_indices;  // int64, otherwise int32
    std::int64_t ignores, ignored;
    double smoothing;
};

constexpr int kThreads = 256;

struct Lanes {
    static constexpr int kMost = kThreads;  // threads of a block
    int lane, lanes;

    __device__ Lanes(void *, int lanes_) : lane(threadIdx.x % lanes_), lanes(lanes_) {}
    __device__ static std::int64_t rows(int lanes) { return kThreads / lanes; }
    __device__ static std::int64_t mine(int lanes) { return threadIdx.x / lanes; }
    template <class Op, class C> __device__ C reduce(C x) const { return reduce_lanes<Op>(x, lanes); }
};

struct Block {
    static constexpr int kMost = 1024;
    int lane, lanes;
    void *shared;

    __device__ Block(void *shared_, int) : lane(threadIdx.x), lanes(blockDim.x), shared(shared_) {}
    __device__ static std::int64_t rows(int) { return 1; }
    __device__ static std::int64_t mine(int) { return 0; }
    template <class Op, class C> __device__ C reduce(C x) const { return reduce_block<Op>(x, static_cast<C *>(shared)); }
};

// blockDim.x neighbouring rows, each shared by blockDim.y threads.
struct Column {
    static constexpr int kMost = kThreads;
    int lane, lanes;
    void *shared;

    __device__ Column(void *shared_, int) : lane(threadIdx.y), lanes(blockDim.y), shared(shared_) {}
    __device__ static std::int64_t rows(int) { return blockDim.x; }
    __device__ static std::int64_t mine(int) { return threadIdx.x; }
    template <class Op, class C> __device__ C reduce(C x) const {
        C *all = static_cast<C *>(shared);
        const int self = threadIdx.y * blockDim.x + threadIdx.x;
        for (int step = blockDim.y / 2; step > 0; step /= 2) {
            all[self] = x;
            __syncthreads();
            if (lane < step) x = Op::join(x, all[self + step * blockDim.x]);
            __syncthreads();
        }
        if (lane == 0) all[threadIdx.x] = x;
        __syncthreads();
        x = all[threadIdx.x];
        __syncthreads();  // before anybody uses `shared` again
        return x;
    }
};

// The largest of a row, and the sum of exponentials of the distances to it.
template <class C> struct Softmax {
    C largest, sum;
};

constexpr int kAhead = 4;  // elements that a thread reads before it uses the first

// While all are -infinity there is no distance; the sum stays 0, and what is computed with `largest` is NaN.
template <class T, class Team>
__device__ __forceinline__ Softmax<Wide<T>> softmax_of(const T *x, std::int64_t length, std::int64_t step,
                                                       const Team &team) {
    using C = Wide<T>;
    C largest = -INFINITY, sum = 0;
    for (std::int64_t i = team.lane; i < length; i += kAhead * team.lanes) {
        C some[kAhead];
        C both = largest;
#pragma unroll
        for (int k = 0; k < kAhead; k++) {
            const std::int64_t at = i + k * team.lanes;
            some[k] = at < length ? Number<T>::widen(x[at * step]) : C(-INFINITY);
        }
#pragma unroll
        for (int k = 0; k < kAhead; k++) both = Largest::join(both, some[k]);
        const C base = both == C(-INFINITY) ? C(0) : both;
        sum *= exponential(largest - base);
#pragma unroll
        for (int k = 0; k < kAhead; k++) sum += exponential(some[k] - base);
        largest = both;
    }
    const C all = team.template reduce<Largest>(largest), base = all == C(-INFINITY) ? C(0) : all;
    return {all, team.template reduce<Sum>(sum * exponential(largest - base))};
}

// What a row is compared with.
template <bool DENSE, class T> struct Target {
    const void *all;
    std::int64_t index = -1;  // of the class, unless targets are probabilities
    bool counts = true;

    // fault: where one thread of the row tells an index that is no class; such a row does not count.
    __device__ Target(const void *all_, const CrossEntropyParams &p, std::int64_t row, bool exists, long long *fault)
        : all(all_) {
        if (DENSE || !exists) return;
        index = p.wide_indices ? static_cast<const std::int64_t *>(all)[row] : static_cast<const std::int32_t *>(all)[row];
        const bool ignored = p.ignores && index == p.ignored, outside = index < 0 || index >= p.classes;
        counts = !ignored && !outside;
        if (fault != nullptr && outside && !ignored) *fault = index;
    }

    // q of class `i`, which lies at `place`, before smoothing.
    __device__ __forceinline__ Wide<T> of(std::int64_t i, std::int64_t place) const {
        if constexpr (DENSE) return Number<T>::widen(static_cast<const T *>(all)[place]);
        return i == index ? 1 : 0;
    }
};

// Where a team's row lies.
struct Row {
    std::int64_t number, start, length;
    bool exists;

    __device__ Row(const CrossEntropyParams &p, std::int64_t number_)
        : number(number_), start(number_ / p.inner * p.classes * p.inner + number_ % p.inner),
          length(number_ < p.outer * p.inner ? p.classes : 0), exists(length > 0) {}  // others take part in barriers
};

template <class Team, bool DENSE, class T>
__global__ void __launch_bounds__(Team::kMost, 1)
    losses(const T *logits, const void *targets, T *loss, long long *fault, const CrossEntropyParams p, int given) {
    using C = Wide<T>;
    __shared__ double shared[kThreads];
    let_next_begin();
    wait_for_previous();
    const Team team(shared, given);
    const std::int64_t each = Team::rows(given);
    for (std::int64_t first = blockIdx.x * each; first < p.outer * p.inner; first += gridDim.x * each) {
        const Row row(p, first + Team::mine(given));
        const T *x = logits + row.start;
        const Softmax<C> softmax = softmax_of(x, row.length, p.inner, team);
        const Target<DENSE, T> target(targets, p, row.number, row.exists, team.lane == 0 ? fault : nullptr);
        C of_target = 0, weight = 1, of_all = 0;
        if (DENSE || p.smoothing != 0) {
            C sums[3] = {};
            for (std::int64_t i = team.lane; i < row.length; i += team.lanes) {
                const C off = Number<T>::widen(x[i * p.inner]) - softmax.largest;
                sums[0] += off;
                if constexpr (!DENSE) continue;
                const C q = target.of(i, row.start + i * p.inner);
                sums[1] += q;
                sums[2] += q * off;
            }
            of_all = team.template reduce<Sum>(sums[0]);
            if constexpr (DENSE) {
                weight = team.template reduce<Sum>(sums[1]);
                of_target = team.template reduce<Sum>(sums[2]);
            }
        }
        if (!row.exists || team.lane != 0) continue;
        if (!DENSE && target.counts) of_target = Number<T>::widen(x[target.index * p.inner]) - softmax.largest;
        if (p.smoothing != 0) {
            const C smoothing = static_cast<C>(p.smoothing), rest = static_cast<C>(1 - p.smoothing);
            of_target = rest * of_target + smoothing * (of_all / static_cast<C>(p.classes));
            weight = rest * weight + smoothing;
        }
        const C found = logarithm(softmax.sum) * weight - of_target;
        loss[row.number] = Number<T>::narrow(target.counts ? found : C(0));
    }
}

template <class Team, bool DENSE, class T>
__global__ void __launch_bounds__(Team::kMost, 1) gradients(const T *logits, const void *targets, const T *g, T *result,
                                                  long long *fault, const CrossEntropyParams p, int given) {
    using C = Wide<T>;
    __shared__ double shared[kThreads];
    let_next_begin();
    wait_for_previous();
    const Team team(shared, given);
    const std::int64_t each = Team::rows(given);
    const C smoothing = static_cast<C>(p.smoothing), rest = static_cast<C>(1 - p.smoothing);
    const C share = static_cast<C>(p.smoothing / static_cast<double>(p.classes));
    for (std::int64_t first = blockIdx.x * each; first < p.outer * p.inner; first += gridDim.x * each) {
        const Row row(p, first + Team::mine(given));
        const T *x = logits + row.start;
        const Softmax<C> softmax = softmax_of(x, row.length, p.inner, team);
        const Target<DENSE, T> target(targets, p, row.number, row.exists, team.lane == 0 ? fault : nullptr);
        C weight = 1;
        if constexpr (DENSE) {
            C sum = 0;
            for (std::int64_t i = team.lane; i < row.length; i += team.lanes) sum += target.of(i, row.start + i * p.inner);
            weight = rest * team.template reduce<Sum>(sum) + smoothing;
        }
        const C factor = row.exists ? Number<T>::widen(g[row.number]) : C(0);
        for (std::int64_t i = team.lane; i < row.length; i += team.lanes) {
            const std::int64_t place = row.start + i * p.inner;
            const C power = exponential(Number<T>::widen(logits[place]) - softmax.largest);
            const C q = rest * target.of(i, place) + share;
            const C found = factor * (power / softmax.sum * weight - q);
            result[place] = Number<T>::narrow(target.counts ? found : C(0));
        }
    }
}

// How rows are shared among threads.
struct Plan {
    enum { kLanes, kBlock, kColumns } team;
    dim3 threads;
    unsigned blocks;
    int lanes;
};

Plan plan_of(const CrossEntropyParams &p) {
    const std::int64_t rows = p.outer * p.inner;
    if (p.inner == 1 && p.classes > 1024) {
        const unsigned threads = p.classes > 8192 ? 1024 : kThreads;
        return {Plan::kBlock, threads, row_blocks(rows), static_cast<int>(threads)};
    }
    if (p.inner == 1) {
        int lanes = 1;
        while (lanes < WARP && kAhead * lanes < p.classes) lanes *= 2;
        return {Plan::kLanes, kThreads, row_blocks(rows, kThreads / lanes), lanes};
    }
    const unsigned columns = column_lanes(p.inner);
    unsigned parts = kThreads / columns;
    while (parts > 1 && kAhead * (parts / 2) >= p.classes) parts /= 2;
    return {Plan::kColumns, dim3(columns, parts), row_blocks(rows, columns), static_cast<int>(parts)};
}

// KERNEL<Team>, for the team that suits.
#define AICORE_LAUNCH(KERNEL, ...)                                                                                   \
    switch (plan.team) {                                                                                             \
        case Plan::kLanes: return launch_early(KERNEL<Lanes, DENSE, T>, plan.blocks, plan.threads, 0, stream, __VA_ARGS__); \
        case Plan::kBlock: return launch_early(KERNEL<Block, DENSE, T>, plan.blocks, plan.threads, 0, stream, __VA_ARGS__); \
        default: return launch_early(KERNEL<Column, DENSE, T>, plan.blocks, plan.threads, 0, stream, __VA_ARGS__);   \
    }

// Pointers: logits, target, loss, fault.
template <bool DENSE, class T> int loss_of(void *const *pointers, const CrossEntropyParams &p, cudaStream_t stream) {
    const Plan plan = plan_of(p);
    const T *logits = static_cast<const T *>(pointers[0]);
    const void *target = pointers[1];
    T *loss = static_cast<T *>(pointers[2]);
    long long *fault = DENSE ? nullptr : static_cast<long long *>(pointers[3]);
    AICORE_LAUNCH(losses, logits, target, loss, fault, p, plan.lanes)
}

// Pointers: logits, target, gradient of the loss, gradient of the logits, fault.
template <bool DENSE, class T> int gradient_of(void *const *pointers, const CrossEntropyParams &p, cudaStream_t stream) {
    const Plan plan = plan_of(p);
    const T *logits = static_cast<const T *>(pointers[0]), *g = static_cast<const T *>(pointers[2]);
    const void *target = pointers[1];
    T *result = static_cast<T *>(pointers[3]);
    long long *fault = DENSE ? nullptr : static_cast<long long *>(pointers[4]);
    AICORE_LAUNCH(gradients, logits, target, g, result, fault, p, plan.lanes)
}

#define AICORE_CROSS_ENTROPY(NAME, TYPE)                                                        \
    constexpr auto indices_##NAME = loss_of<false, TYPE>;                                       \
    constexpr auto indices_grad_##NAME = gradient_of<false, TYPE>;                              \
    constexpr auto probabilities_##NAME = loss_of<true, TYPE>;                                  \
    constexpr auto probabilities_grad_##NAME = gradient_of<true, TYPE>;                         \
    AICORE_KERNEL(cross_entropy_indices_##NAME, CrossEntropyParams, 4, indices_##NAME);           \
    AICORE_KERNEL(cross_entropy_indices_grad_##NAME, CrossEntropyParams, 5, indices_grad_##NAME); \
    AICORE_KERNEL(cross_entropy_##NAME, CrossEntropyParams, 3, probabilities_##NAME);             \
    AICORE_KERNEL(cross_entropy_grad_##NAME, CrossEntropyParams, 4, probabilities_grad_##NAME)

AICORE_CROSS_ENTROPY(float32, float);
AICORE_CROSS_ENTROPY(float16, __half);
AICORE_CROSS_ENTROPY(bfloat16, __nv_bfloat16);
AICORE_CROSS_ENTROPY(float64, double);

}  // namespace
