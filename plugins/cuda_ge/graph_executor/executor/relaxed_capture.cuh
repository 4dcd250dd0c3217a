// For calls of libraries while a graph is captured.
#pragma once

#include <cuda_runtime.h>

namespace aicore {

// A library may load its kernels when it is first called, which a capture of this thread would not allow.
class RelaxedCapture {
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;

  public:
    const cudaError_t status = cudaThreadExchangeStreamCaptureMode(&mode_);
    ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
};

}  // namespace aicore
