// A list of launches on one device, captured once as a CUDA Graph and replayed.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../include/aicore_cuda_launch.h"
#include "errors.hpp"
#include "faults.hpp"

namespace aicore {

// A function that the driver loaded, such as one compiled at run time.
struct DriverFunction {
    void *function = nullptr;  // CUfunction
    unsigned grid[3] = {1, 1, 1};
    unsigned block[3] = {1, 1, 1};
    unsigned shared = 0;
    bool early = false;  // it may begin while the launch before it ends, for it waits before it touches memory
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

// Runs of all lists that share it.
struct Counter {
    std::atomic<std::uint64_t> value{0};
};

enum class Outcome { done = 0, closed = 1, faulty = 2 };

// Thread-safe: runs of one list queue up, since they share one memory.
class LaunchList {
  public:
    // stream: where it captures and runs unless told otherwise; null for one of its own.
    LaunchList(int device, void *stream);
    ~LaunchList();
    LaunchList(const LaunchList &) = delete;
    LaunchList &operator=(const LaunchList &) = delete;

    void add(Launch launch);
    void add_input(Copy copy) { inputs_.push_back(copy); }
    void add_output(Copy copy) { outputs_.push_back(copy); }

    // A 64-bit number that kernels set when they find something wrong; see faults.hpp.
    std::int64_t *add_fault() { return faults_.add(device_); }

    // What must stay until no launch of this list can still be running.
    void keep(std::shared_ptr<void> owner) { kept_.push_back(std::move(owner)); }

    // Counts the runs of this list there, too.
    void count_in(std::shared_ptr<Counter> runs) { runs_ = std::move(runs); }

    // Makes the graph. Nothing can be added afterwards.
    void capture();

    // Copies inputs into place, replays, copies outputs out; waits for the end unless a stream of the caller is given.
    // The addresses may be of the device or of the host.
    void run(const std::vector<void *> &inputs, const std::vector<void *> &outputs, void *stream);

    // Queues one replay on the stream and returns. Callers always give the same stream, which orders the replays.
    // `faulty`: an earlier one was, and nothing was queued.
    Outcome replay(void *stream);

    // Waits for all that was queued on the stream, which must be the one of all replays.
    void wait(void *stream);

    // What kernels found wrong since the last call, by number of the fault; only of runs that were waited for.
    std::vector<std::pair<std::size_t, std::int64_t>> take_faults();

    // Waits, and gives the graph and what was kept back; `replay` says so from then on.
    void close();

    // Copies inputs into place and waits.
    void place(const std::vector<void *> &inputs);

    // Microseconds of one launch alone, by events, on the numbers that are in place.
    float time_launch(std::size_t index);

    // Microseconds of one replay, the mean of `repeats` in a row on the device.
    float time_replay(int repeats);

    // The same of another graph of these launches, made and replayed with nothing around it.
    float time_bare(int repeats);

    std::size_t size() const { return launches_.size(); }
    std::uint64_t replays() const { return replays_; }
    std::uintptr_t stream() const { return reinterpret_cast<std::uintptr_t>(stream_); }

  private:
    struct Graph;

    void launch(const Launch &one, cudaStream_t stream) const;
    std::unique_ptr<Graph> captured(cudaStream_t stream) const;
    void replay_on(cudaStream_t stream);
    void count_run();
    void need_open() const;
    void wait_for_latest(cudaStream_t stream) const;
    void wait_for_queued();
    void copy_in(const std::vector<void *> &inputs, cudaStream_t stream) const;

    int device_;
    bool owns_stream_;
    cudaStream_t stream_ = nullptr;
    std::unique_ptr<Graph> graph_, bare_;
    std::vector<Launch> launches_;
    std::vector<Copy> inputs_, outputs_;
    cudaEvent_t ended_ = nullptr;  // of the latest `run` on a stream of the caller's, which nobody waited for
    cudaStream_t latest_ = nullptr;
    bool queued_ = false;  // something may still be running
    bool closed_ = false;
    std::uint64_t replays_ = 0;
    std::shared_ptr<Counter> runs_;
    Faults faults_;
    std::vector<std::shared_ptr<void>> kept_;
    std::mutex busy_;
};

}  // namespace aicore
