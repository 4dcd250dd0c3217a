// The tiles that are compiled, in lists, each of which has a file of its own, so that they compile side by side.
// aicore_cuda_ge/kernels/_conv_tiles.py has the same lists.
#pragma once

#include "implicit.cuh"

namespace aicore::cnn {

template <class... Tiles>
struct TileList {};

// Each: rows, columns and depth; rows and columns of a thread; slices; stages; floats in one copy of x.
using SlicedTiles = TileList<ImplicitTile<56, 64, 32, 7, 8, 4, 3, 4>, ImplicitTile<56, 64, 32, 7, 8, 2, 3, 4>,
                             ImplicitTile<28, 64, 32, 7, 8, 8, 3, 4>, ImplicitTile<28, 128, 32, 7, 8, 4, 3, 4>,
                             ImplicitTile<56, 32, 32, 7, 4, 4, 3, 4>, ImplicitTile<64, 64, 32, 8, 8, 4, 3, 4>>;

using LargeTiles = TileList<ImplicitTile<112, 64, 16, 7, 8, 1, 4, 4>, ImplicitTile<112, 128, 16, 7, 8, 1, 3, 4>,
                            ImplicitTile<128, 128, 16, 8, 8, 1, 3, 4>>;

using UnalignedTiles = TileList<ImplicitTile<56, 64, 32, 7, 8, 2, 3, 1>, ImplicitTile<112, 64, 16, 7, 8, 1, 4, 1>,
                                ImplicitTile<56, 32, 32, 7, 4, 4, 3, 1>>;

}  // namespace aicore::cnn
