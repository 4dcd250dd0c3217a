// How a tile of implicit.cuh is launched.
#pragma once

#include "implicit_tiles.cuh"

namespace aicore::cnn {

// Blocks that share the depth of a tile: no more than it has stages, and one where there are no clusters.
inline cudaError_t find_split(std::int64_t wanted, int stages, unsigned &split) {
    int device = 0, major = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    const std::int64_t most = major < 9 ? 1 : wanted;
    split = static_cast<unsigned>(most < stages ? most : stages);
    return error;
}

template <class Tile>
int launch_tile(void *const *pointers, const ImplicitParams &params, cudaStream_t stream) {
    const ImplicitConv p = implicit_conv(pointers, params, Tile::kColumns);
    unsigned split = 1;
    cudaError_t error = find_split(params.split, (p.depth + Tile::kDepth - 1) / Tile::kDepth, split);
    if (error != cudaSuccess) return error;
    const auto kernel = implicit_kernel<Tile>;
    constexpr int kShared = Tile::kSharedWords * 4;
    error = allow_shared(kernel, kShared);
    if (error != cudaSuccess) return error;
    cudaLaunchConfig_t config = {};
    const unsigned groups = static_cast<unsigned>(params.conv.groups);
    config.gridDim = dim3(blocks_for(p.rows, Tile::kRows), p.column_tiles * groups, split);
    config.blockDim = dim3(Tile::kThreads);
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

template <class... Tiles>
int launch_tile_of(TileList<Tiles...>, void *const *pointers, const ImplicitParams &params, cudaStream_t stream) {
    using Launch = int (*)(void *const *, const ImplicitParams &, cudaStream_t);
    constexpr Launch kLaunches[] = {launch_tile<Tiles>...};
    if (outputs_of(params.conv) == 0) return cudaSuccess;
    if (params.tile < 0 || params.tile >= static_cast<std::int64_t>(sizeof...(Tiles))) return cudaErrorInvalidValue;
    return kLaunches[params.tile](pointers, params, stream);
}

}  // namespace aicore::cnn
