// A list of launches on one device, captured once as a CUDA Graph and replayed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "../include/aicore_cuda_launch.h"

namespace aicore {

// What went wrong on the device; `out_of_memory` so that Python can raise what a caller may cure.
class CudaError : public std::runtime_error {
  public:
    CudaError(cudaError_t code, const std::string &where);
    const cudaError_t code;
};

void check(cudaError_t code, const char *where);

// A function that the driver loaded, such as one compiled at run time.
struct DriverFunction {
    void *function = nullptr;  // CUfunction
    unsigned grid[3] = {1, 1, 1};
    unsigned block[3] = {1, 1, 1};
    unsigned shared = 0;
};

struct Launch {
    const aicore_cuda_kernel *kernel = nullptr;  // or else:
    DriverFunction function;
    std::vector<void *> pointers;
    std::vector<unsigned char> params;
    std::string label;
};

struct Copy {
    std::size_t argument;  // index among the pointers that the caller passes
    void *fixed;           // the address that the graph uses
    std::size_t bytes;
};

// Thread-safe: runs of one list queue up, since they share one memory.
class LaunchList {
  public:
    explicit LaunchList(int device);
    ~LaunchList();
    LaunchList(const LaunchList &) = delete;
    LaunchList &operator=(const LaunchList &) = delete;

    void add(Launch launch);
    void add_input(Copy copy) { inputs_.push_back(copy); }
    void add_output(Copy copy) { outputs_.push_back(copy); }

    // Makes the graph. Nothing can be added afterwards.
    void capture();

    // Copies inputs into place, replays, copies outputs out; waits for the end unless a stream of the caller is given.
    void run(const std::vector<void *> &inputs, const std::vector<void *> &outputs, void *stream);

    // Microseconds of each launch alone, by events, in order; inputs must be in place.
    std::vector<float> time_launches(const std::vector<void *> &inputs);

    // Microseconds of one replay, the mean of `repeats` in a row on the device.
    float time_replay(int repeats);

    std::size_t size() const { return launches_.size(); }
    std::uintptr_t stream() const { return reinterpret_cast<std::uintptr_t>(stream_); }

  private:
    void launch(const Launch &one, cudaStream_t stream) const;
    void wait_for_latest(cudaStream_t stream) const;
    void copy_in(const std::vector<void *> &inputs, cudaStream_t stream) const;

    int device_;
    cudaStream_t stream_ = nullptr;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
    std::vector<Launch> launches_;
    std::vector<Copy> inputs_, outputs_;
    cudaEvent_t ended_ = nullptr;  // of the latest run on a stream of the caller's, which nobody waited for
    cudaStream_t latest_ = nullptr;
    std::mutex busy_;
};

// Makes a device current for a block.
class OnDevice {
  public:
    explicit OnDevice(int device);
    ~OnDevice();
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;

  private:
    int before_ = 0;
};

}  // namespace aicore
