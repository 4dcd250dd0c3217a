#include "launch_list.hpp"

#include <cuda.h>

namespace aicore {

namespace {

using LaunchKernel = decltype(&cuLaunchKernelEx);

// cuLaunchKernelEx, asked of the driver when first needed: linking to libcuda would make the import need a driver.
LaunchKernel driver_launch() {
    static LaunchKernel found = [] {
        void *entry = nullptr;
        cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
        check(cudaGetDriverEntryPointByVersion("cuLaunchKernelEx", &entry, 12000, cudaEnableDefault, &result),
              "looking for cuLaunchKernelEx");
        if (result != cudaDriverEntryPointSuccess || entry == nullptr) {
            throw CudaError(cudaErrorSymbolNotFound, "the driver has no cuLaunchKernelEx");
        }
        return reinterpret_cast<LaunchKernel>(entry);
    }();
    return found;
}

int launch_function(const DriverFunction &f, void **arguments, cudaStream_t stream) {
    CUlaunchAttribute early = {};
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {};
    config.gridDimX = f.grid[0], config.gridDimY = f.grid[1], config.gridDimZ = f.grid[2];
    config.blockDimX = f.block[0], config.blockDimY = f.block[1], config.blockDimZ = f.block[2];
    config.sharedMemBytes = f.shared;
    config.hStream = stream;
    config.attrs = &early;
    config.numAttrs = f.early ? 1 : 0;
    return driver_launch()(&config, static_cast<CUfunction>(f.function), arguments, nullptr);
}

class Event {
  public:
    Event() { check(cudaEventCreate(&event_), "making an event"); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording an event"); }
    float milliseconds_since(const Event &start) const {
        check(cudaEventSynchronize(event_), "waiting for an event");
        float elapsed = 0;
        check(cudaEventElapsedTime(&elapsed, start.event_, event_), "reading events");
        return elapsed;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

void need_count(std::size_t got, std::size_t wanted, const char *what) {
    if (got != wanted) {
        throw std::invalid_argument(std::string("got ") + std::to_string(got) + " " + what + ", expected " +
                                    std::to_string(wanted));
    }
}

}  // namespace

struct LaunchList::Graph {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    Graph() = default;
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    ~Graph() {
        if (executable != nullptr) cudaGraphExecDestroy(executable);
        if (graph != nullptr) cudaGraphDestroy(graph);
    }

    float microseconds(int repeats, cudaStream_t stream) const {
        Event start, end;
        start.record(stream);
        for (int i = 0; i < repeats; i++) check(cudaGraphLaunch(executable, stream), "replaying the graph");
        end.record(stream);
        return 1000 * end.milliseconds_since(start) / static_cast<float>(repeats);
    }
};

LaunchList::LaunchList(int device, void *stream)
    : device_(device), owns_stream_(stream == nullptr), stream_(static_cast<cudaStream_t>(stream)) {
    OnDevice current(device_);
    if (owns_stream_) check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check(cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming), "making an event");
}

LaunchList::~LaunchList() {
    // At the end of a process the driver may be gone already; then there is nothing left to wait for or to give back.
    try {
        OnDevice current(device_);
        wait_for_queued();
    } catch (const CudaError &) {
        queued_ = false;
    }
    graph_.reset();
    bare_.reset();
    if (ended_ != nullptr) cudaEventDestroy(ended_);
    if (owns_stream_ && stream_ != nullptr) cudaStreamDestroy(stream_);
    cudaGetLastError();
}

void LaunchList::add(Launch launch) {
    if (graph_ != nullptr) throw std::logic_error("the graph is captured already");
    if (launch.kernel != nullptr) {
        const aicore_cuda_kernel &kernel = *launch.kernel;
        if (kernel.version != AICORE_CUDA_LAUNCH_VERSION) {
            throw std::invalid_argument(launch.label + ": its kernel speaks version " + std::to_string(kernel.version) +
                                        " of aicore_cuda_launch.h, not " +
                                        std::to_string(AICORE_CUDA_LAUNCH_VERSION) + "; build its plugin anew");
        }
        need_count(launch.params.size(), kernel.params, (std::string("bytes of params for ") + kernel.name).c_str());
        if (launch.pointers.size() < kernel.pointers) {
            need_count(launch.pointers.size(), kernel.pointers, (std::string("pointers for ") + kernel.name).c_str());
        }
    }
    launches_.push_back(std::move(launch));
}

void LaunchList::launch(const Launch &one, cudaStream_t stream) const {
    int result = 0;
    if (one.kernel != nullptr) {
        result = one.kernel->launch(one.pointers.data(), one.pointers.size(), one.params.data(), one.params.size(),
                                    stream);
    } else {
        // Pointers come first among the parameters of a generated kernel, then one struct by value, if there is any.
        std::vector<void *> arguments;
        for (void *const &pointer : one.pointers) arguments.push_back(const_cast<void **>(&pointer));
        if (!one.params.empty()) arguments.push_back(const_cast<unsigned char *>(one.params.data()));
        result = launch_function(one.function, arguments.data(), stream);
    }
    check(static_cast<cudaError_t>(result), one.label.c_str());
}

std::unique_ptr<LaunchList::Graph> LaunchList::captured(cudaStream_t stream) const {
    auto made = std::make_unique<Graph>();
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning to capture");
    try {
        for (const Launch &one : launches_) launch(one, stream);
    } catch (...) {
        cudaGraph_t broken = nullptr;
        cudaStreamEndCapture(stream, &broken);
        if (broken != nullptr) cudaGraphDestroy(broken);
        cudaGetLastError();
        throw;
    }
    check(cudaStreamEndCapture(stream, &made->graph), "ending to capture");
    check(cudaGraphInstantiate(&made->executable, made->graph, 0), "making the graph executable");
    check(cudaGraphUpload(made->executable, stream), "uploading the graph");
    check(cudaStreamSynchronize(stream), "uploading the graph");
    return made;
}

void LaunchList::capture() {
    std::lock_guard<std::mutex> lock(busy_);
    if (graph_ != nullptr) return;
    OnDevice current(device_);
    graph_ = captured(stream_);
}

// All runs use the same memory, so one on another stream must not begin before the latest has ended.
void LaunchList::wait_for_latest(cudaStream_t stream) const {
    if (latest_ != nullptr && latest_ != stream) check(cudaStreamWaitEvent(stream, ended_, 0), "waiting for a run");
}

// The whole device, for a stream of the caller's may not exist any more.
void LaunchList::wait_for_queued() {
    if (!queued_) return;
    queued_ = false;
    check(cudaDeviceSynchronize(), "waiting for the end of runs");
}

void LaunchList::wait(void *stream) {
    std::lock_guard<std::mutex> lock(busy_);
    OnDevice current(device_);
    check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting for the end of runs");
    queued_ = false;
}

void LaunchList::copy_in(const std::vector<void *> &inputs, cudaStream_t stream) const {
    for (const Copy &copy : inputs_) {
        void *source = inputs.at(copy.argument);
        if (source == copy.fixed || copy.bytes == 0) continue;
        check(cudaMemcpyAsync(copy.fixed, source, copy.bytes, cudaMemcpyDefault, stream), "copying an input");
    }
}

void LaunchList::need_open() const {
    if (closed_) throw std::logic_error("the graph was given back");
    if (graph_ == nullptr) throw std::logic_error("the graph is not captured yet");
}

void LaunchList::replay_on(cudaStream_t stream) {
    if (!launches_.empty()) check(cudaGraphLaunch(graph_->executable, stream), "replaying the graph");
}

void LaunchList::count_run() {
    replays_++;
    if (runs_) runs_->value++;
}

void LaunchList::run(const std::vector<void *> &inputs, const std::vector<void *> &outputs, void *stream) {
    std::lock_guard<std::mutex> lock(busy_);
    need_open();
    OnDevice current(device_);
    const cudaStream_t where = stream != nullptr ? static_cast<cudaStream_t>(stream) : stream_;
    wait_for_latest(where);
    queued_ = true;
    copy_in(inputs, where);
    replay_on(where);
    for (const Copy &copy : outputs_) {
        void *target = outputs.at(copy.argument);
        if (target == copy.fixed || copy.bytes == 0) continue;
        check(cudaMemcpyAsync(target, copy.fixed, copy.bytes, cudaMemcpyDefault, where), "copying an output");
    }
    if (stream == nullptr) {
        check(cudaStreamSynchronize(where), "running the graph");
        latest_ = nullptr;
        queued_ = false;
    } else {
        check(cudaEventRecord(ended_, where), "recording the end of a run");
        latest_ = where;
    }
    count_run();
}

Outcome LaunchList::replay(void *stream) {
    std::lock_guard<std::mutex> lock(busy_);
    if (closed_) return Outcome::closed;
    need_open();
    if (faults_.any()) return Outcome::faulty;
    OnDevice current(device_);
    queued_ = true;
    replay_on(static_cast<cudaStream_t>(stream));
    count_run();
    return Outcome::done;
}

std::vector<std::pair<std::size_t, std::int64_t>> LaunchList::take_faults() {
    std::lock_guard<std::mutex> lock(busy_);
    return faults_.take();
}

void LaunchList::close() {
    std::vector<std::shared_ptr<void>> kept;  // given back after the lock: what owns memory may wait for Python's lock
    std::lock_guard<std::mutex> lock(busy_);
    if (closed_) return;
    OnDevice current(device_);
    try {
        wait_for_queued();
    } catch (const CudaError &error) {
        if (!error.sticky()) throw;  // on a device that is lost nothing runs
    }
    closed_ = true;
    graph_.reset();
    bare_.reset();
    faults_.release();
    kept.swap(kept_);
}

void LaunchList::place(const std::vector<void *> &inputs) {
    std::lock_guard<std::mutex> lock(busy_);
    need_open();
    OnDevice current(device_);
    wait_for_latest(stream_);
    copy_in(inputs, stream_);
    check(cudaStreamSynchronize(stream_), "copying inputs");
}

float LaunchList::time_launch(std::size_t index) {
    std::lock_guard<std::mutex> lock(busy_);
    need_open();
    OnDevice current(device_);
    Event start, end;
    start.record(stream_);
    launch(launches_.at(index), stream_);
    end.record(stream_);
    return 1000 * end.milliseconds_since(start);
}

float LaunchList::time_replay(int repeats) {
    std::lock_guard<std::mutex> lock(busy_);
    need_open();
    OnDevice current(device_);
    return graph_->microseconds(repeats, stream_);
}

float LaunchList::time_bare(int repeats) {
    std::lock_guard<std::mutex> lock(busy_);
    need_open();
    OnDevice current(device_);
    if (!bare_) bare_ = captured(stream_);
    return bare_->microseconds(repeats, stream_);
}

}  // namespace aicore
