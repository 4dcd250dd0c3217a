// How a tile of tile.cuh is launched, and the tiles that are compiled.
#pragma once

#include "tile.cuh"

namespace aicore::tensor {

// Warps down and across, 16 x 8 tiles of a warp down and across, slices, stages, blocks of a multiprocessor.
// aicore_cuda_ge/kernels/_tensor_tiles.py has the same list.
template <int NUMBER>
struct TileNumber;
template <>
struct TileNumber<0> {
    using Type = Tile<2, 2, 4, 8, 1, 3, 2>;  // 128 x 128
};
template <>
struct TileNumber<1> {
    using Type = Tile<2, 2, 4, 4, 1, 3, 2>;  // 128 x 64
};
template <>
struct TileNumber<2> {
    using Type = Tile<2, 2, 2, 4, 1, 4, 3>;  // 64 x 64
};
template <>
struct TileNumber<3> {
    using Type = Tile<2, 2, 2, 4, 2, 4, 1>;  // 64 x 64 in two slices
};
template <>
struct TileNumber<4> {
    using Type = Tile<1, 2, 2, 4, 2, 4, 2>;  // 32 x 64 in two slices
};
template <>
struct TileNumber<5> {
    using Type = Tile<1, 1, 2, 4, 4, 4, 3>;  // 32 x 32 in four slices
};
constexpr int kTiles = 6;

#if !defined(AICORE_EMULATED_DEVICE)

// Blocks that share the inner axis of a tile: no more than it has stages, and one where there are no clusters.
inline cudaError_t find_split(std::int64_t wanted, int stages, unsigned &split) {
    int device = 0, major = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess && major < 8) error = cudaErrorNotSupported;
    const std::int64_t most = major < 9 ? 1 : wanted;
    split = static_cast<unsigned>(most < stages ? most : stages);
    if (split < 1) split = 1;
    return error;
}

// Blocks over all tiles of a batch of products.
template <class TILE, class Problem>
int launch_tensor(Problem p, int rows, std::int64_t batch, std::int64_t wanted_split, cudaStream_t stream) {
    p.tile_rows = (rows + TILE::kRows - 1) / TILE::kRows;
    p.tile_columns = (p.columns + TILE::kColumns - 1) / TILE::kColumns;
    constexpr int kDepth = TILE::kChunks * kChunk<typename Problem::Element>;
    unsigned split = 1;
    cudaError_t error = find_split(wanted_split, (p.inner + kDepth - 1) / kDepth, split);
    if (error != cudaSuccess) return error;
    const auto kernel = tensor_kernel<TILE, Problem>;
    constexpr int kShared = TILE::kSharedWords * 4;
    error = allow_shared(kernel, kShared);
    if (error != cudaSuccess) return error;
    cudaLaunchConfig_t config = {};
    const std::int64_t tiles = static_cast<std::int64_t>(p.tile_rows) * p.tile_columns * batch;
    config.gridDim = dim3(static_cast<unsigned>(tiles), 1, split);
    config.blockDim = dim3(TILE::kThreads);
    config.dynamicSmemBytes = kShared;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = 1;
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = split;
    config.attrs = attributes;
    config.numAttrs = split > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, p);
}

template <class Problem>
int launch_tensor(std::int64_t tile, const Problem &p, int rows, std::int64_t batch, std::int64_t split,
                  cudaStream_t stream) {
    switch (tile) {
        case 0: return launch_tensor<TileNumber<0>::Type>(p, rows, batch, split, stream);
        case 1: return launch_tensor<TileNumber<1>::Type>(p, rows, batch, split, stream);
        case 2: return launch_tensor<TileNumber<2>::Type>(p, rows, batch, split, stream);
        case 3: return launch_tensor<TileNumber<3>::Type>(p, rows, batch, split, stream);
        case 4: return launch_tensor<TileNumber<4>::Type>(p, rows, batch, split, stream);
        case 5: return launch_tensor<TileNumber<5>::Type>(p, rows, batch, split, stream);
        default: return cudaErrorInvalidValue;
    }
}

#endif

}  // namespace aicore::tensor
