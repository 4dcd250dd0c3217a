// Convolutions by cuDNN, where its library is present: neither linked nor included.
//
// Python loads the library and describes the convolution to it while a step is bound (aicore_cuda_ge/kernels/_dnn.py),
// and hands over functions and objects as numbers. What is left to do while a graph is captured is one call.
// Some algorithms, FFT among them, take images with their channels first only: a kernel here turns images over, before
// them without and behind them with bias, residual and activation. The same algorithms mix what lies far apart, so that
// one infinity would make many NaN: where a number is not finite, or so large that sums of it may not be, a flag is set,
// and the last launch computes everything anew by the definition. Otherwise it ends at once.
#include "../ge/kernel.cuh"

#include <mutex>

#include "../executor/relaxed_capture.cuh"
#include "direct.cuh"

namespace {

using namespace aicore;

// Functions of version 9; 0 says success. Descriptors, handles and numbers on the device are all addresses.
using SetStream = int (*)(void *handle, cudaStream_t stream);
using Convolve = int (*)(void *handle, const void *alpha, void *x_type, const void *x, void *w_type, const void *w,
                         void *convolution, int algorithm, void *workspace, std::size_t workspace_bytes,
                         const void *beta, void *y_type, void *y);
using ConvolveAndAdd = int (*)(void *handle, const void *alpha, void *x_type, const void *x, void *w_type,
                               const void *w, void *convolution, int algorithm, void *workspace,
                               std::size_t workspace_bytes, const void *beta, void *residual_type,
                               const void *residual, void *bias_type, const void *bias, void *activation,
                               void *y_type, void *y);
constexpr std::uintptr_t kWorkspaceAlignment = 256;

struct DnnConvolution {
    std::int64_t set_stream, convolve, convolve_and_add;                      // functions
    std::int64_t handle, x_type, w_type, y_type, bias_type, convolution, activation;  // objects
    std::int64_t algorithm, workspace_bytes;
    // Which pointers, and bytes behind them; below 0: there is none. bias is there wherever residual is.
    std::int64_t x_at, x_byte, w_at, w_byte, y_at, y_byte, bias_at, residual_at, workspace_at, workspace_byte;
};

// Programs may be captured by several threads, and the stream is part of the handle.
std::mutex &handles() {
    static std::mutex mutex;
    return mutex;
}

int conv_dnn(void *const *pointers, const DnnConvolution &p, cudaStream_t stream) {
    const auto object = [](std::int64_t address) { return reinterpret_cast<void *>(address); };
    const auto place = [&](std::int64_t at, std::int64_t byte) -> void * {
        return at < 0 ? nullptr : static_cast<char *>(pointers[at]) + byte;
    };
    const std::lock_guard<std::mutex> lock(handles());
    const RelaxedCapture relaxed;
    if (relaxed.status != cudaSuccess) return relaxed.status;
    const auto set_stream = reinterpret_cast<SetStream>(p.set_stream);
    if (set_stream(object(p.handle), stream) != 0) return cudaErrorInvalidValue;
    void *x = place(p.x_at, p.x_byte), *w = place(p.w_at, p.w_byte), *y = place(p.y_at, p.y_byte);
    const auto room = reinterpret_cast<std::uintptr_t>(place(p.workspace_at, p.workspace_byte));
    void *workspace = object(static_cast<std::int64_t>((room + kWorkspaceAlignment - 1) / kWorkspaceAlignment *
                                                       kWorkspaceAlignment));
    const auto bytes = static_cast<std::size_t>(p.workspace_bytes);
    const int algorithm = static_cast<int>(p.algorithm);
    const float one = 1.0f, none = 0.0f;
    int status;
    if (p.bias_at < 0) {
        status = reinterpret_cast<Convolve>(p.convolve)(object(p.handle), &one, object(p.x_type), x, object(p.w_type),
                                                        w, object(p.convolution), algorithm, workspace, bytes, &none,
                                                        object(p.y_type), y);
    } else {
        const bool adds = p.residual_at >= 0;
        const void *residual = adds ? place(p.residual_at, 0) : y;
        status = reinterpret_cast<ConvolveAndAdd>(p.convolve_and_add)(
            object(p.handle), &one, object(p.x_type), x, object(p.w_type), w, object(p.convolution), algorithm,
            workspace, bytes, adds ? &one : &none, object(p.y_type), residual, object(p.bias_type),
            place(p.bias_at, 0), object(p.activation), object(p.y_type), y);
    }
    return status == 0 ? cudaSuccess : cudaErrorUnknown;
}
AICORE_KERNEL(conv_dnn, DnnConvolution, 4, conv_dnn);

// y[image][column][row] = activation(x[image][row][column] + bias[row] + residual[image][column][row])
struct TurnParams {
    std::int64_t images, rows, columns;
    std::int64_t x_at, x_byte, y_at, y_byte, bias_at, residual_at;
    std::int64_t flag_at;  // pointer to an int; below 0: nobody asks
    Activation activation;
};

constexpr int kSide = 32, kTall = 8, kThreads = 256;
constexpr float kLargest = 1e25f;  // sums of transformed numbers up to this stay finite, unless weights are as large
constexpr std::int64_t kMostBlocks = 65535;  // along the second and third axis of a grid

__global__ void __launch_bounds__(kSide *kTall) turn_images(const float *x, const float *bias, const float *residual,
                                                            float *y, int *flag, TurnParams p) {
    __shared__ float square[kSide][kSide + 1];
    wait_for_previous();
    let_next_begin();
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSide;
    for (std::int64_t image = blockIdx.z; image < p.images; image += gridDim.z) {
        const std::int64_t at = image * p.rows * p.columns;
        for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kSide; row < p.rows;
             row += static_cast<std::int64_t>(gridDim.y) * kSide) {
            for (int i = threadIdx.y; i < kSide; i += kTall) {
                const std::int64_t r = row + i, c = column + threadIdx.x;
                if (r >= p.rows || c >= p.columns) continue;
                const float value = x[at + r * p.columns + c];
                if (flag != nullptr && !(fabsf(value) <= kLargest)) *flag = 1;
                square[i][threadIdx.x] = value;
            }
            __syncthreads();
            for (int i = threadIdx.y; i < kSide; i += kTall) {
                const std::int64_t c = column + i, r = row + threadIdx.x, to = at + c * p.rows + r;
                if (r >= p.rows || c >= p.columns) continue;
                float value = square[threadIdx.x][i];
                if (bias != nullptr) value += bias[r];
                if (residual != nullptr) value += residual[to];
                y[to] = activate(p.activation, value);
            }
            __syncthreads();
        }
    }
}

int conv_turn(void *const *pointers, const TurnParams &p, cudaStream_t stream) {
    if (p.images * p.rows * p.columns == 0) return cudaSuccess;
    const auto place = [&](std::int64_t at, std::int64_t byte) {
        return at < 0 ? nullptr : reinterpret_cast<float *>(static_cast<char *>(pointers[at]) + byte);
    };
    const auto most = [](std::int64_t blocks) { return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks); };
    const dim3 grid(blocks_for(p.columns, kSide), most(blocks_for(p.rows, kSide)), most(p.images));
    const float *x = place(p.x_at, p.x_byte), *bias = place(p.bias_at, 0), *residual = place(p.residual_at, 0);
    return launch_early(turn_images, grid, dim3(kSide, kTall), 0, stream, x, bias, residual, place(p.y_at, p.y_byte),
                        reinterpret_cast<int *>(place(p.flag_at, 0)), p);
}
AICORE_KERNEL(conv_turn, TurnParams, 3, conv_turn);

// Sets the flag where weights are out of bounds.
struct LookParams {
    std::int64_t count, x_at, flag_at;
};

__global__ void __launch_bounds__(kThreads) look(const float *x, int *flag, std::int64_t count) {
    wait_for_previous();
    let_next_begin();
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i < count && !(fabsf(x[i]) <= kLargest)) *flag = 1;
}

int conv_look(void *const *pointers, const LookParams &p, cudaStream_t stream) {
    if (p.count == 0) return cudaSuccess;
    return launch_early(look, blocks_for(p.count, kThreads), kThreads, 0, stream,
                        static_cast<const float *>(pointers[p.x_at]), static_cast<int *>(pointers[p.flag_at]), p.count);
}
AICORE_KERNEL(conv_look, LookParams, 2, conv_look);

struct RedoParams {
    cnn::ConvParams conv;
    std::int64_t flag_at;
};

template <bool Transposed>
__global__ void __launch_bounds__(kThreads) redo(const cnn::ConvParams p, const cnn::ConvPointers<float> t,
                                                 const int *flag) {
    wait_for_previous();
    let_next_begin();
    if (*flag == 0) return;
    const std::int64_t count = cnn::outputs_of(p), step = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
        if constexpr (Transposed) {
            cnn::transposed_element<float, float>(p, t, i);
        } else {
            cnn::conv_element<float, float>(p, t, i);
        }
    }
}

template <bool Transposed>
int launch_redo(void *const *pointers, const RedoParams &p, cudaStream_t stream) {
    const std::int64_t count = cnn::outputs_of(p.conv);
    if (count == 0) return cudaSuccess;
    const unsigned blocks = blocks_for(count, kThreads), most = 1024;
    return launch_early(redo<Transposed>, blocks < most ? blocks : most, kThreads, 0, stream, p.conv,
                        cnn::conv_pointers<float>(pointers, p.conv), static_cast<const int *>(pointers[p.flag_at]));
}

int conv_redo(void *const *pointers, const RedoParams &p, cudaStream_t stream) {
    return launch_redo<false>(pointers, p, stream);
}
int conv_transpose_redo(void *const *pointers, const RedoParams &p, cudaStream_t stream) {
    return launch_redo<true>(pointers, p, stream);
}
AICORE_KERNEL(conv_redo, RedoParams, 3, conv_redo);
AICORE_KERNEL(conv_transpose_redo, RedoParams, 3, conv_transpose_redo);

}  // namespace
