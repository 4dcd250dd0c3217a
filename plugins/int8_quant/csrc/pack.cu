// Launches of the kernels that make operands ready.
#include "pack.cuh"

namespace {
using namespace int8_quant;

constexpr unsigned kThreads = 256;

int weights(void *const *pointers, const WeightParams &p, cudaStream_t stream) {
    const std::int64_t lines = p.groups * p.columns;
    if (lines == 0) return cudaSuccess;  // no elements, no launch
    return launch(pack_weights, dim3(static_cast<unsigned>(lines)), kThreads, kThreads * sizeof(int), stream, 1, p,
                  pointer<const std::int8_t>(pointers, p.w_at), pointer<const std::int8_t>(pointers, p.point_at),
                  pointer<std::int8_t>(pointers, p.b_at), pointer<std::int32_t>(pointers, p.sums_at));
}
INT8_KERNEL(int8_pack_weights, WeightParams, 2, weights);

int windows(void *const *pointers, const WindowParams &p, cudaStream_t stream) {
    const std::int64_t count = p.groups * p.rows * (p.to_row / 16);
    if (count == 0) return cudaSuccess;
    return launch(pack_windows, dim3(blocks_for(count, kThreads)), kThreads, 0, stream, 1, p,
                  pointer<const std::int8_t>(pointers, p.x_at), pointer<const std::int8_t>(pointers, p.point_at),
                  pointer<std::int8_t>(pointers, p.to_at));
}
INT8_KERNEL(int8_pack_windows, WindowParams, 2, windows);

int images(void *const *pointers, const ImageParams &p, cudaStream_t stream) {
    const std::int64_t tiles = p.images * ((p.pixels + 63) / 64), lines = (p.groups * p.padded + 63) / 64;
    if (tiles == 0 || lines == 0) return cudaSuccess;
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(lines < 64 ? lines : 64));
    return launch(pack_images, grid, kThreads, 64 * 68, stream, 1, p, pointer<const std::int8_t>(pointers, p.x_at),
                  pointer<std::int8_t>(pointers, p.to_at));
}
INT8_KERNEL(int8_pack_images, ImageParams, 2, images);

int rows(void *const *pointers, const Params &p, cudaStream_t stream) {
    const std::int64_t lines = p.sizes.groups * p.sizes.rows;
    if (lines == 0) return cudaSuccess;
    Gemm g = gemm_of(pointers, p);
    auto *to = const_cast<std::int32_t *>(g.e.row_sums);
    return launch(add_rows, dim3(blocks_for(lines, kThreads / 32, INT64_MAX)), kThreads, 0, stream, 1, g, to);
}
INT8_KERNEL(int8_row_sums, Params, 2, rows);

}  // namespace
