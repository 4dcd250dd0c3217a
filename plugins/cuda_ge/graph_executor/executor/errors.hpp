// What CUDA reports, as exceptions; and the current device for a block.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace aicore {

class CudaError : public std::runtime_error {
  public:
    CudaError(cudaError_t code, const std::string &where);

    // Memory is what it lacked, which a caller may cure.
    bool out_of_memory() const { return code == cudaErrorMemoryAllocation; }

    // The process has lost the device: every later call of CUDA in it fails.
    bool sticky() const;

    const cudaError_t code;
};

void check(cudaError_t code, const char *where);

// Makes a device current for a block, and then the one that was.
class OnDevice {
  public:
    explicit OnDevice(int device);
    ~OnDevice();
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;

  private:
    int before_ = 0;
    bool changed_ = false;
};

}  // namespace aicore
