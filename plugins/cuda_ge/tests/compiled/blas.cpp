// Stands in for cuBLASLt: the functions that aicore calls, with its numbers, computed on the CPU by the definition.
// It refuses what the library would refuse, as far as aicore could get it wrong.
#include <cstdint>
#include <cstring>

struct Layout {
    std::uint64_t type, rows, columns;
    std::int64_t step;
    std::int32_t batch;
    std::int64_t batch_step;
};

struct Product {
    int compute;
    std::int32_t turned[2];
    std::uint32_t epilogue;
    const float *bias;
};

struct Preference {
    std::uint64_t workspace;
    std::uint32_t reductions, alignments[4];
};

struct Choice {
    std::uint64_t algorithm[8];
    std::size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

constexpr int kInvalid = 7, kFloat32 = 0;
constexpr std::uint64_t kAlgorithm = 0xfedcba9876543210;

template <class T>
int take(T &to, const void *from, std::size_t size) {
    if (size != sizeof(T)) return kInvalid;
    std::memcpy(&to, from, size);
    return 0;
}

extern "C" {

int cublasLtCreate(void **handle) {
    static int one;
    *handle = &one;
    return 0;
}

int cublasLtMatmulDescCreate(Product **product, int compute, int scale) {
    *product = new Product{compute, {0, 0}, 1, nullptr};
    return scale == kFloat32 && (compute == 68 || compute == 77) ? 0 : kInvalid;
}

int cublasLtMatmulDescSetAttribute(Product *product, int attribute, const void *value, std::size_t size) {
    if (attribute == 3 || attribute == 4) return take(product->turned[attribute - 3], value, size);
    if (attribute == 7) return take(product->epilogue, value, size);
    return attribute == 8 ? take(product->bias, value, size) : kInvalid;
}

int cublasLtMatrixLayoutCreate(Layout **layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t step) {
    *layout = new Layout{static_cast<std::uint64_t>(type), rows, columns, step, 1, 0};
    return type == kFloat32 && step >= static_cast<std::int64_t>(rows) ? 0 : kInvalid;
}

int cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, std::size_t size) {
    if (attribute == 5) return take(layout->batch, value, size);
    return attribute == 6 ? take(layout->batch_step, value, size) : kInvalid;
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
    if (attribute == 1) return take(preference->workspace, value, size);
    if (attribute == 3) return take(preference->reductions, value, size);
    return attribute >= 5 && attribute <= 8 ? take(preference->alignments[attribute - 5], value, size) : kInvalid;
}

int cublasLtMatmulAlgoGetHeuristic(void *, Product *product, Layout *left, Layout *right, Layout *c, Layout *y,
                                   Preference *preference, int wanted, Choice *choice, int *found) {
    const std::uint64_t rows = product->turned[0] ? left->columns : left->rows;
    const std::uint64_t inner = product->turned[0] ? left->rows : left->columns;
    const std::uint64_t columns = product->turned[1] ? right->rows : right->columns;
    const bool fits = inner == (product->turned[1] ? right->columns : right->rows) && y->rows == rows &&
                      y->columns == columns && c->rows == rows && c->columns == columns;
    const bool aligned = preference->alignments[0] == 64 && preference->alignments[3] == 64;
    *choice = {{kAlgorithm, 1, 2, 3, 4, 5, 6, 7}, 1024, 0, 1.0f, {}};
    *found = fits && aligned && wanted == 1 && preference->workspace >= 1024 && preference->reductions == 6 ? 1 : 0;
    return 0;
}

int cublasLtMatmul(void *, Product *product, const float *alpha, const float *a, Layout *left, const float *b,
                   Layout *right, const float *beta, const float *c, Layout *with, float *y, Layout *to,
                   const std::uint64_t *algorithm, void *workspace, std::size_t bytes, void *) {
    if (algorithm[0] != kAlgorithm || algorithm[7] != 7 || bytes != 1024) return kInvalid;
    if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return kInvalid;
    std::memset(workspace, 0x55, bytes);
    const std::int64_t inner = product->turned[0] ? left->rows : left->columns;
    for (std::int64_t batch = 0; batch < to->batch; batch++)
        for (std::int64_t column = 0; column < static_cast<std::int64_t>(to->columns); column++)
            for (std::int64_t row = 0; row < static_cast<std::int64_t>(to->rows); row++) {
                double sum = 0;
                for (std::int64_t k = 0; k < inner; k++) {
                    const std::int64_t at = product->turned[0] ? row * left->step + k : k * left->step + row;
                    const std::int64_t of = product->turned[1] ? k * right->step + column : column * right->step + k;
                    sum += static_cast<double>(a[batch * left->batch_step + at]) * b[batch * right->batch_step + of];
                }
                const std::int64_t place = column * to->step + row;
                sum *= *alpha;
                if (*beta != 0) sum += *beta * c[batch * with->batch_step + place];
                if (product->epilogue == 4) sum += product->bias[row];
                y[batch * to->batch_step + place] = static_cast<float>(sum);
            }
    return 0;
}
}
