#include "launch_list.hpp"

namespace aicore {

namespace {

using LaunchKernel = int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                             void **, void **);

// cuLaunchKernel, asked of the driver when first needed: linking to libcuda would make the import need a driver.
LaunchKernel driver_launch() {
    static LaunchKernel found = [] {
        void *entry = nullptr;
        cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
        check(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &entry, 12000, cudaEnableDefault, &result),
              "looking for cuLaunchKernel");
        if (result != cudaDriverEntryPointSuccess || entry == nullptr) {
            throw CudaError(cudaErrorSymbolNotFound, "the driver has no cuLaunchKernel");
        }
        return reinterpret_cast<LaunchKernel>(entry);
    }();
    return found;
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

CudaError::CudaError(cudaError_t error, const std::string &where)
    : std::runtime_error(where + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error)), code(error) {}

void check(cudaError_t code, const char *where) {
    if (code != cudaSuccess) {
        cudaGetLastError();  // or the next call, of whomever, reports it again
        throw CudaError(code, where);
    }
}

OnDevice::OnDevice(int device) {
    check(cudaGetDevice(&before_), "asking for the current device");
    check(cudaSetDevice(device), "making a device current");
}

OnDevice::~OnDevice() { cudaSetDevice(before_); }

LaunchList::LaunchList(int device) : device_(device) {
    OnDevice current(device_);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check(cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming), "making an event");
}

LaunchList::~LaunchList() {
    // At the end of a process the driver may be gone already; then there is nothing left to give back.
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    if (ended_ != nullptr) cudaEventDestroy(ended_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    cudaGetLastError();
}

void LaunchList::add(Launch launch) {
    if (executable_ != nullptr) throw std::logic_error("the graph is captured already");
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
        const DriverFunction &f = one.function;
        result = driver_launch()(f.function, f.grid[0], f.grid[1], f.grid[2], f.block[0], f.block[1], f.block[2],
                                 f.shared, stream, arguments.data(), nullptr);
    }
    check(static_cast<cudaError_t>(result), one.label.c_str());
}

void LaunchList::capture() {
    std::lock_guard<std::mutex> lock(busy_);
    if (executable_ != nullptr) return;
    OnDevice current(device_);
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning to capture");
    try {
        for (const Launch &one : launches_) launch(one, stream_);
    } catch (...) {
        cudaGraph_t broken = nullptr;
        cudaStreamEndCapture(stream_, &broken);
        if (broken != nullptr) cudaGraphDestroy(broken);
        cudaGetLastError();
        throw;
    }
    check(cudaStreamEndCapture(stream_, &graph_), "ending to capture");
    check(cudaGraphInstantiate(&executable_, graph_, 0), "making the graph executable");
    check(cudaGraphUpload(executable_, stream_), "uploading the graph");
    check(cudaStreamSynchronize(stream_), "uploading the graph");
}

// All runs use the same memory, so one on another stream must not begin before the latest has ended.
void LaunchList::wait_for_latest(cudaStream_t stream) const {
    if (latest_ != nullptr && latest_ != stream) check(cudaStreamWaitEvent(stream, ended_, 0), "waiting for a run");
}

void LaunchList::copy_in(const std::vector<void *> &inputs, cudaStream_t stream) const {
    for (const Copy &copy : inputs_) {
        void *source = inputs.at(copy.argument);
        if (source == copy.fixed || copy.bytes == 0) continue;
        check(cudaMemcpyAsync(copy.fixed, source, copy.bytes, cudaMemcpyDeviceToDevice, stream), "copying an input");
    }
}

void LaunchList::run(const std::vector<void *> &inputs, const std::vector<void *> &outputs, void *stream) {
    std::lock_guard<std::mutex> lock(busy_);
    if (executable_ == nullptr) throw std::logic_error("the graph is not captured yet");
    OnDevice current(device_);
    const cudaStream_t where = stream != nullptr ? static_cast<cudaStream_t>(stream) : stream_;
    wait_for_latest(where);
    copy_in(inputs, where);
    if (!launches_.empty()) check(cudaGraphLaunch(executable_, where), "replaying the graph");
    for (const Copy &copy : outputs_) {
        void *target = outputs.at(copy.argument);
        if (target == copy.fixed || copy.bytes == 0) continue;
        check(cudaMemcpyAsync(target, copy.fixed, copy.bytes, cudaMemcpyDeviceToDevice, where), "copying an output");
    }
    if (stream == nullptr) {
        check(cudaStreamSynchronize(where), "running the graph");
        latest_ = nullptr;
    } else {
        check(cudaEventRecord(ended_, where), "recording the end of a run");
        latest_ = where;
    }
}

std::vector<float> LaunchList::time_launches(const std::vector<void *> &inputs) {
    std::lock_guard<std::mutex> lock(busy_);
    OnDevice current(device_);
    wait_for_latest(stream_);
    copy_in(inputs, stream_);
    std::vector<float> found;
    Event start, end;
    for (const Launch &one : launches_) {
        check(cudaStreamSynchronize(stream_), "waiting for the launch before");
        start.record(stream_);
        launch(one, stream_);
        end.record(stream_);
        found.push_back(1000 * end.milliseconds_since(start));
    }
    return found;
}

float LaunchList::time_replay(int repeats) {
    std::lock_guard<std::mutex> lock(busy_);
    if (executable_ == nullptr) throw std::logic_error("the graph is not captured yet");
    OnDevice current(device_);
    Event start, end;
    start.record(stream_);
    for (int i = 0; i < repeats; i++) check(cudaGraphLaunch(executable_, stream_), "replaying the graph");
    end.record(stream_);
    return 1000 * end.milliseconds_since(start) / static_cast<float>(repeats);
}

}  // namespace aicore
