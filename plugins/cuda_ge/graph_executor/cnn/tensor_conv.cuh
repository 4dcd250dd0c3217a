// Convolution of channels-last images on tensor cores: kernels/tensor/tile.cuh over the rows of cnn/geometry.cuh.
//
// Channels of a group are a multiple of 16 bytes; pack_rows makes them so. Weights are packed as (groups * maps, taps *
// channels), each map's numbers side by side.
#pragma once

#include "../kernels/tensor/launch.cuh"
#include "fours.cuh"
#include "geometry.cuh"

namespace aicore::cnn {

struct TensorConvParams {
    ConvParams conv;  // of padded channels
    std::int64_t x_at, x_byte;  // which pointer is x, and where it begins there
    std::int64_t tile;   // of kernels/tensor/launch.cuh
    std::int64_t split;  // at most so many blocks share the depth of a tile; one before compute capability 9.0
    std::int64_t w_is_fixed;
};

// Copies pixels of x: each thread the same 16 bytes of every kRowStep-th row.
template <class Problem, class Tile>
struct PixelCopies {
    using T = typename Problem::Element;
    static constexpr int kCopies = Tile::kRows / Tile::kRowStep;
    const Problem &p;
    const T *x;
    int shared;
    RowOrigin origins[kCopies];
    DepthCursor cursor;

    __device__ __forceinline__ PixelCopies(const Problem &problem, std::uint32_t group, int first_row, int first_depth,
                                           int thread)
        : p(problem) {
        const int row = thread / Tile::kChunks, column = thread % Tile::kChunks;
        x = p.x + static_cast<std::int64_t>(group) * p.channels;
        shared = row * Tile::kPitch + column * 4;
#pragma unroll
        for (int i = 0; i < kCopies; i++) {
            const int at = first_row + row + i * Tile::kRowStep;
            origins[i].start(p, at, at < p.rows);
        }
        cursor.start(p, first_depth + column * tensor::kChunk<T>);
    }

    __device__ __forceinline__ void copy(float *stage, int) {
#pragma unroll
        for (int i = 0; i < kCopies; i++) {
            const bool inside = (origins[i].mask & cursor.bit) == cursor.bit;
            const int at = inside ? origins[i].offset + cursor.offset : 0;
            copy_floats<4>(stage + shared + i * Tile::kRowStep * Tile::kPitch, reinterpret_cast<const float *>(x + at),
                           inside);
        }
        cursor.advance(p, Tile::kChunks * tensor::kChunk<T>);
    }
};

template <class T>
struct TensorConv : ConvGeometry {
    using Element = T;
    template <class Tile>
    using Left = PixelCopies<TensorConv, Tile>;

    const T *x, *w, *bias, *residual;
    T *y;
    int inner, columns, right_pitch, right_is_fixed, tile_rows, tile_columns;
    Activation activation;

    __device__ __forceinline__ const T *right(std::uint32_t group) const {
        return w + static_cast<std::int64_t>(group) * columns * right_pitch;
    }

    __device__ __forceinline__ void store(std::uint32_t group, int row, int map, float4 sums) const {
        if (row >= rows || map >= columns) return;
        const int column = static_cast<int>(group) * columns + map;
        const std::int64_t at = static_cast<std::int64_t>(row) * y_pixel + column;
        finish_four(activation, sums, bias == nullptr ? nullptr : bias + column,
                    residual == nullptr ? nullptr : residual + at, y + at, columns - map, columns % 4 == 0);
    }
};

template <class T>
TensorConv<T> tensor_conv(void *const *pointers, const TensorConvParams &params) {
    const ConvParams &c = params.conv;
    const ConvPointers<T> t = conv_pointers<T>(pointers, c);
    TensorConv<T> p = {};
    p.set_geometry(c);
    p.x = reinterpret_cast<const T *>(static_cast<const char *>(pointers[params.x_at]) + params.x_byte);
    p.w = t.w, p.bias = t.bias, p.residual = t.residual, p.y = t.y;
    p.inner = p.right_pitch = p.depth;
    p.columns = p.maps;
    p.right_is_fixed = params.w_is_fixed != 0;
    p.activation = c.activation;
    return p;
}

}  // namespace aicore::cnn
