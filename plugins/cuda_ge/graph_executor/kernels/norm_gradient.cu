// Gradients of layer and RMS normalisation, of rows of contiguous elements. With g = dy * scale, h = (x - mean) * inverse,
// dx = inverse * (g - mean(g) - h * mean(g * h)), without mean(g) for RMS; dscale and dbias sum dy * h and dy over rows.
//
// 1. Rows: a team, a warp or a block, walks over its row twice: for the sums, and for dx. RMS finds its inverse first.
// 2. Columns: neighbouring threads take neighbouring columns, rows of threads and splits share the rows; what they sum
//    is left in the workspace, [split][2][length].
// 3. Splits are added up, always in the same order.
// Arithmetic is float32, also for narrower types.
#include "../reduce/rows.cuh"

namespace {

using namespace aicore;

struct NormGradient {
    std::int64_t rows, length;
    std::int64_t splits;   // parts of the rows
    std::int64_t centred;  // 0: RMS, which has neither mean nor bias, and whose inverse deviation goes to the workspace
    float epsilon, unused;
};

template <class T> struct Norm {
    const T *x, *scale, *dy;
    const float *mean;       // null for RMS
    const float *inverse;    // of LayerNormalization
    T *dx, *dscale, *dbias;  // dbias is null for RMS
    float *own_inverse;      // of RMS
    float *partial;

    explicit Norm(void *const *pointers, const NormGradient &p)
        : x(static_cast<const T *>(pointers[0])),
          scale(static_cast<const T *>(pointers[1])),
          dy(static_cast<const T *>(pointers[4])),
          mean(static_cast<const float *>(pointers[2])),
          inverse(static_cast<const float *>(pointers[3])),
          dx(static_cast<T *>(pointers[5])),
          dscale(static_cast<T *>(pointers[6])),
          dbias(static_cast<T *>(pointers[7])),
          own_inverse(static_cast<float *>(pointers[8])),
          partial(static_cast<float *>(pointers[8]) + (p.centred ? 0 : p.rows)) {}
};

constexpr int kRowThreads = 256, kLanes = 32, kParts = 8, kSumThreads = 128;
constexpr std::int64_t kLongRow = 2048;  // elements that a block takes instead of a warp

template <class T, bool BLOCK>
__global__ void __launch_bounds__(kRowThreads) gradient_of_rows(const Norm<T> t, const NormGradient p) {
    __shared__ float shared[WARP + 1];
    let_next_begin();
    wait_for_previous();
    const int lanes = BLOCK ? kRowThreads : WARP, lane = threadIdx.x % lanes, teams = kRowThreads / lanes;
    const float length = static_cast<float>(p.length);
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * teams + threadIdx.x / lanes; row < p.rows;
         row += static_cast<std::int64_t>(gridDim.x) * teams) {
        const T *x = t.x + row * p.length, *dy = t.dy + row * p.length;
        float mean = 0.0f, inverse;
        if (p.centred) {
            mean = t.mean[row];
            inverse = t.inverse[row];
        } else {
            float squares = 0.0f;
            for (std::int64_t i = lane; i < p.length; i += lanes) squares += widen(x[i]) * widen(x[i]);
            inverse = 1.0f / sqrtf(reduce_team<BLOCK, Sum>(squares, lanes, shared) / length + p.epsilon);
            if (lane == 0) t.own_inverse[row] = inverse;
        }
        float plain = 0.0f, weighted = 0.0f;
        for (std::int64_t i = lane; i < p.length; i += lanes) {
            const float g = widen(dy[i]) * widen(t.scale[i]);
            plain += g;
            weighted += g * ((widen(x[i]) - mean) * inverse);
        }
        plain = p.centred ? reduce_team<BLOCK, Sum>(plain, lanes, shared) / length : 0.0f;
        weighted = reduce_team<BLOCK, Sum>(weighted, lanes, shared) / length;
        for (std::int64_t i = lane; i < p.length; i += lanes) {
            const float h = (widen(x[i]) - mean) * inverse;
            t.dx[row * p.length + i] = narrow<T>(inverse * (widen(dy[i]) * widen(t.scale[i]) - plain - h * weighted));
        }
    }
}

template <class T>
__global__ void __launch_bounds__(kLanes *kParts) sums_of_columns(const Norm<T> t, const NormGradient p) {
    __shared__ float plain[kParts][kLanes], weighted[kParts][kLanes];
    let_next_begin();
    wait_for_previous();
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kLanes + threadIdx.x;
    const std::int64_t end = p.rows * (blockIdx.y + 1) / p.splits;
    const float *inverse = p.centred ? t.inverse : t.own_inverse;
    float sum = 0.0f, product = 0.0f;
    if (column < p.length) {
#pragma unroll 4
        for (std::int64_t row = p.rows * blockIdx.y / p.splits + threadIdx.y; row < end; row += kParts) {
            const float dy = widen(t.dy[row * p.length + column]), mean = p.centred ? t.mean[row] : 0.0f;
            sum += dy;
            product += dy * ((widen(t.x[row * p.length + column]) - mean) * inverse[row]);
        }
    }
    plain[threadIdx.y][threadIdx.x] = sum;
    weighted[threadIdx.y][threadIdx.x] = product;
    __syncthreads();
    if (threadIdx.y > 0 || column >= p.length) return;
    for (int part = 1; part < kParts; part++) {
        sum += plain[part][threadIdx.x];
        product += weighted[part][threadIdx.x];
    }
    t.partial[2 * blockIdx.y * p.length + column] = product;
    t.partial[(2 * blockIdx.y + 1) * p.length + column] = sum;
}

template <class T>
__global__ void __launch_bounds__(kSumThreads) sums_of_splits(const Norm<T> t, const NormGradient p) {
    let_next_begin();
    wait_for_previous();
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
    if (column >= p.length) return;
    float sum = 0.0f, product = 0.0f;
#pragma unroll 4
    for (std::int64_t split = 0; split < p.splits; split++) {
        product += t.partial[2 * split * p.length + column];
        sum += t.partial[(2 * split + 1) * p.length + column];
    }
    t.dscale[column] = narrow<T>(product);
    if (t.dbias != nullptr) t.dbias[column] = narrow<T>(sum);
}

template <class T> int norm_gradient(void *const *pointers, const NormGradient &p, cudaStream_t stream) {
    if (p.length == 0) return cudaSuccess;
    const Norm<T> t(pointers, p);
    int status = cudaSuccess;
    if (p.rows > 0) {
        const bool block = p.length > kLongRow;
        const auto kernel = block ? gradient_of_rows<T, true> : gradient_of_rows<T, false>;
        status = launch_early(kernel, row_blocks(p.rows, block ? 1 : kRowThreads / WARP), kRowThreads, 0, stream, t, p);
        if (status != cudaSuccess) return status;
    }
    const dim3 grid(blocks_for(p.length, kLanes), static_cast<unsigned>(p.splits));
    status = launch_early(sums_of_columns<T>, grid, dim3(kLanes, kParts), 0, stream, t, p);
    if (status != cudaSuccess) return status;
    return launch_early(sums_of_splits<T>, blocks_for(p.length, kSumThreads), kSumThreads, 0, stream, t, p);
}

constexpr auto norm_gradient_of_float32 = norm_gradient<float>;
constexpr auto norm_gradient_of_float16 = norm_gradient<__half>;
constexpr auto norm_gradient_of_bfloat16 = norm_gradient<__nv_bfloat16>;
AICORE_KERNEL(norm_gradient_float32, NormGradient, 9, norm_gradient_of_float32);
AICORE_KERNEL(norm_gradient_float16, NormGradient, 9, norm_gradient_of_float16);
AICORE_KERNEL(norm_gradient_bfloat16, NormGradient, 9, norm_gradient_of_bfloat16);

}  // namespace
