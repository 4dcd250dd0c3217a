// The kernels of graph_executor/cnn and graph_executor/pooling as functions that tests call on arrays of the host.
#include "emulated_device.hpp"

#include "cnn/depthwise.cuh"
#include "cnn/direct.cuh"
#include "cnn/implicit_tiles.cuh"
#include "cnn/pack.cuh"
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

// rows, columns, depth, threads and bytes of shared memory of each tile
template <class... Tiles>
int describe(TileList<Tiles...>, int *to) {
    int count = 0;
    const auto add = [&](int value) { to[count++] = value; };
    ((add(Tiles::kRows), add(Tiles::kColumns), add(Tiles::kDepth), add(Tiles::kThreads), add(4 * Tiles::kSharedWords)),
     ...);
    return count / 5;
}

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

template <bool Max>
void run_channels(void *const *pointers, const PoolParams &p) {
    const auto *x = static_cast<const float *>(pointers[0]);
    auto *y = static_cast<float *>(pointers[1]);
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
std::size_t size_of_conv_depthwise() { return sizeof(DepthwiseParams); }
std::size_t size_of_conv_implicit_sliced() { return sizeof(ImplicitParams); }
std::size_t size_of_conv_implicit_large() { return sizeof(ImplicitParams); }
std::size_t size_of_conv_implicit_unaligned() { return sizeof(ImplicitParams); }
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
    for (std::int64_t i = 0; i < p.groups * p.depth * p.columns; i++) {
        static_cast<float *>(pointers[p.to_at])[i] = packed_weight(p, static_cast<const float *>(pointers[1]), i);
    }
    return 0;
}

int conv_depthwise(void *const *pointers, const void *bytes) {
    const auto params = params_of<DepthwiseParams>(bytes);
    if (outputs_of(params.conv) == 0) return 0;
    return run_depthwise(pointers, params, [](auto kernel, std::int64_t threads, const DepthwiseConv &p) {
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
    const auto kernel = p.kind == kMaxPool ? rows_kernel<true> : rows_kernel<false>;
    run_kernel({blocks, 1, 1}, kRowThreads, 0, [&] {
        kernel(p, static_cast<const float *>(pointers[0]), static_cast<float *>(pointers[1]));
    });
    return 0;
}

int pool_channels(void *const *pointers, const void *bytes) {
    const auto p = params_of<PoolParams>(bytes);
    p.kind == kMaxPool ? run_channels<true>(pointers, p) : run_channels<false>(pointers, p);
    return 0;
}

}  // extern "C"
