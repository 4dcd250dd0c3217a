// Results from sums that lie in global memory, int32 [groups][rows][columns]: those of blocks that shared a depth
// without being a cluster, or of a library. And convolutions by one thread for each result: any shape, never fast.
#include "epilogue_kernels.cuh"

namespace {
using namespace int8_quant;

constexpr unsigned kThreads = 256;

__device__ __forceinline__ void finish(const Gemm &g, const Target &t, std::int64_t group, std::int64_t row,
                                       std::int64_t column, unsigned sum) {
    const Sizes &s = g.s;
    const std::int64_t parameter = group * s.column_group + column;
    const Column own = column_of(g.e, group * s.columns + column, parameter);
    sum += static_cast<unsigned>(own.base);
    if (g.e.row_sums != nullptr)
        sum -= unsigned(weight_point(g.e, parameter)) * unsigned(g.e.row_sums[group * s.rows + row]);
    const std::int64_t at = result_at(s, group, row, column);
    store_result(g.e, t, wrapped(sum), own.scale, at, g.e.p.addend_full ? at : parameter);
}

__global__ void finish_sums(const __grid_constant__ Gemm g) {
    wait_for_previous();
    let_next_begin();
    const Sizes &s = g.s;
    const Target t = target_of(g.e);
    const std::int64_t count = s.groups * s.rows * s.columns;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += std::int64_t(gridDim.x) * blockDim.x) {
        const std::int64_t line = i / s.columns, group = line / s.rows;
        finish(g, t, group, line - group * s.rows, i - line * s.columns, static_cast<unsigned>(g.partial[i]));
    }
}

int epilogue(void *const *pointers, const Params &p, cudaStream_t stream) {
    const std::int64_t count = p.sizes.groups * p.sizes.rows * p.sizes.columns;
    if (count == 0) return cudaSuccess;  // no elements, no launch
    return launch(finish_sums, dim3(blocks_for(count, kThreads)), kThreads, 0, stream, 1, gemm_of(pointers, p));
}
INT8_KERNEL(int8_epilogue, Params, 2, epilogue);

// a is the image itself: element (image, group, channel, y, x) is at image * a_group + group * a_row + channel *
// channel_step + y * row_step + x * pixel; b is [groups][columns][taps][channels], signed, of
// whose channels the first `filled` count.
struct DirectParams {
    Params params;
    std::int64_t channel_step, row_step;
};

__global__ void convolve(const __grid_constant__ Gemm g, std::int64_t channel_step, std::int64_t row_step) {
    wait_for_previous();
    let_next_begin();
    const Sizes &s = g.s;
    const Target t = target_of(g.e);
    const std::int64_t count = s.groups * s.rows * s.columns;
    const int point = g.e.x_point == nullptr ? 0 : byte_at(g.e.x_point, 0, s.a_unsigned);
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
         i += std::int64_t(gridDim.x) * blockDim.x) {
        const std::int64_t row = i / (s.groups * s.columns), at = i - row * (s.groups * s.columns);  // channels fastest
        const std::int64_t group = at / s.columns, column = at - group * s.columns;
        const std::int64_t image = row / s.positions, position = row - image * s.positions;
        const std::int64_t y = position / s.out_width * s.stride_y - s.pad_y;
        const std::int64_t x = position % s.out_width * s.stride_x - s.pad_x;
        const std::int8_t *from = g.a + image * s.a_group + group * s.a_row;
        const std::int8_t *b = g.b + (group * s.columns + column) * s.b_row;
        unsigned sum = 0, values = 0;
        for (std::int64_t tap = 0; tap < s.taps; tap++) {
            const std::int64_t down = y + tap / s.kernel_width * s.dilation_y;
            const std::int64_t across = x + tap % s.kernel_width * s.dilation_x;
            const bool inside = down >= 0 && down < s.height && across >= 0 && across < s.width;
            const std::int8_t *pixel = from + down * row_step + across * s.pixel;
            for (std::int64_t c = 0; c < s.filled; c++) {
                const int weight = b[tap * s.channels + c];
                const int value = inside ? byte_at(pixel, c * channel_step, s.a_unsigned) : point;
                sum += static_cast<unsigned>(weight * value);
                values += static_cast<unsigned>(value);
            }
        }
        const std::int64_t parameter = group * s.column_group + column;
        sum -= static_cast<unsigned>(weight_point(g.e, parameter)) * values;
        finish(g, t, group, row, column, sum);
    }
}

int direct(void *const *pointers, const DirectParams &p, cudaStream_t stream) {
    const Sizes &s = p.params.sizes;
    const std::int64_t count = s.groups * s.rows * s.columns;
    if (count == 0) return cudaSuccess;
    return launch(convolve, dim3(blocks_for(count, kThreads)), kThreads, 0, stream, 1, gemm_of(pointers, p.params),
                  p.channel_step, p.row_step);
}
INT8_KERNEL(int8_conv_direct, DirectParams, 3, direct);

}  // namespace
