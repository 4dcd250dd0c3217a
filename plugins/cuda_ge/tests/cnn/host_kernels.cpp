// The kernels of graph_executor/cnn and graph_executor/pooling as functions that tests call on arrays of the host.
#include "emulated_device.hpp"

#include "cnn/depthwise.cuh"
#include "cnn/direct.cuh"
#include "cnn/implicit_tiles.cuh"
#include "cnn/pack.cuh"
#include "cnn/tensor_conv.cuh"
#include "kernels/tensor/pack.cuh"
#include "kernels/tensor/product.cuh"
#include "pooling/channels.cuh"
#include "pooling/pool.cuh"
#include "pooling/rows.cuh"

using namespace aicore;
using namespace aicore::cnn;
using namespace aicore::pooling;

namespace {

template <class T>
T params_of(const void *bytes) {
    T params;
    std::memcpy(&params, bytes, sizeof params);
    return params;
}

template <class Tile>
int run_tile(void *const *pointers, const ImplicitParams &params) {
    const ImplicitConv p = implicit_conv(pointers, params, Tile::kColumns);
    const int stages = (p.depth + Tile::kDepth - 1) / Tile::kDepth;
    const int split = params.split < stages ? static_cast<int>(params.split) : stages;
    const ConvParams &c = params.conv;
    readable = {{p.x, p.x + c.images * c.x.image},
                {p.w, p.w + c.groups * params.packed_depth * params.packed_columns}};
    const Index blocks = {(p.rows + Tile::kRows - 1) / Tile::kRows, p.column_tiles * static_cast<int>(c.groups), split};
    run_kernel(blocks, Tile::kThreads, Tile::kSharedWords, [&] { implicit_kernel<Tile>(p); });
    return 0;
}

template <class... Tiles>
int run_tile_of(TileList<Tiles...>, void *const *pointers, const void *bytes) {
    const auto params = params_of<ImplicitParams>(bytes);
    if (outputs_of(params.conv) == 0) return 0;
    using Run = int (*)(void *const *, const ImplicitParams &);
    const Run runs[] = {run_tile<Tiles>...};
    return runs[params.tile](pointers, params);
}

template <class Tile, class Problem>
int run_tensor_tile(Problem p, int rows, std::int64_t batch, std::int64_t wanted) {
    p.tile_rows = (rows + Tile::kRows - 1) / Tile::kRows;
    p.tile_columns = (p.columns + Tile::kColumns - 1) / Tile::kColumns;
    constexpr int kDepth = Tile::kChunks * tensor::kChunk<typename Problem::Element>;
    const int stages = (p.inner + kDepth - 1) / kDepth;
    const int split = stages == 0 ? 1 : wanted < stages ? static_cast<int>(wanted) : stages;
    const Index blocks = {p.tile_rows * p.tile_columns * static_cast<int>(batch), 1, split};
    run_kernel(blocks, Tile::kThreads, Tile::kSharedWords, [&] { tensor::tensor_kernel<Tile>(p); });
    return 0;
}

template <class Problem>
int run_tensor(std::int64_t tile, const Problem &p, int rows, std::int64_t batch, std::int64_t split) {
    switch (tile) {
        case 0: return run_tensor_tile<tensor::TileNumber<0>::Type>(p, rows, batch, split);
        case 1: return run_tensor_tile<tensor::TileNumber<1>::Type>(p, rows, batch, split);
        case 2: return run_tensor_tile<tensor::TileNumber<2>::Type>(p, rows, batch, split);
        case 3: return run_tensor_tile<tensor::TileNumber<3>::Type>(p, rows, batch, split);
        case 4: return run_tensor_tile<tensor::TileNumber<4>::Type>(p, rows, batch, split);
        case 5: return run_tensor_tile<tensor::TileNumber<5>::Type>(p, rows, batch, split);
        default: return 1;
    }
}

// As floats, which is what copies are counted in.
template <class T>
Range range_of(const T *from, std::int64_t count) {
    const auto *begin = reinterpret_cast<const float *>(from);
    return {begin, begin + count * static_cast<std::int64_t>(sizeof(T)) / 4};
}

template <class T>
int run_tensor_conv(void *const *pointers, const void *bytes) {
    const auto params = params_of<TensorConvParams>(bytes);
    const ConvParams &c = params.conv;
    if (outputs_of(c) == 0) return 0;
    const TensorConv<T> p = tensor_conv<T>(pointers, params);
    readable = {range_of(p.x, c.images * c.x.image), range_of(p.w, c.groups * c.maps * p.right_pitch)};
    return run_tensor(params.tile, p, p.rows, c.groups, params.split);
}

// The elements that strides reach, in one matrix or all of the batch.
inline std::int64_t reach(const Gemm &gemm, const std::int64_t (&batch)[kBatchAxes], std::int64_t rows,
                          std::int64_t stride, std::int64_t inner) {
    std::int64_t last = (rows - 1) * stride + inner;
    for (int axis = 0; axis < kBatchAxes; axis++) last += (gemm.batch_sizes[axis] - 1) * batch[axis];
    return last;
}

template <class T>
int run_tensor_product(void *const *pointers, const void *bytes) {
    const auto params = params_of<tensor::TensorGemm>(bytes);
    const Gemm &gemm = params.gemm;
    if (gemm.rows == 0 || gemm.columns == 0 || gemm.batch == 0) return 0;
    const auto p = tensor::tensor_product<T>(pointers, params);
    readable = {range_of(p.a, reach(gemm, gemm.a_batch, gemm.rows, gemm.a_row, params.inner)),
                range_of(p.b, reach(gemm, gemm.b_batch, gemm.columns, gemm.b_column, params.inner))};
    return run_tensor(params.tile, p, static_cast<int>(gemm.rows), gemm.batch, gemm.splits);
}

template <class Word>
void run_pack(void *const *pointers, const tensor::PackRows &p) {
    Word *to = reinterpret_cast<Word *>(static_cast<char *>(pointers[p.to_at]) + p.to_byte);
    for (std::int64_t i = 0; i < p.outer * p.rows * p.padded; i++) {
        const std::int64_t row = i / p.padded;
        to[i] = tensor::packed(p, static_cast<const Word *>(pointers[p.from_at]), row / p.rows, row % p.rows, i % p.padded);
    }
}

template <int NUMBER>
void describe_tensor(int *to) {
    using Tile = typename tensor::TileNumber<NUMBER>::Type;
    to[0] = Tile::kRows, to[1] = Tile::kColumns, to[2] = Tile::kThreads / 32, to[3] = 4 * Tile::kSharedWords;
    if constexpr (NUMBER + 1 < tensor::kTiles) describe_tensor<NUMBER + 1>(to + 4);
}

// rows, columns, depth, threads and bytes of shared memory of each tile
template <class... Tiles>
int describe(TileList<Tiles...>, int *to) {
    int count = 0;
    const auto add = [&](int value) { to[count++] = value; };
    ((add(Tiles::kRows), add(Tiles::kColumns), add(Tiles::kDepth), add(Tiles::kThreads), add(4 * Tiles::kSharedWords)),
     ...);
    return count / 5;
}

// The fields of TurnParams in library.cu; without what is added, or looked for.
struct Turn {
    std::int64_t images, rows, columns, x_at, x_byte, y_at, y_byte, bias_at, residual_at, flag_at;
    Activation activation;
};

template <class T>
void run_direct(void *const *pointers, const ConvParams &p, bool transposed) {
    const ConvPointers<T> t = conv_pointers<T>(pointers, p);
    for (std::int64_t i = 0; i < outputs_of(p); i++) {
        transposed ? transposed_element<T, T>(p, t, i) : conv_element<T, T>(p, t, i);
    }
}

template <class T>
void run_max(void *const *pointers, const PoolParams &p, T lowest) {
    for (std::int64_t i = 0; i < outputs_of(p); i++) {
        max_element<T, T>(p, static_cast<const T *>(pointers[0]), static_cast<T *>(pointers[1]),
                          p.with_indices ? static_cast<std::int64_t *>(pointers[2]) : nullptr, lowest, i);
    }
}

template <class T>
void run_pool(void *const *pointers, const PoolParams &p) {
    if constexpr (std::numeric_limits<T>::is_integer) {
        run_max<T>(pointers, p, std::numeric_limits<T>::lowest());
    } else if (p.kind == kMaxPool) {
        run_max<T>(pointers, p, -std::numeric_limits<T>::infinity());
    } else {
        for (std::int64_t i = 0; i < outputs_of(p); i++) {
            sum_element<T, T>(p, static_cast<const T *>(pointers[0]), static_cast<T *>(pointers[1]), i);
        }
    }
}

template <bool Max, class T>
void run_channels(void *const *pointers, const PoolParams &p) {
    const auto *x = static_cast<const T *>(pointers[0]);
    auto *y = static_cast<T *>(pointers[1]);
    const int pixels = static_cast<int>(product(p.window.size)), channels = static_cast<int>(p.channels);
    const int all = static_cast<int>(p.images) * channels;
    if (p.x.channel == 1) {
        const Index blocks = {(channels + 31) / 32, static_cast<int>(p.images), 1};
        run_kernel(blocks, kChannelThreads, kChannelThreads, [&] { last_kernel<Max>(x, y, pixels, channels); });
        return;
    }
    const Index blocks = {(all + kChannelWarps - 1) / kChannelWarps, 1, 1};
    run_kernel(blocks, kChannelThreads, kChannelThreads, [&] { first_kernel<Max>(x, y, pixels, all); });
}

}  // namespace

extern "C" {

std::size_t size_of_conv_direct() { return sizeof(ConvParams); }
std::size_t size_of_conv_transpose_direct() { return sizeof(ConvParams); }
std::size_t size_of_conv_pack() { return sizeof(PackParams); }
std::size_t size_of_conv_turn() { return sizeof(Turn); }
std::size_t size_of_fill() { return 2 * sizeof(std::int64_t); }
std::size_t size_of_conv_depthwise() { return sizeof(DepthwiseParams); }
std::size_t size_of_conv_implicit_sliced() { return sizeof(ImplicitParams); }
std::size_t size_of_conv_implicit_large() { return sizeof(ImplicitParams); }
std::size_t size_of_conv_implicit_unaligned() { return sizeof(ImplicitParams); }
std::size_t size_of_conv_tensor_tf32() { return sizeof(TensorConvParams); }
std::size_t size_of_conv_tensor_float16() { return sizeof(TensorConvParams); }
std::size_t size_of_conv_tensor_bfloat16() { return sizeof(TensorConvParams); }
std::size_t size_of_gemm_tensor_tf32() { return sizeof(tensor::TensorGemm); }
std::size_t size_of_gemm_tensor_float16() { return sizeof(tensor::TensorGemm); }
std::size_t size_of_gemm_tensor_bfloat16() { return sizeof(tensor::TensorGemm); }
std::size_t size_of_pack_rows() { return sizeof(tensor::PackRows); }
std::size_t size_of_pool_rows() { return sizeof(PoolParams); }
std::size_t size_of_pool_channels() { return sizeof(PoolParams); }
std::size_t size_of_pool_direct() { return sizeof(PoolParams); }

int tiles_of_sliced(int *to) { return describe(SlicedTiles{}, to); }
int tiles_of_large(int *to) { return describe(LargeTiles{}, to); }
int tiles_of_unaligned(int *to) { return describe(UnalignedTiles{}, to); }

int conv_direct(void *const *pointers, const void *bytes) {
    const auto p = params_of<ConvParams>(bytes);
    p.element == kFloat64 ? run_direct<double>(pointers, p, false) : run_direct<float>(pointers, p, false);
    return 0;
}

int conv_transpose_direct(void *const *pointers, const void *bytes) {
    const auto p = params_of<ConvParams>(bytes);
    p.element == kFloat64 ? run_direct<double>(pointers, p, true) : run_direct<float>(pointers, p, true);
    return 0;
}

int conv_pack(void *const *pointers, const void *bytes) {
    const auto p = params_of<PackParams>(bytes);
    auto *to = reinterpret_cast<float *>(static_cast<char *>(pointers[p.to_at]) + p.to_byte);
    for (int group = 0; group < p.groups; group++) {
        for (int channel = 0; channel <= p.channels; channel++) {
            for (int column = 0; column < p.columns; column++)
                pack_taps(p, static_cast<const float *>(pointers[1]), to, group, channel, column);
        }
    }
    return 0;
}

int conv_turn(void *const *pointers, const void *bytes) {
    const auto p = params_of<Turn>(bytes);
    const auto *x = reinterpret_cast<const float *>(static_cast<char *>(pointers[p.x_at]) + p.x_byte);
    auto *y = reinterpret_cast<float *>(static_cast<char *>(pointers[p.y_at]) + p.y_byte);
    for (std::int64_t i = 0; i < p.images * p.rows * p.columns; i++) {
        const std::int64_t image = i / (p.rows * p.columns), row = i / p.columns % p.rows, column = i % p.columns;
        y[(image * p.columns + column) * p.rows + row] = x[i];
    }
    return p.bias_at < 0 && p.residual_at < 0 && p.flag_at < 0 && p.activation.kind == kIdentity ? 0 : 1;
}

int fill(void *const *pointers, const void *bytes) {
    std::int64_t numbers[2];
    std::memcpy(numbers, bytes, sizeof numbers);
    std::memset(pointers[0], static_cast<int>(numbers[1]), numbers[0]);
    return 0;
}

int conv_depthwise(void *const *pointers, const void *bytes) {
    const auto params = params_of<DepthwiseParams>(bytes);
    if (outputs_of(params.conv) == 0) return 0;
    return run_depthwise(pointers, params, [](auto kernel, std::int64_t threads, const auto &p) {
        const int blocks = static_cast<int>((threads + kDepthwiseThreads - 1) / kDepthwiseThreads);
        run_kernel({blocks, 1, 1}, kDepthwiseThreads, 0, [&] { kernel(p, threads); });
        return 0;
    });
}

int conv_implicit_sliced(void *const *pointers, const void *bytes) {
    return run_tile_of(SlicedTiles{}, pointers, bytes);
}
int conv_implicit_large(void *const *pointers, const void *bytes) { return run_tile_of(LargeTiles{}, pointers, bytes); }
int conv_implicit_unaligned(void *const *pointers, const void *bytes) {
    return run_tile_of(UnalignedTiles{}, pointers, bytes);
}

int conv_tensor_tf32(void *const *pointers, const void *bytes) { return run_tensor_conv<float>(pointers, bytes); }
int conv_tensor_float16(void *const *pointers, const void *bytes) { return run_tensor_conv<__half>(pointers, bytes); }
int conv_tensor_bfloat16(void *const *pointers, const void *bytes) {
    return run_tensor_conv<__nv_bfloat16>(pointers, bytes);
}
int gemm_tensor_tf32(void *const *pointers, const void *bytes) { return run_tensor_product<float>(pointers, bytes); }
int gemm_tensor_float16(void *const *pointers, const void *bytes) { return run_tensor_product<__half>(pointers, bytes); }
int gemm_tensor_bfloat16(void *const *pointers, const void *bytes) {
    return run_tensor_product<__nv_bfloat16>(pointers, bytes);
}

int pack_rows(void *const *pointers, const void *bytes) {
    const auto p = params_of<tensor::PackRows>(bytes);
    p.element_bytes == 2 ? run_pack<std::uint16_t>(pointers, p) : run_pack<std::uint32_t>(pointers, p);
    return 0;
}

// rows, columns, warps and bytes of shared memory of each tile
int tiles_of_tensor(int *to) {
    describe_tensor<0>(to);
    return tensor::kTiles;
}

int pool_direct(void *const *pointers, const void *bytes) {
    const auto p = params_of<PoolParams>(bytes);
    switch (p.element) {
        case kFloat32:
            run_pool<float>(pointers, p);
            return 0;
        case kFloat64:
            run_pool<double>(pointers, p);
            return 0;
        case kInt8:
            run_pool<std::int8_t>(pointers, p);
            return 0;
        case kUint8:
            run_pool<std::uint8_t>(pointers, p);
            return 0;
        default:
            return 1;
    }
}

int pool_rows(void *const *pointers, const void *bytes) {
    const auto p = params_of<PoolParams>(bytes);
    const int blocks = static_cast<int>((outputs_of(p) / 4 + kRowThreads - 1) / kRowThreads);
    return for_float(p.element, [&](auto type) {
        using T = typename decltype(type)::Type;
        const auto kernel = p.kind == kMaxPool ? rows_kernel<true, T> : rows_kernel<false, T>;
        run_kernel({blocks, 1, 1}, kRowThreads, 0, [&] {
            kernel(p, static_cast<const T *>(pointers[0]), static_cast<T *>(pointers[1]));
        });
        return 0;
    });
}

int pool_channels(void *const *pointers, const void *bytes) {
    const auto p = params_of<PoolParams>(bytes);
    return for_float(p.element, [&](auto type) {
        using T = typename decltype(type)::Type;
        p.kind == kMaxPool ? run_channels<true, T>(pointers, p) : run_channels<false, T>(pointers, p);
        return 0;
    });
}

}  // extern "C"
