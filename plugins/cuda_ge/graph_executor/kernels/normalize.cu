// Normalisations whose statistics run over contiguous elements: layer, RMS, instance, group; and of batches, as given.
//
// held: a team keeps its row in registers: the mean, the mean square of what is off it, the result. The row may be the
//       sum of two operands, which is stored, too, if it is wanted. (E[x^2] - E[x]^2 would cancel.)
// long: a row too long for that is walked over three times.
// Statistics and formula are float32, also for narrower types. Element i of a row has the entry
//   (row % period) * stride + i / each % entries
// of scale and bias.
#include "../reduce/rows.cuh"

namespace {

using namespace aicore;

struct NormalizeParams {
    std::int64_t rows, length;
    std::int64_t period, stride, each, entries;
    std::int64_t centred;  // 0: RMS, no mean is subtracted
    float epsilon, unused;
};

// addend, bias, means, inverses (of the deviation) and sum (of x and addend) may be null.
template <class T> struct Tensors {
    const T *x, *addend, *scale, *bias;
    T *y;
    float *means, *inverses;
    T *sum;

    explicit Tensors(void *const *pointers)
        : x(static_cast<const T *>(pointers[0])),
          addend(static_cast<const T *>(pointers[1])),
          scale(static_cast<const T *>(pointers[2])),
          bias(static_cast<const T *>(pointers[3])),
          y(static_cast<T *>(pointers[4])),
          means(static_cast<float *>(pointers[5])),
          inverses(static_cast<float *>(pointers[6])),
          sum(static_cast<T *>(pointers[7])) {}

    __device__ __forceinline__ void leave_statistics(std::int64_t row, float mean, float inverse) const {
        if (means != nullptr) means[row] = mean;
        if (inverses != nullptr) inverses[row] = inverse;
    }
};

// y of a pack, given its entries of scale and bias.
template <int WIDTH>
__device__ __forceinline__ void shape(float *of, float inverse, const float *scale, const float *bias, bool biased) {
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        const float one = of[e] * inverse * scale[e];
        of[e] = biased ? one + bias[e] : one;
    }
}

// Of a pack whose first element is number i of its row, where the row's entries begin at `first`.
template <class T>
__device__ __forceinline__ void shape_pack(float *of, int i, std::int64_t first, float inverse, const Tensors<T> &on,
                                           const NormalizeParams &p) {
    constexpr int kWidth = Pack<T>::kWidth;
    const bool simple = p.each == 1 && p.entries == p.length;
    float scale[kWidth], bias[kWidth] = {};
#pragma unroll
    for (int e = 0; e < kWidth; e++) {
        if (i + e < 0 || i + e >= p.length) continue;
        const unsigned place = static_cast<unsigned>(i + e), each = static_cast<unsigned>(p.each);
        const std::int64_t entry = first + (simple ? place : place / each % static_cast<unsigned>(p.entries));
        scale[e] = widen(on.scale[entry]);
        if (on.bias != nullptr) bias[e] = widen(on.bias[entry]);
    }
    shape<kWidth>(of, inverse, scale, bias, on.bias != nullptr);
}

// The same of a whole pack, in a row whose entries are those of its places.
template <class T>
__device__ __forceinline__ void shape_whole_pack(float *of, int i, float inverse, const Tensors<T> &on) {
    constexpr int kWidth = Pack<T>::kWidth;
    float scale[kWidth], bias[kWidth] = {};
    read_pack<T>(on.scale + i, 0, kWidth, 0.0f, scale);
    if (on.bias != nullptr) read_pack<T>(on.bias + i, 0, kWidth, 0.0f, bias);
    shape<kWidth>(of, inverse, scale, bias, on.bias != nullptr);
}

// SIMPLE: rows are of whole packs, and entries of scale and bias are those of the places in the row.
// FULL: and each thread of the team, a whole warp or the block, has N packs.
template <class T, int N, bool BLOCK, bool SIMPLE, bool FULL>
__global__ void __launch_bounds__(BLOCK ? kLargestTeam : 256, BLOCK ? 1 : 3)
    normalize_held(const Tensors<T> on, const NormalizeParams p, int team) {
    __shared__ float shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    const int lanes = FULL && !BLOCK ? WARP : lanes_of<N, BLOCK>(team);
    const int lane = BLOCK ? threadIdx.x : threadIdx.x % lanes, rows = BLOCK ? 1 : blockDim.x / lanes;
    const int mine = BLOCK ? 0 : threadIdx.x / lanes;
    const float length = static_cast<float>(p.length);
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows; first < p.rows;
         first += static_cast<std::int64_t>(gridDim.x) * rows) {
        const std::int64_t row = first + mine;
        const bool exists = row < p.rows;  // threads without a row take part in shuffles
        if (FULL && !exists) continue;     // but not a warp without one
        const int shift = SIMPLE ? 0 : shift_of<T>(row, p.length);
        Held<T, N, SIMPLE, FULL> held(lane, lanes, exists ? static_cast<int>(p.length) : 0, shift);
        held.read(on.x + row * p.length, 0.0f);
        if (on.addend != nullptr) held.add(on.addend + row * p.length);
        if (on.sum != nullptr) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                const int i = held.first + k * held.step;
                if (!FULL && i >= held.length) continue;
                if constexpr (SIMPLE)
                    write_whole_pack(on.sum + row * p.length + i, held.of + k * held.kWidth);
                else
                    write_pack<T>(on.sum + row * p.length, i, held.length, held.of + k * held.kWidth);
            }
        }
        float mean = 0.0f;
        if (p.centred) mean = reduce_team<BLOCK, Sum>(held.template joined<Sum>(), lanes, shared) / length;
        float squares = 0.0f;
        held.each([&](float &x) {
            x -= mean;
            squares += x * x;
        });
        squares = reduce_team<BLOCK, Sum>(squares, lanes, shared) / length;
        const float inverse = 1.0f / sqrtf(squares + p.epsilon);
        const std::int64_t entry = SIMPLE ? 0 : row % p.period * p.stride;
        if (!exists) continue;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int i = held.first + k * held.step;
            float *pack = held.of + k * held.kWidth;
            if (!FULL && i >= held.length) continue;
            // Each pack is written before the next entries are read: all at once would take too many registers.
            if constexpr (SIMPLE) {
                shape_whole_pack<T>(pack, i, inverse, on);
                write_whole_pack(on.y + row * p.length + i, pack);
            } else {
                shape_pack<T>(pack, i, entry, inverse, on, p);
                write_pack<T>(on.y + row * p.length, i, held.length, pack);
            }
        }
        if (lane == 0) on.leave_statistics(row, mean, inverse);
    }
}

template <class T>
__global__ void __launch_bounds__(1024) normalize_long(const Tensors<T> on, const NormalizeParams p) {
    constexpr int kWidth = Pack<T>::kWidth;
    __shared__ float shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const T *from = on.x + row * p.length, *added = on.addend == nullptr ? nullptr : on.addend + row * p.length;
        const int shift = shift_of<T>(row, p.length);
        const auto each = [&](auto f) {
            walk(from, p.length, -shift, p.length, threadIdx.x, blockDim.x, 0.0f, [&](float *pack, std::int64_t at) {
                float other[kWidth] = {};
                if (added != nullptr) read_pack<T>(added, at, p.length, 0.0f, other);
#pragma unroll
                for (int e = 0; e < kWidth; e++) pack[e] += other[e];
                f(pack, at);
            });
        };
        float mean = 0.0f, squares = 0.0f;
        if (p.centred) {
            float sum = 0.0f;
            each([&](const float *pack, std::int64_t) {
#pragma unroll
                for (int e = 0; e < kWidth; e++) sum += pack[e];
            });
            mean = reduce_block<Sum>(sum, shared) / static_cast<float>(p.length);
        }
        each([&](const float *pack, std::int64_t at) {
            if (on.sum != nullptr) write_pack<T>(on.sum + row * p.length, at, p.length, pack);
#pragma unroll
            for (int e = 0; e < kWidth; e++) {
                const float off = at + e >= 0 && at + e < p.length ? pack[e] - mean : 0.0f;
                squares += off * off;
            }
        });
        squares = reduce_block<Sum>(squares, shared) / static_cast<float>(p.length);
        const float inverse = 1.0f / sqrtf(squares + p.epsilon);
        const std::int64_t entry = row % p.period * p.stride;
        each([&](float *pack, std::int64_t at) {
#pragma unroll
            for (int e = 0; e < kWidth; e++) pack[e] -= mean;
            shape_pack<T>(pack, static_cast<int>(at), entry, inverse, on, p);
            write_pack<T>(on.y + row * p.length, at, p.length, pack);
        });
        if (threadIdx.x == 0) on.leave_statistics(row, mean, inverse);
    }
}

template <class T, int N, bool BLOCK>
int launch_held(const Tensors<T> &on, const NormalizeParams &p, const RowPlan &plan, cudaStream_t stream) {
    const bool simple = p.each == 1 && p.entries == p.length && p.stride == 0 && p.length % Pack<T>::kWidth == 0;
    const bool full = simple && p.length == static_cast<std::int64_t>(plan.lanes) * N * Pack<T>::kWidth;
    const auto kernel = full && (BLOCK || plan.lanes == WARP) ? normalize_held<T, N, BLOCK, true, true>
                        : simple                              ? normalize_held<T, N, BLOCK, true, false>
                                                              : normalize_held<T, N, BLOCK, false, false>;
    return launch_early(kernel, row_blocks(p.rows, plan.rows), plan.threads, 0, stream, on, p,
                        static_cast<int>(plan.lanes));
}

template <class T> int normalize(void *const *pointers, const NormalizeParams &p, cudaStream_t stream) {
    if (p.rows * p.length == 0) return cudaSuccess;
    const Tensors<T> on(pointers);
    const RowPlan plan = plan_rows(p.rows, p.length, Pack<T>::kWidth, kMostPacks<T>);
    if (plan.packs == 0) return launch_early(normalize_long<T>, row_blocks(p.rows), 1024, 0, stream, on, p);
    if (plan.block) return launch_held<T, kMostPacks<T>, true>(on, p, plan, stream);
    if (plan.packs == 1) return launch_held<T, 1, false>(on, p, plan, stream);
    if (plan.packs == 2) return launch_held<T, 2, false>(on, p, plan, stream);
    if (plan.packs == 4) return launch_held<T, 4, false>(on, p, plan, stream);
    return launch_held<T, kMostPacks<T>, false>(on, p, plan, stream);
}

constexpr auto normalize_of_float32 = normalize<float>;
constexpr auto normalize_of_float16 = normalize<__half>;
constexpr auto normalize_of_bfloat16 = normalize<__nv_bfloat16>;
AICORE_KERNEL(normalize_float32, NormalizeParams, 8, normalize_of_float32);
AICORE_KERNEL(normalize_float16, NormalizeParams, 8, normalize_of_float16);
AICORE_KERNEL(normalize_bfloat16, NormalizeParams, 8, normalize_of_bfloat16);

struct BatchParams {
    std::int64_t count, channels, inner;
    float epsilon, unused;
};

// (x - mean) / sqrt(variance + epsilon) * scale + bias, with statistics from training. In the order of the ONNX text.
__global__ void batch_normalize(const float *x, const float *scale, const float *bias, const float *mean,
                                const float *variance, float *y, const BatchParams p) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < p.count; e += step) {
        const std::int64_t c = e / p.inner % p.channels;
        y[e] = (x[e] - mean[c]) / sqrtf(variance[c] + p.epsilon) * scale[c] + bias[c];
    }
}

int batch(void *const *pointers, const BatchParams &p, cudaStream_t stream) {
    if (p.count == 0) return 0;
    return launch_early(batch_normalize, row_blocks((p.count + 255) / 256), 256, 0, stream,
                        static_cast<const float *>(pointers[0]), static_cast<const float *>(pointers[1]),
                        static_cast<const float *>(pointers[2]), static_cast<const float *>(pointers[3]),
                        static_cast<const float *>(pointers[4]), static_cast<float *>(pointers[5]), p);
}

AICORE_KERNEL(batch_normalize_f32, BatchParams, 6, batch);

}  // namespace
