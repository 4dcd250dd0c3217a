// The Python side of graph_executor: lists of launches, and the compiled kernels as capsules.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>

#include "dlpack.hpp"
#include "executor/launch_list.hpp"
#include "op_structs.cuh"

namespace py = pybind11;
using namespace aicore;

namespace {

using Address = std::uintptr_t;

std::vector<void *> as_pointers(const std::vector<Address> &addresses) {
    std::vector<void *> pointers;
    pointers.reserve(addresses.size());
    for (Address address : addresses) pointers.push_back(reinterpret_cast<void *>(address));
    return pointers;
}

// Of the first bytes of NumPy's arrays. Asked of each array in Python, that takes longer than to launch a graph.
std::vector<Address> addresses_of(const std::vector<py::array> &arrays) {
    std::vector<Address> addresses;
    addresses.reserve(arrays.size());
    for (const py::array &array : arrays) addresses.push_back(reinterpret_cast<Address>(array.data()));
    return addresses;
}

std::vector<unsigned char> as_bytes(const py::bytes &bytes) {
    const std::string_view view = bytes;
    return {view.begin(), view.end()};
}

const aicore_cuda_kernel *kernel_of(const py::capsule &capsule) {
    if (capsule.name() == nullptr || std::strcmp(capsule.name(), AICORE_CUDA_KERNEL_CAPSULE) != 0) {
        throw py::type_error("not a capsule named " AICORE_CUDA_KERNEL_CAPSULE);
    }
    return static_cast<const aicore_cuda_kernel *>(PyCapsule_GetPointer(capsule.ptr(), AICORE_CUDA_KERNEL_CAPSULE));
}

void add_kernel(LaunchList &list, const py::capsule &kernel, const std::vector<Address> &pointers,
                const py::bytes &params, const std::string &label) {
    Launch launch;
    launch.kernel = kernel_of(kernel);
    launch.pointers = as_pointers(pointers);
    launch.params = as_bytes(params);
    launch.label = label;
    list.add(std::move(launch));
}

void add_function(LaunchList &list, Address function, const std::array<unsigned, 3> &grid,
                  const std::array<unsigned, 3> &block, unsigned shared, const std::vector<Address> &pointers,
                  const py::bytes &params, const std::string &label, bool early) {
    Launch launch;
    launch.function.function = reinterpret_cast<void *>(function);
    std::copy(grid.begin(), grid.end(), launch.function.grid);
    std::copy(block.begin(), block.end(), launch.function.block);
    launch.function.shared = shared;
    launch.function.early = early;
    launch.pointers = as_pointers(pointers);
    launch.params = as_bytes(params);
    launch.label = label;
    list.add(std::move(launch));
}

void run(LaunchList &list, const std::vector<Address> &inputs, const std::vector<Address> &outputs, Address stream) {
    const std::vector<void *> from = as_pointers(inputs), to = as_pointers(outputs);
    py::gil_scoped_release released;
    list.run(from, to, reinterpret_cast<void *>(stream));
}

// Python objects that own what the launches name; their end may come on a thread that does not hold Python's lock.
void keep(LaunchList &list, py::object owner) {
    list.keep(std::shared_ptr<void>(new py::object(std::move(owner)), [](void *kept) {
        if (!Py_IsInitialized()) return;
        py::gil_scoped_acquire locked;
        delete static_cast<py::object *>(kept);
    }));
}

int replay(LaunchList &list, Address stream) {
    py::gil_scoped_release released;
    return static_cast<int>(list.replay(reinterpret_cast<void *>(stream)));
}

// The device whose memory this is; -1 for memory that no device has.
int device_of(Address address) {
    cudaPointerAttributes attributes = {};
    check(cudaPointerGetAttributes(&attributes, reinterpret_cast<void *>(address)), "asking whose memory this is");
    const bool on_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
    return on_device ? attributes.device : -1;
}

// What is queued on `later` from now on begins after what is queued on `earlier` up to now.
void order(int device, Address earlier, Address later) {
    if (earlier == later) return;
    OnDevice current(device);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    const cudaError_t recorded = cudaEventRecord(event, reinterpret_cast<cudaStream_t>(earlier));
    const cudaError_t waited =
        recorded != cudaSuccess ? recorded : cudaStreamWaitEvent(reinterpret_cast<cudaStream_t>(later), event, 0);
    cudaEventDestroy(event);  // once it was reached
    check(waited, "ordering two streams");
}

void synchronize_stream(int device, Address stream) {
    py::gil_scoped_release released;
    OnDevice current(device);
    check(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(stream)), "waiting for a stream");
}

void duplicate_on(Address to, Address from, std::size_t bytes, int device, Address stream) {
    OnDevice current(device);
    check(cudaMemcpyAsync(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes,
                          cudaMemcpyDeviceToDevice, reinterpret_cast<cudaStream_t>(stream)),
          "copying on the device");
}

py::dict kernels() {
    py::dict found;
    for (std::size_t i = 0; i < kernel_count(); i++) {
        const aicore_cuda_kernel *kernel = kernel_at(i);
        found[kernel->name] = py::capsule(kernel, AICORE_CUDA_KERNEL_CAPSULE);
    }
    return found;
}

std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// (how many devices there are, why there are none): never raises, so that a machine without a driver can explain itself.
py::tuple device_count() {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess) return py::make_tuple(count, "");
    cudaGetLastError();
    std::string reason = std::string(cudaGetErrorName(code)) + ": " + cudaGetErrorString(code);
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaGetLastError();
    if (code == cudaErrorInsufficientDriver) {  // which CUDA reports for a driver that is not there, too
        reason = driver == 0 ? "no NVIDIA driver: libcuda.so.1 is not found"
                             : reason + " (it knows CUDA " + version_text(driver) + ", this build is of CUDA " +
                                   version_text(runtime) + ")";
    }
    return py::make_tuple(0, reason);
}

py::dict device_facts(int device) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "asking for a device's properties");
    py::dict facts;
    facts["name"] = std::string(properties.name);
    facts["major"] = properties.major;
    facts["minor"] = properties.minor;
    facts["multiprocessors"] = properties.multiProcessorCount;
    facts["shared_per_block"] = properties.sharedMemPerBlockOptin;
    facts["memory"] = properties.totalGlobalMem;
    facts["l2"] = properties.l2CacheSize;
    return facts;
}

py::tuple versions() {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaGetLastError();
    return py::make_tuple(driver, runtime);
}

void copy(Address to, Address from, std::size_t bytes, int device, const char *what, cudaMemcpyKind kind) {
    py::gil_scoped_release released;
    OnDevice current(device);
    check(cudaMemcpyAsync(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes, kind,
                          cudaStreamPerThread),
          what);
    check(cudaStreamSynchronize(cudaStreamPerThread), what);
}

}  // namespace

PYBIND11_MODULE(_graph_executor, module) {
    module.doc() = "Launch lists captured as CUDA Graphs, and the kernels of aicore's CUDA backend.";

    static py::object cuda_error = py::reinterpret_borrow<py::object>(
        py::exception<CudaError>(module, "CudaError", PyExc_RuntimeError));
    py::register_exception_translator([](std::exception_ptr raised) {
        try {
            if (raised) std::rethrow_exception(raised);
        } catch (const CudaError &error) {
            py::object instance = cuda_error(error.what());
            instance.attr("code") = static_cast<int>(error.code);
            instance.attr("out_of_memory") = error.out_of_memory();
            instance.attr("sticky") = error.sticky();
            PyErr_SetObject(cuda_error.ptr(), instance.ptr());
        }
    });

    py::class_<Counter, std::shared_ptr<Counter>>(module, "Counter")
        .def(py::init<>())
        .def_property_readonly("value", [](const Counter &counter) { return counter.value.load(); });

    py::class_<LaunchList>(module, "LaunchList")
        .def(py::init([](int device, Address stream) {
                 return std::make_unique<LaunchList>(device, reinterpret_cast<void *>(stream));
             }),
             py::arg("device"), py::arg("stream") = 0)
        .def("count_in", &LaunchList::count_in, py::arg("runs"))
        .def("add_kernel", &add_kernel, py::arg("kernel"), py::arg("pointers"), py::arg("params"), py::arg("label"))
        .def("add_function", &add_function, py::arg("function"), py::arg("grid"), py::arg("block"), py::arg("shared"),
             py::arg("pointers"), py::arg("params"), py::arg("label"), py::arg("early") = false)
        .def("add_fault", [](LaunchList &list) { return reinterpret_cast<Address>(list.add_fault()); })
        .def("take_faults", &LaunchList::take_faults)
        .def("keep", &keep, py::arg("owner"))
        .def("add_input",
             [](LaunchList &list, std::size_t argument, Address fixed, std::size_t bytes) {
                 list.add_input({argument, reinterpret_cast<void *>(fixed), bytes});
             })
        .def("add_output",
             [](LaunchList &list, std::size_t argument, Address fixed, std::size_t bytes) {
                 list.add_output({argument, reinterpret_cast<void *>(fixed), bytes});
             })
        .def("capture", &LaunchList::capture, py::call_guard<py::gil_scoped_release>())
        .def("run", &run, py::arg("inputs"), py::arg("outputs"), py::arg("stream") = 0)
        .def("replay", &replay, py::arg("stream"))
        .def("wait",
             [](LaunchList &list, Address stream) {
                 py::gil_scoped_release released;
                 list.wait(reinterpret_cast<void *>(stream));
             })
        .def("close", &LaunchList::close, py::call_guard<py::gil_scoped_release>())
        .def("place",
             [](LaunchList &list, const std::vector<Address> &inputs) {
                 const std::vector<void *> from = as_pointers(inputs);
                 py::gil_scoped_release released;
                 list.place(from);
             })
        .def("time_launch", &LaunchList::time_launch, py::arg("index"), py::call_guard<py::gil_scoped_release>())
        .def("time_replay", &LaunchList::time_replay, py::arg("repeats"), py::call_guard<py::gil_scoped_release>())
        .def("time_bare", &LaunchList::time_bare, py::arg("repeats"), py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("replays", &LaunchList::replays)
        .def_property_readonly("stream", &LaunchList::stream)
        .def("__len__", &LaunchList::size);

    module.def("kernels", &kernels, "Compiled kernels by name, as capsules.");
    module.def("device_count", &device_count, "(number of devices, why there are none)");
    module.def("device_facts", &device_facts, py::arg("device"));
    module.def("versions", &versions, "(driver, runtime) as 1000 * major + 10 * minor; a driver of 0 is none");
    module.def("upload", [](Address to, Address from, std::size_t bytes, int device) {
        copy(to, from, bytes, device, "copying to the device", cudaMemcpyHostToDevice);
    });
    module.def("download", [](Address to, Address from, std::size_t bytes, int device) {
        copy(to, from, bytes, device, "copying from the device", cudaMemcpyDeviceToHost);
    });
    module.def("duplicate", [](Address to, Address from, std::size_t bytes, int device) {
        copy(to, from, bytes, device, "copying on the device", cudaMemcpyDeviceToDevice);
    });
    module.def("duplicate_on", &duplicate_on, py::arg("to"), py::arg("source"), py::arg("bytes"), py::arg("device"),
               py::arg("stream"));
    module.def("order", &order, py::arg("device"), py::arg("earlier"), py::arg("later"),
               py::call_guard<py::gil_scoped_release>());
    module.def("device_of", &device_of, py::arg("address"));
    module.def("addresses_of", &addresses_of, py::arg("arrays"), "Where arrays of NumPy begin.");
    module.def("synchronize_stream", &synchronize_stream, py::arg("device"), py::arg("stream"));
    define_dlpack(module);
    module.def("synchronize", [](int device) {
        py::gil_scoped_release released;
        OnDevice current(device);
        check(cudaDeviceSynchronize(), "waiting for the device");
    });
}
