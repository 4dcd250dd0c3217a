// Matrix products on tensor cores: tile.cuh over the operands of gemm.cuh.
//
// Rows of a, and columns of b, have their numbers side by side, and begin at multiples of 16 bytes, as does the inner
// axis end; pack_rows makes them so where they are not.
#pragma once

#include "../../cnn/fours.cuh"
#include "launch.cuh"

namespace aicore::tensor {

struct TensorGemm {
    Gemm gemm;
    std::int64_t tile;        // of launch.cuh
    std::int64_t a_at, a_byte, b_at, b_byte;  // which pointers are a and b, and where they begin there
    std::int64_t inner;       // a multiple of 16 bytes; zeros may follow the numbers
};

// Copies rows of a: each thread the same 16 bytes of every kRowStep-th row.
template <class Problem, class TILE>
struct LeftCopies {
    using T = typename Problem::Element;
    static constexpr int kCopies = TILE::kRows / TILE::kRowStep;
    const T *from;
    std::int64_t step;
    int shared, inner, end;
    unsigned exists;  // a bit for each row

    __device__ __forceinline__ LeftCopies(const Problem &p, std::uint32_t batch, int first_row, int first_inner,
                                          int thread) {
        const int row = thread / TILE::kChunks, column = thread % TILE::kChunks;
        inner = first_inner + column * kChunk<T>;
        end = p.inner;
        from = p.a + batch_offsets(p.gemm, batch).a + (first_row + row) * p.gemm.a_row + inner;
        step = TILE::kRowStep * p.gemm.a_row;
        shared = row * TILE::kPitch + column * 4;
        exists = 0;
#pragma unroll
        for (int i = 0; i < kCopies; i++) exists |= (first_row + row + i * TILE::kRowStep < p.gemm.rows ? 1u : 0u) << i;
    }

    __device__ __forceinline__ void copy(float *stage, int) {
#pragma unroll
        for (int i = 0; i < kCopies; i++) {
            const bool take = (exists >> i & 1u) != 0 && inner < end;
            copy_floats<4>(stage + shared + i * TILE::kRowStep * TILE::kPitch,
                           reinterpret_cast<const float *>(from + i * step), take);
        }
        from += TILE::kChunks * kChunk<T>;
        inner += TILE::kChunks * kChunk<T>;
    }
};

// Y: of the results, T or float.
template <class T, class Y = T>
struct TensorProduct {
    using Element = T;
    template <class TILE>
    using Left = LeftCopies<TensorProduct, TILE>;

    Gemm gemm;
    const T *a, *b, *c;
    Y *y;
    std::int64_t right_pitch;
    int inner, columns, right_is_fixed, tile_rows, tile_columns;

    __device__ __forceinline__ const T *right(std::uint32_t batch) const { return b + batch_offsets(gemm, batch).b; }

    __device__ __forceinline__ void store(std::uint32_t batch, int row, int column, float4 sums) const {
        if (row >= gemm.rows || column >= columns) return;
        const int count = columns - column;
        float product[4] = {sums.x, sums.y, sums.z, sums.w};
        const T *from = c;
        if (from != nullptr) from += batch_offsets(gemm, batch).c + row * gemm.tail.c_row + column * gemm.tail.c_column;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            product[j] *= gemm.tail.alpha;
            if (from != nullptr && j < count) product[j] = fmaf(gemm.tail.beta, widen(from[j * gemm.tail.c_column]), product[j]);
        }
        const float4 results = activated(gemm.tail.activation, make_float4(product[0], product[1], product[2], product[3]));
        Y *to = y + (batch * gemm.rows + row) * gemm.columns + column;
        write_four(to, results, count, gemm.wide_y != 0);
    }
};

template <class T, class Y = T>
TensorProduct<T, Y> tensor_product(void *const *pointers, const TensorGemm &params) {
    const Gemm &gemm = params.gemm;
    TensorProduct<T, Y> p = {};
    p.gemm = gemm;
    const auto operand = [&](std::int64_t at, std::int64_t byte) {
        return reinterpret_cast<const T *>(static_cast<const char *>(pointers[at]) + byte);
    };
    p.a = operand(params.a_at, params.a_byte);
    p.b = operand(params.b_at, params.b_byte);
    p.c = gemm.c_at < 0 ? nullptr : static_cast<const T *>(pointers[gemm.c_at]);
    p.y = static_cast<Y *>(pointers[gemm.y_at]);
    p.right_pitch = gemm.b_column;
    p.inner = static_cast<int>(params.inner);
    p.columns = static_cast<int>(gemm.columns);
    p.right_is_fixed = gemm.b_constant != 0;
    return p;
}

#if !defined(AICORE_EMULATED_DEVICE)

template <class T>
int launch_product(void *const *pointers, const TensorGemm &params, cudaStream_t stream) {
    const Gemm &gemm = params.gemm;
    if (gemm.rows == 0 || gemm.columns == 0 || gemm.batch == 0) return cudaSuccess;
    return launch_tensor(params.tile, tensor_product<T>(pointers, params), static_cast<int>(gemm.rows), gemm.batch,
                         gemm.splits, stream);
}

#endif

}  // namespace aicore::tensor
