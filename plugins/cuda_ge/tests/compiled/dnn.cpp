// Stands in for cuDNN: the functions that aicore calls, with its numbers, computed on the CPU by the definition.
// It refuses what the library would refuse, as far as aicore could get it wrong.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

struct Tensor {
    int layout, type, images, channels, height, width;
};
struct Filter {
    int type, layout, maps, channels, height, width;
};
struct Convolution {
    int pad[2], stride[2], dilation[2], groups, math;
};
struct Activation {
    int mode, nan;
};

constexpr int kBadParam = 3, kNotSupported = 9;
constexpr std::size_t kWorkspace = 1024;
bool has_stream = false;

std::int64_t place(const Tensor &t, std::int64_t image, std::int64_t channel, std::int64_t row, std::int64_t column) {
    if (t.layout == 1) return ((image * t.height + row) * t.width + column) * t.channels + channel;
    return ((image * t.channels + channel) * t.height + row) * t.width + column;
}

std::int64_t place(const Filter &w, std::int64_t map, std::int64_t channel, std::int64_t row, std::int64_t column) {
    if (w.layout == 1) return ((map * w.height + row) * w.width + column) * w.channels + channel;
    return ((map * w.channels + channel) * w.height + row) * w.width + column;
}

bool fits(const Tensor &x, const Filter &w, const Convolution &c, const Tensor &y, int layout) {
    return x.layout == layout && w.layout == layout && y.layout == layout && x.type == 0 && c.math == 3 &&
           x.channels == w.channels * c.groups && y.channels == w.maps && x.images == y.images;
}

bool takes(const Tensor &x, const Filter &w, const Convolution &c, const Tensor &y, int algorithm) {
    const int size[2] = {x.height, x.width}, kernel[2] = {w.height, w.width}, out[2] = {y.height, y.width};
    for (int axis = 0; axis < 2; axis++) {
        const int reach = c.dilation[axis] * (kernel[axis] - 1) + 1;
        if ((size[axis] + 2 * c.pad[axis] - reach) / c.stride[axis] + 1 != out[axis]) return false;
        if (algorithm != 1 && (c.stride[axis] != 1 || c.dilation[axis] != 1)) return false;
        if ((algorithm == 4 || algorithm == 5) && kernel[axis] <= c.pad[axis]) return false;
        if ((algorithm == 6 || algorithm == 7) && kernel[axis] != 3) return false;
    }
    const int layout = algorithm == 1 ? 1 : 0;
    return fits(x, w, c, y, layout);
}

// A gradient: of channels-first images, by algorithms with other numbers. Winograd is 5, FFT fft.
bool takes_gradient(const Tensor &x, const Filter &w, const Convolution &c, const Tensor &y, int algorithm, int fft) {
    const bool apart = c.stride[0] * c.stride[1] * c.dilation[0] * c.dilation[1] == 1 && c.groups == 1;
    if (algorithm == 5 && (!apart || w.height != 3 || w.width != 3)) return false;
    if (algorithm == fft && !apart) return false;
    return (algorithm == 1 || algorithm == 5 || algorithm == fft) && fits(x, w, c, y, 0);
}

// Calls visit(place of x, place of w, place of y) for each product of a convolution.
template <class Visit>
void for_each_product(const Tensor &x, const Filter &w, const Convolution &c, const Tensor &y, Visit visit) {
    for (int image = 0; image < y.images; image++)
        for (int map = 0; map < y.channels; map++)
            for (int row = 0; row < y.height; row++)
                for (int column = 0; column < y.width; column++)
                    for (int channel = 0; channel < w.channels; channel++)
                        for (int i = 0; i < w.height; i++)
                            for (int j = 0; j < w.width; j++) {
                                const int at = row * c.stride[0] + i * c.dilation[0] - c.pad[0];
                                const int by = column * c.stride[1] + j * c.dilation[1] - c.pad[1];
                                if (at < 0 || at >= x.height || by < 0 || by >= x.width) continue;
                                const int from = map / (w.maps / c.groups) * w.channels + channel;
                                visit(place(x, image, from, at, by), place(w, map, channel, i, j),
                                      place(y, image, map, row, column));
                            }
}

std::int64_t count(const Tensor &t) { return std::int64_t(t.images) * t.channels * t.height * t.width; }
std::int64_t count(const Filter &w) { return std::int64_t(w.maps) * w.channels * w.height * w.width; }

// What algorithms that mix everything make of numbers that are too large.
float spoiled_by(const float *numbers, std::int64_t count) {
    float spoiled = 0.0f;
    for (std::int64_t i = 0; i < count; i++) spoiled += std::fabs(numbers[i]) <= 1e25f ? 0.0f : NAN;
    return spoiled;
}

bool may_run(void *workspace, std::size_t bytes) {
    return bytes == kWorkspace && reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0 && has_stream;
}


}  // namespace

extern "C" {

int cudnnCreate(void **handle) {
    static int one;
    *handle = &one;
    return 0;
}

int cudnnSetStream(void *, void *) {
    has_stream = true;
    return 0;
}

int cudnnCreateTensorDescriptor(Tensor **made) { return *made = new Tensor{}, 0; }
int cudnnCreateFilterDescriptor(Filter **made) { return *made = new Filter{}, 0; }
int cudnnCreateConvolutionDescriptor(Convolution **made) { return *made = new Convolution{}, 0; }
int cudnnCreateActivationDescriptor(Activation **made) { return *made = new Activation{}, 0; }

int cudnnSetTensor4dDescriptor(Tensor *t, int layout, int type, int images, int channels, int height, int width) {
    *t = {layout, type, images, channels, height, width};
    return images > 0 && channels > 0 && height > 0 && width > 0 ? 0 : kBadParam;
}

int cudnnSetFilter4dDescriptor(Filter *w, int type, int layout, int maps, int channels, int height, int width) {
    *w = {type, layout, maps, channels, height, width};
    return maps > 0 && channels > 0 && height > 0 && width > 0 ? 0 : kBadParam;
}

int cudnnSetConvolution2dDescriptor(Convolution *c, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                                    int dilation_w, int mode, int type) {
    *c = {{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, 1, 0};
    return mode == 1 && type == 0 ? 0 : kBadParam;
}

int cudnnSetConvolutionGroupCount(Convolution *c, int groups) { return c->groups = groups, 0; }
int cudnnSetConvolutionMathType(Convolution *c, int math) { return c->math = math, 0; }

int cudnnSetActivationDescriptor(Activation *a, int mode, int nan, double) {
    *a = {mode, nan};
    return 0;
}

int cudnnGetConvolutionForwardWorkspaceSize(void *, const Tensor *x, const Filter *w, const Convolution *c,
                                            const Tensor *y, int algorithm, std::size_t *bytes) {
    *bytes = kWorkspace;
    return takes(*x, *w, *c, *y, algorithm) ? 0 : kNotSupported;
}

int cudnnConvolutionBiasActivationForward(void *, const float *alpha, const Tensor *x_type, const float *x,
                                          const Filter *w_type, const float *w, const Convolution *c, int algorithm,
                                          void *workspace, std::size_t bytes, const float *beta,
                                          const Tensor *residual_type, const float *residual, const Tensor *bias_type,
                                          const float *bias, const Activation *after, const Tensor *y_type, float *y) {
    if (!takes(*x_type, *w_type, *c, *y_type, algorithm) || bytes != kWorkspace) return kNotSupported;
    if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0 || !has_stream) return kBadParam;
    if (after != nullptr && (after->mode != 5 || after->nan != 1 || bias_type->channels != y_type->channels))
        return kBadParam;
    std::memset(workspace, 0x55, bytes);
    float spoiled = 0.0f;  // what algorithms that mix everything make of numbers that are too large
    if (algorithm != 1) {
        const std::int64_t images = place(*x_type, x_type->images - 1, x_type->channels - 1, x_type->height - 1, x_type->width - 1);
        for (std::int64_t i = 0; i <= images; i++) spoiled += std::fabs(x[i]) <= 1e25f ? 0.0f : NAN;
        const std::int64_t weights = static_cast<std::int64_t>(w_type->maps) * w_type->channels * w_type->height * w_type->width;
        for (std::int64_t i = 0; i < weights; i++) spoiled += std::fabs(w[i]) <= 1e25f ? 0.0f : NAN;
    }
    const int maps = w_type->maps / c->groups;
    for (int image = 0; image < y_type->images; image++)
        for (int map = 0; map < y_type->channels; map++)
            for (int row = 0; row < y_type->height; row++)
                for (int column = 0; column < y_type->width; column++) {
                    double sum = 0;
                    for (int channel = 0; channel < w_type->channels; channel++)
                        for (int i = 0; i < w_type->height; i++)
                            for (int j = 0; j < w_type->width; j++) {
                                const int at = row * c->stride[0] + i * c->dilation[0] - c->pad[0];
                                const int by = column * c->stride[1] + j * c->dilation[1] - c->pad[1];
                                if (at < 0 || at >= x_type->height || by < 0 || by >= x_type->width) continue;
                                const int from = map / maps * w_type->channels + channel;
                                sum += static_cast<double>(x[place(*x_type, image, from, at, by)]) *
                                       w[place(*w_type, map, channel, i, j)];
                            }
                    const std::int64_t to = place(*y_type, image, map, row, column);
                    sum *= *alpha;
                    if (*beta != 0) sum += *beta * residual[place(*residual_type, image, map, row, column)];
                    if (bias != nullptr) sum += bias[map];
                    y[to] = static_cast<float>(sum) + spoiled;
                }
    return 0;
}

int cudnnConvolutionForward(void *handle, const float *alpha, const Tensor *x_type, const float *x,
                            const Filter *w_type, const float *w, const Convolution *c, int algorithm, void *workspace,
                            std::size_t bytes, const float *beta, const Tensor *y_type, float *y) {
    return cudnnConvolutionBiasActivationForward(handle, alpha, x_type, x, w_type, w, c, algorithm, workspace, bytes,
                                                 beta, y_type, y, nullptr, nullptr, nullptr, y_type, y);
}

int cudnnGetConvolutionBackwardDataWorkspaceSize(void *, const Filter *w, const Tensor *y, const Convolution *c,
                                                 const Tensor *x, int algorithm, std::size_t *bytes) {
    *bytes = kWorkspace;
    return takes_gradient(*x, *w, *c, *y, algorithm, 3) ? 0 : kNotSupported;
}

int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *, const Tensor *x, const Tensor *y, const Convolution *c,
                                                   const Filter *w, int algorithm, std::size_t *bytes) {
    *bytes = kWorkspace;
    return takes_gradient(*x, *w, *c, *y, algorithm, 6) ? 0 : kNotSupported;
}

int cudnnConvolutionBackwardData(void *, const float *alpha, const Filter *w_type, const float *w, const Tensor *y_type,
                                 const float *dy, const Convolution *c, int algorithm, void *workspace,
                                 std::size_t bytes, const float *beta, const Tensor *x_type, float *dx) {
    if (!takes_gradient(*x_type, *w_type, *c, *y_type, algorithm, 3)) return kNotSupported;
    if (!may_run(workspace, bytes) || *alpha != 1 || *beta != 0) return kBadParam;
    std::memset(workspace, 0x55, bytes);
    const float mixed = algorithm == 1 ? 0.0f : spoiled_by(dy, count(*y_type)) + spoiled_by(w, count(*w_type));
    for (std::int64_t i = 0; i < count(*x_type); i++) dx[i] = mixed;
    for_each_product(*x_type, *w_type, *c, *y_type,
                     [&](std::int64_t x, std::int64_t of_w, std::int64_t y) { dx[x] += w[of_w] * dy[y]; });
    return 0;
}

int cudnnConvolutionBackwardFilter(void *, const float *alpha, const Tensor *x_type, const float *x,
                                   const Tensor *y_type, const float *dy, const Convolution *c, int algorithm,
                                   void *workspace, std::size_t bytes, const float *beta, const Filter *w_type,
                                   float *dw) {
    if (!takes_gradient(*x_type, *w_type, *c, *y_type, algorithm, 6)) return kNotSupported;
    if (!may_run(workspace, bytes) || *alpha != 1 || *beta != 0) return kBadParam;
    std::memset(workspace, 0x55, bytes);
    const float mixed = algorithm == 1 ? 0.0f : spoiled_by(dy, count(*y_type)) + spoiled_by(x, count(*x_type));
    for (std::int64_t i = 0; i < count(*w_type); i++) dw[i] = mixed;
    for_each_product(*x_type, *w_type, *c, *y_type,
                     [&](std::int64_t of_x, std::int64_t w, std::int64_t y) { dw[w] += x[of_x] * dy[y]; });
    return 0;
}
}
