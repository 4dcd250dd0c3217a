// Batch normalisation in training, and its gradient: sums over all images and pixels of a channel, then a pass over all.
//
// 1. Moments (or sums of the gradient): pixels are cut into splits, and each block leaves what it found in the
//    workspace, [split][channel]. A thread subtracts the first number that it meets before it squares, so that squares
//    do not cancel however large the mean is: the error grows with the numbers of one thread, no more.
// 2. Where many blocks would have to read many splits: one block for each channel, or few of them, joins them.
// 3. Normalise (or the gradient): each block joins the splits of its channels, always in the same order, and walks.
//
// Last: channels are last, a lane has WIDTH channels side by side, rows of threads share the pixels.
// First: channels are second, a block has one channel, and each thread WIDTH pixels side by side.
#include "../reduce/rows.cuh"

namespace {

using namespace aicore;

constexpr int kThreads = 256;

struct BatchNorm {
    std::int64_t pixels;  // of all images
    std::int64_t channels;
    std::int64_t inner;   // pixels side by side; 1 where channels are last
    std::int64_t lanes;   // of a block along the channels, a power of two; 1 where channels are second
    std::int64_t width;   // 4 or 1
    std::int64_t splits, blocks;  // parts of the pixels, for the first pass and for the last
    float epsilon, unused_epsilon;
    float momentum, unused_momentum;
};

// Where part `part` of `parts` begins: whole groups of the pixels that a thread takes at once.
template <class L>
__device__ __forceinline__ std::int64_t begin_of(const BatchNorm &p, std::int64_t part, std::int64_t parts) {
    return p.pixels / L::kPixels * part / parts * L::kPixels;
}

template <int WIDTH> struct alignas(4 * WIDTH) Numbers {
    float of[WIDTH];
};
template <int WIDTH> __device__ __forceinline__ Numbers<WIDTH> read(const float *from) {
    return *reinterpret_cast<const Numbers<WIDTH> *>(from);
}

// Sums over the rows of threads of a block, WIDTH numbers for each lane; all rows get them.
template <int WIDTH_> struct Last {
    static constexpr int WIDTH = WIDTH_, kShared = kThreads * WIDTH;
    static constexpr int kPixels = 1;  // that a thread takes at once
    static constexpr bool kOneChannel = false;
    int channel, lanes, part, parts;
    bool exists;

    __device__ __forceinline__ explicit Last(const BatchNorm &p)
        : channel(static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * WIDTH),
          lanes(blockDim.x),
          part(threadIdx.y),
          parts(blockDim.y),
          exists(channel < p.channels) {}

    __device__ __forceinline__ void sum(float (&of)[WIDTH], float *shared) const {
        float *own = shared + (part * lanes + threadIdx.x) * WIDTH;
        __syncthreads();
#pragma unroll
        for (int e = 0; e < WIDTH; e++) own[e] = of[e];
        for (int half = parts / 2; half > 0; half /= 2) {
            __syncthreads();
            if (part >= half) continue;
#pragma unroll
            for (int e = 0; e < WIDTH; e++) own[e] += own[half * lanes * WIDTH + e];
        }
        __syncthreads();
#pragma unroll
        for (int e = 0; e < WIDTH; e++) of[e] = shared[threadIdx.x * WIDTH + e];
    }

    // Pixels that this thread takes: the first one, how far apart, and the first of its WIDTH elements of one.
    __device__ __forceinline__ std::int64_t pixel_from(std::int64_t begin, std::int64_t end) const {
        return exists ? begin + part : end;
    }
    __device__ __forceinline__ int step() const { return parts; }
    __device__ __forceinline__ std::int64_t element(const BatchNorm &p, std::int64_t pixel) const {
        return pixel * p.channels + channel;
    }

    __device__ __forceinline__ Numbers<WIDTH> of_channels(const float *numbers) const {
        if (exists) return read<WIDTH>(numbers + channel);
        return {};
    }
    __device__ __forceinline__ bool writes() const { return exists && part == 0; }
    __device__ __forceinline__ void write(float *to, const float (&of)[WIDTH]) const {
#pragma unroll
        for (int e = 0; e < WIDTH; e++) to[channel + e] = of[e];
    }
};

template <int WIDTH_> struct First {
    static constexpr int WIDTH = WIDTH_, kShared = WARP + 1;
    static constexpr int kPixels = WIDTH;
    static constexpr bool kOneChannel = true;  // all places are of one
    int channel, part, parts;

    __device__ __forceinline__ explicit First(const BatchNorm &)
        : channel(blockIdx.x), part(threadIdx.x), parts(kThreads) {}

    __device__ __forceinline__ void sum(float (&of)[WIDTH], float *shared) const {
        float all = of[0];
#pragma unroll
        for (int e = 1; e < WIDTH; e++) all += of[e];
        all = reduce_block<Sum>(all, shared);
#pragma unroll
        for (int e = 0; e < WIDTH; e++) of[e] = all;
    }

    __device__ __forceinline__ std::int64_t pixel_from(std::int64_t begin, std::int64_t) const {
        return begin + part * WIDTH;
    }
    __device__ __forceinline__ int step() const { return kThreads * WIDTH; }
    __device__ __forceinline__ std::int64_t element(const BatchNorm &p, std::int64_t pixel) const {
        const unsigned inner = static_cast<unsigned>(p.inner), image = static_cast<unsigned>(pixel) / inner;
        return (image * p.channels + channel) * p.inner + (static_cast<unsigned>(pixel) - image * inner);
    }

    __device__ __forceinline__ Numbers<WIDTH> of_channels(const float *numbers) const {
        Numbers<WIDTH> same;
#pragma unroll
        for (int e = 0; e < WIDTH; e++) same.of[e] = numbers[channel];
        return same;
    }
    __device__ __forceinline__ bool writes() const { return threadIdx.x == 0; }
    __device__ __forceinline__ void write(float *to, const float (&of)[WIDTH]) const { to[channel] = of[0]; }
};

// Calls use(element, load(element)) for the first of WIDTH elements of each pixel that this thread takes. Several are
// loaded before the first is used: what is used may be written, and then no compiler would.
template <class L, class Load, class Use>
__device__ __forceinline__ void each(const L &on, const BatchNorm &p, std::int64_t part, std::int64_t parts, Load load,
                                     Use use) {
    constexpr int kAhead = 4;
    const std::int64_t end = begin_of<L>(p, part + 1, parts), step = on.step();
    for (std::int64_t pixel = on.pixel_from(begin_of<L>(p, part, parts), end); pixel < end; pixel += kAhead * step) {
        decltype(load(pixel)) loaded[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; i++)
            if (pixel + i * step < end) loaded[i] = load(on.element(p, pixel + i * step));
#pragma unroll
        for (int i = 0; i < kAhead; i++)
            if (pixel + i * step < end) use(on.element(p, pixel + i * step), loaded[i]);
    }
}

// Of x and dy.
template <int WIDTH> struct Pair {
    Numbers<WIDTH> x, dy;
};

// Numbers that only one of WIDTH places stands for, where these are of one channel: sums over places count them once.
template <class L> __device__ __forceinline__ constexpr bool counts(int place) {
    return !L::kOneChannel || place == 0;
}

// What a thread, a block or all blocks know of some pixels: how many, their mean, and the sum of squares off it.
// From several of them: the mean of means, then squares off that.
template <class L, class Each>
__device__ __forceinline__ void join_moments(const L &on, float count, float *shared, float (&mean)[L::WIDTH],
                                             float (&squares)[L::WIDTH], Each each) {
    float total[L::WIDTH] = {};
    each([&](float n, const float *means, const float *, int e) { total[e] += n * means[e]; });
    on.sum(total, shared);
    float off[L::WIDTH] = {};
#pragma unroll
    for (int e = 0; e < L::WIDTH; e++) mean[e] = total[e] / count;
    each([&](float n, const float *means, const float *found, int e) {
        const float away = means[e] - mean[e];
        off[e] += found[e] + n * away * away;
    });
    on.sum(off, shared);
#pragma unroll
    for (int e = 0; e < L::WIDTH; e++) squares[e] = off[e];
}

constexpr int kSplitsAhead = 4;

// Two numbers of each channel that a split left.
template <int WIDTH> struct Split {
    Numbers<WIDTH> first, second;
    bool exists;
    float count;  // of its pixels, where that was asked for
};

// The next splits of this thread from `from` on, all of them asked for before any is there.
template <class L>
__device__ __forceinline__ void read_splits(const L &on, const BatchNorm &p, const float *partial, std::int64_t from,
                                            Split<L::WIDTH> (&to)[kSplitsAhead]) {
#pragma unroll
    for (int i = 0; i < kSplitsAhead; i++) {
        const std::int64_t split = from + i * on.parts;
        to[i].exists = split < p.splits;
        if (!to[i].exists) continue;
        to[i].first = on.of_channels(partial + 2 * split * p.channels);
        to[i].second = on.of_channels(partial + (2 * split + 1) * p.channels);
    }
}

template <class L>
__device__ __forceinline__ void read_moments(const L &on, const BatchNorm &p, const float *partial, std::int64_t from,
                                             Split<L::WIDTH> (&to)[kSplitsAhead]) {
    read_splits(on, p, partial, from, to);
#pragma unroll
    for (int i = 0; i < kSplitsAhead; i++) {
        const std::int64_t split = from + i * on.parts;
        if (!to[i].exists) continue;
        to[i].count = static_cast<float>(begin_of<L>(p, split + 1, p.splits) - begin_of<L>(p, split, p.splits));
    }
}

template <class L, class Take> __device__ __forceinline__ void take_moments(const Split<L::WIDTH> &of, Take take) {
    if (!of.exists) return;
#pragma unroll
    for (int e = 0; e < L::WIDTH; e++)
        if (counts<L>(e)) take(of.count, of.first.of, of.second.of, e);
}

// Moments of all pixels from those of the splits, which are read once where a thread can keep its own.
template <class L>
__device__ __forceinline__ void moments_of_splits(const L &on, const BatchNorm &p, const float *partial, float *shared,
                                                  float (&mean)[L::WIDTH], float (&squares)[L::WIDTH]) {
    Split<L::WIDTH> splits[kSplitsAhead];
    const bool keeps = p.splits <= static_cast<std::int64_t>(kSplitsAhead) * on.parts;
    if (keeps) read_moments(on, p, partial, on.part, splits);
    join_moments(on, static_cast<float>(p.pixels), shared, mean, squares, [&](auto take) {
        for (std::int64_t from = on.part; from < p.splits; from += kSplitsAhead * on.parts) {
            if (!keeps) read_moments(on, p, partial, from, splits);
#pragma unroll
            for (int i = 0; i < kSplitsAhead; i++) take_moments<L>(splits[i], take);
        }
    });
}

template <class L>
__global__ void __launch_bounds__(kThreads) moments(const float *x, float *partial, const BatchNorm p) {
    constexpr int WIDTH = L::WIDTH;
    __shared__ float shared[L::kShared];
    let_next_begin();
    wait_for_previous();
    const L on(p);
    float first[WIDTH] = {}, sum[WIDTH] = {}, squares[WIDTH] = {}, count = 0.0f;
    const auto load = [&](std::int64_t at) { return read<WIDTH>(x + at); };
    each(on, p, blockIdx.y, p.splits, load, [&](std::int64_t, const Numbers<WIDTH> &numbers) {
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            if (count == 0.0f) first[e] = numbers.of[e];
            const float off = numbers.of[e] - first[e];
            sum[e] += off;
            squares[e] = fmaf(off, off, squares[e]);
        }
        count += 1.0f;
    });
    float mean[WIDTH], rest[WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        const float average = count == 0.0f ? 0.0f : sum[e] / count;
        mean[e] = first[e] + average;
        rest[e] = squares[e] - sum[e] * average;
    }
    float means[WIDTH], found[WIDTH];
    const std::int64_t begin = begin_of<L>(p, blockIdx.y, p.splits), end = begin_of<L>(p, blockIdx.y + 1, p.splits);
    join_moments(on, static_cast<float>(end - begin), shared, means, found, [&](auto take) {
#pragma unroll
        for (int e = 0; e < WIDTH; e++) take(count, mean, rest, e);
    });
    if (!on.writes()) return;
    on.write(partial + 2 * blockIdx.y * p.channels, means);
    on.write(partial + (2 * blockIdx.y + 1) * p.channels, found);
}

template <class L>
__global__ void __launch_bounds__(kThreads) joined_moments(const float *partial, float *all, const BatchNorm p) {
    __shared__ float shared[L::kShared];
    let_next_begin();
    wait_for_previous();
    const L on(p);
    float mean[L::WIDTH], squares[L::WIDTH];
    moments_of_splits(on, p, partial, shared, mean, squares);
    if (!on.writes()) return;
    on.write(all, mean);
    on.write(all + p.channels, squares);
}

// batch_mean and inverse, the statistics of x, are null where nobody asks for them.
struct Normalized {
    const float *x, *scale, *bias, *mean, *variance, *partial;
    float *y, *new_mean, *new_variance, *batch_mean, *inverse;
    bool cuts;  // a Relu behind it
};

// Three blocks of a multiprocessor at a time: what is kept of splits would leave room for two, too few for memory.
template <class L> __global__ void __launch_bounds__(kThreads, 3) normalize(const Normalized t, const BatchNorm p) {
    constexpr int WIDTH = L::WIDTH;
    __shared__ float shared[L::kShared];
    let_next_begin();
    wait_for_previous();
    const L on(p);
    float mean[WIDTH], squares[WIDTH], inverse[WIDTH], factor[WIDTH], variance[WIDTH];
    moments_of_splits(on, p, t.partial, shared, mean, squares);
    const auto scale = on.of_channels(t.scale), bias = on.of_channels(t.bias);
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        variance[e] = squares[e] / static_cast<float>(p.pixels);
        inverse[e] = 1.0f / sqrtf(variance[e] + p.epsilon);
        factor[e] = inverse[e] * scale.of[e];
    }
    if (blockIdx.y == 0 && on.writes()) {
        const auto old_mean = on.of_channels(t.mean), old_variance = on.of_channels(t.variance);
        float moved_mean[WIDTH], moved_variance[WIDTH];
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            moved_mean[e] = old_mean.of[e] * p.momentum + mean[e] * (1.0f - p.momentum);
            moved_variance[e] = old_variance.of[e] * p.momentum + variance[e] * (1.0f - p.momentum);
        }
        on.write(t.new_mean, moved_mean);
        on.write(t.new_variance, moved_variance);
        if (t.batch_mean != nullptr) on.write(t.batch_mean, mean);
        if (t.inverse != nullptr) on.write(t.inverse, inverse);
    }
    const auto load = [&](std::int64_t at) { return read<WIDTH>(t.x + at); };
    each(on, p, blockIdx.y, p.blocks, load, [&](std::int64_t at, const Numbers<WIDTH> &numbers) {
        Numbers<WIDTH> result;
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            const float y = fmaf(numbers.of[e] - mean[e], factor[e], bias.of[e]);
            result.of[e] = t.cuts && y < 0.0f ? 0.0f : y;  // NaN stays
        }
        *reinterpret_cast<Numbers<WIDTH> *>(t.y + at) = result;
    });
}

struct Gradient {
    const float *x, *scale, *mean, *inverse, *dy;
    float *partial;
    float *dx, *dscale, *dbias;
};

// partial[split]: sums of dy, then of dy * (x - mean), of each channel.
template <class L> __global__ void __launch_bounds__(kThreads) gradient_sums(const Gradient t, const BatchNorm p) {
    constexpr int WIDTH = L::WIDTH;
    __shared__ float shared[L::kShared];
    let_next_begin();
    wait_for_previous();
    const L on(p);
    const auto mean = on.of_channels(t.mean);
    float plain[WIDTH] = {}, weighted[WIDTH] = {};
    const auto load = [&](std::int64_t at) { return Pair<WIDTH>{read<WIDTH>(t.x + at), read<WIDTH>(t.dy + at)}; };
    each(on, p, blockIdx.y, p.splits, load, [&](std::int64_t, const Pair<WIDTH> &of) {
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            plain[e] += of.dy.of[e];
            weighted[e] = fmaf(of.dy.of[e], of.x.of[e] - mean.of[e], weighted[e]);
        }
    });
    on.sum(plain, shared);
    on.sum(weighted, shared);
    if (!on.writes()) return;
    on.write(t.partial + 2 * blockIdx.y * p.channels, plain);
    on.write(t.partial + (2 * blockIdx.y + 1) * p.channels, weighted);
}

template <class L>
__device__ __forceinline__ void sums_of_splits(const L &on, const BatchNorm &p, const float *partial, float *shared,
                                               float (&plain)[L::WIDTH], float (&weighted)[L::WIDTH]) {
#pragma unroll
    for (int e = 0; e < L::WIDTH; e++) plain[e] = weighted[e] = 0.0f;
    for (std::int64_t from = on.part; from < p.splits; from += kSplitsAhead * on.parts) {
        Split<L::WIDTH> splits[kSplitsAhead];
        read_splits(on, p, partial, from, splits);
#pragma unroll
        for (int i = 0; i < kSplitsAhead; i++) {
            if (!splits[i].exists) continue;
#pragma unroll
            for (int e = 0; e < L::WIDTH; e++) {
                if (!counts<L>(e)) continue;
                plain[e] += splits[i].first.of[e];
                weighted[e] += splits[i].second.of[e];
            }
        }
    }
    on.sum(plain, shared);
    on.sum(weighted, shared);
}

template <class L>
__global__ void __launch_bounds__(kThreads) joined_sums(const float *partial, float *all, const BatchNorm p) {
    __shared__ float shared[L::kShared];
    let_next_begin();
    wait_for_previous();
    const L on(p);
    float plain[L::WIDTH], weighted[L::WIDTH];
    sums_of_splits(on, p, partial, shared, plain, weighted);
    if (!on.writes()) return;
    on.write(all, plain);
    on.write(all + p.channels, weighted);
}

// dx = scale * inverse * (dy - mean(dy) - h * mean(dy * h)), where h = (x - mean) * inverse.
template <class L> __global__ void __launch_bounds__(kThreads) gradient(const Gradient t, const BatchNorm p) {
    constexpr int WIDTH = L::WIDTH;
    __shared__ float shared[L::kShared];
    let_next_begin();
    wait_for_previous();
    const L on(p);
    float plain[WIDTH], weighted[WIDTH], factor[WIDTH], shift[WIDTH], slope[WIDTH];
    sums_of_splits(on, p, t.partial, shared, plain, weighted);
    const auto scale = on.of_channels(t.scale), mean = on.of_channels(t.mean), inverse = on.of_channels(t.inverse);
    const float count = static_cast<float>(p.pixels);
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        weighted[e] *= inverse.of[e];
        factor[e] = scale.of[e] * inverse.of[e];
        shift[e] = plain[e] / count;
        slope[e] = weighted[e] / count * inverse.of[e];
    }
    if (blockIdx.y == 0 && on.writes()) {
        on.write(t.dscale, weighted);
        on.write(t.dbias, plain);
    }
    const auto load = [&](std::int64_t at) { return Pair<WIDTH>{read<WIDTH>(t.x + at), read<WIDTH>(t.dy + at)}; };
    each(on, p, blockIdx.y, p.blocks, load, [&](std::int64_t at, const Pair<WIDTH> &of) {
        Numbers<WIDTH> result;
#pragma unroll
        for (int e = 0; e < WIDTH; e++)
            result.of[e] = factor[e] * (of.dy.of[e] - shift[e] - (of.x.of[e] - mean.of[e]) * slope[e]);
        *reinterpret_cast<Numbers<WIDTH> *>(t.dx + at) = result;
    });
}

template <class L> struct Of {
    using Layout = L;
};

// Calls launch(Of<layout>{}, grid for so many parts of the pixels, block).
template <class Run> int with_layout(const BatchNorm &p, std::int64_t parts, Run run) {
    const bool last = p.inner == 1;
    const unsigned lanes = static_cast<unsigned>(p.lanes), across = last ? blocks_for(p.channels, p.lanes * p.width)
                                                                         : static_cast<unsigned>(p.channels);
    const dim3 grid(across, static_cast<unsigned>(parts)), block(last ? lanes : kThreads, last ? kThreads / lanes : 1);
    if (last && p.width == 4) return run(Of<Last<4>>{}, grid, block);
    if (last) return run(Of<Last<1>>{}, grid, block);
    if (p.width == 4) return run(Of<First<4>>{}, grid, block);
    return run(Of<First<1>>{}, grid, block);
}

// x, partial sums
int batch_moments(void *const *pointers, const BatchNorm &p, cudaStream_t stream) {
    return with_layout(p, p.splits, [&](auto of, dim3 grid, dim3 block) -> int {
        return launch_early(moments<typename decltype(of)::Layout>, grid, block, 0, stream,
                            static_cast<const float *>(pointers[0]), static_cast<float *>(pointers[1]), p);
    });
}

// partial sums; those of all splits go behind them.
int join(void *const *pointers, const BatchNorm &p, bool of_gradient, cudaStream_t stream) {
    return with_layout(p, 1, [&](auto of, dim3 grid, dim3 block) -> int {
        using L = typename decltype(of)::Layout;
        auto *partial = static_cast<float *>(pointers[0]);
        return launch_early(of_gradient ? joined_sums<L> : joined_moments<L>, grid, block, 0, stream,
                            static_cast<const float *>(partial), partial + 2 * p.splits * p.channels, p);
    });
}
int batch_join_moments(void *const *pointers, const BatchNorm &p, cudaStream_t stream) {
    return join(pointers, p, false, stream);
}
int batch_join_sums(void *const *pointers, const BatchNorm &p, cudaStream_t stream) {
    return join(pointers, p, true, stream);
}

// Whether the splits were joined already: then there is one, behind them.
struct AfterSplits {
    BatchNorm batch;
    std::int64_t joined_splits;  // 0: they were not
};

BatchNorm remaining(const AfterSplits &p, float *&partial) {
    BatchNorm batch = p.batch;
    if (p.joined_splits == 0) return batch;
    partial += 2 * p.joined_splits * batch.channels;
    batch.splits = 1;
    return batch;
}

struct Trained {
    AfterSplits after;
    std::int64_t cuts;  // whether a Relu comes behind it
};

// x, scale, bias, mean, variance, y, new mean, new variance, batch mean, inverse deviation, partial sums
int batch_train(void *const *pointers, const Trained &params, cudaStream_t stream) {
    const auto at = [&](int i) { return static_cast<float *>(pointers[i]); };
    float *partial = at(10);
    const BatchNorm p = remaining(params.after, partial);
    const bool cuts = params.cuts != 0;
    const Normalized t = {at(0), at(1), at(2), at(3), at(4), partial, at(5), at(6), at(7), at(8), at(9), cuts};
    return with_layout(p, p.blocks, [&](auto of, dim3 grid, dim3 block) -> int {
        return launch_early(normalize<typename decltype(of)::Layout>, grid, block, 0, stream, t, p);
    });
}

// x, scale, mean, inverse deviation, dy, dx, dscale, dbias, partial sums
Gradient gradient_of(void *const *pointers) {
    const auto at = [&](int i) { return static_cast<float *>(pointers[i]); };
    return {at(0), at(1), at(2), at(3), at(4), at(8), at(5), at(6), at(7)};
}

int batch_gradient_sums(void *const *pointers, const BatchNorm &p, cudaStream_t stream) {
    return with_layout(p, p.splits, [&](auto of, dim3 grid, dim3 block) -> int {
        return launch_early(gradient_sums<typename decltype(of)::Layout>, grid, block, 0, stream, gradient_of(pointers), p);
    });
}

int batch_gradient(void *const *pointers, const AfterSplits &params, cudaStream_t stream) {
    Gradient t = gradient_of(pointers);
    const BatchNorm p = remaining(params, t.partial);
    return with_layout(p, p.blocks, [&](auto of, dim3 grid, dim3 block) -> int {
        return launch_early(gradient<typename decltype(of)::Layout>, grid, block, 0, stream, t, p);
    });
}

AICORE_KERNEL(batch_moments, BatchNorm, 2, batch_moments);
AICORE_KERNEL(batch_join_moments, BatchNorm, 1, batch_join_moments);
AICORE_KERNEL(batch_join_sums, BatchNorm, 1, batch_join_sums);
AICORE_KERNEL(batch_train, Trained, 11, batch_train);
AICORE_KERNEL(batch_gradient_sums, BatchNorm, 9, batch_gradient_sums);
AICORE_KERNEL(batch_gradient, AfterSplits, 9, batch_gradient);

}  // namespace
