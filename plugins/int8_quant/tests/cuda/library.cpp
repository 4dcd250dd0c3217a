// Stands in for cuBLASLt on 8-bit integers: the functions that aicore calls, with its numbers, by the definition. It
// refuses what the library would refuse, as far as aicore could get it wrong.
#include <cstdint>
#include <cstring>

struct Layout {
    int type;
    std::uint64_t rows, columns;
    std::int64_t step;
};

struct Product {
    std::int32_t turned;
};

struct Preference {
    std::uint64_t workspace;
    std::uint32_t alignments;
};

struct Choice {
    std::uint64_t algorithm[8];
    std::size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

constexpr int kInvalid = 7, kInt8 = 3, kInt32 = 10, kCompute = 72;
constexpr std::uint64_t kAlgorithm = 0xfedcba9876543210;

extern "C" {

int cublasLtCreate(void **handle) {
    static int one;
    *handle = &one;
    return 0;
}

int cublasLtMatmulDescCreate(Product **product, int compute, int scale) {
    *product = new Product{0};
    return compute == kCompute && scale == kInt32 ? 0 : kInvalid;
}

int cublasLtMatmulDescSetAttribute(Product *product, int attribute, const void *value, std::size_t size) {
    if (attribute != 3 || size != 4) return kInvalid;
    std::memcpy(&product->turned, value, 4);
    return 0;
}

int cublasLtMatrixLayoutCreate(Layout **layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t step) {
    *layout = new Layout{type, rows, columns, step};
    return step >= static_cast<std::int64_t>(rows) && (type == kInt32 || step % 16 == 0) ? 0 : kInvalid;
}

int cublasLtMatmulPreferenceCreate(Preference **preference) {
    *preference = new Preference{};
    return 0;
}

int cublasLtMatmulPreferenceDestroy(Preference *preference) {
    delete preference;
    return 0;
}

int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, std::size_t size) {
    if (attribute == 1 && size == 8) std::memcpy(&preference->workspace, value, 8);
    if (attribute >= 5 && attribute <= 8 && size == 4) preference->alignments++;
    return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void *, Product *product, Layout *left, Layout *right, Layout *c, Layout *y,
                                   Preference *preference, int wanted, Choice *choice, int *found) {
    *choice = {{kAlgorithm, 1, 2, 3, 4, 5, 6, 7}, 1024, 0, 1.0f, {}};
    const bool types = left->type == kInt8 && right->type == kInt8 && y->type == kInt32 && c == y;
    const bool fits = left->rows == right->rows && left->columns == y->rows && right->columns == y->columns;
    const bool fours = left->rows % 4 == 0 && y->rows % 4 == 0;
    *found = types && fits && fours && product->turned == 1 && preference->alignments == 4 && wanted == 1 &&
             preference->workspace >= 1024;
    return 0;
}

int cublasLtMatmul(void *, Product *, const std::int32_t *alpha, const std::int8_t *left, Layout *from,
                   const std::int8_t *right, Layout *with, const std::int32_t *beta, const std::int32_t *,
                   Layout *, std::int32_t *y, Layout *to, const std::uint64_t *algorithm, void *workspace,
                   std::size_t bytes, void *) {
    if (*alpha != 1 || *beta != 0 || algorithm[0] != kAlgorithm || algorithm[7] != 7 || bytes != 1024) return kInvalid;
    if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return kInvalid;
    std::memset(workspace, 0x55, bytes);
    for (std::uint64_t column = 0; column < to->columns; column++)
        for (std::uint64_t row = 0; row < to->rows; row++) {
            std::uint32_t sum = 0;
            for (std::uint64_t k = 0; k < from->rows; k++)
                sum += static_cast<std::uint32_t>(left[row * from->step + k] * right[column * with->step + k]);
            y[column * to->step + row] = static_cast<std::int32_t>(sum);
        }
    return 0;
}
}
