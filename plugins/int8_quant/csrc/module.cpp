// What Python sees: kernels() -> {name: capsule}, and facts() of the first GPU.
#include <Python.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "aicore_cuda_launch.h"

namespace int8_quant {

std::vector<const aicore_cuda_kernel *> &table() {
    static std::vector<const aicore_cuda_kernel *> kernels;
    return kernels;
}

bool list_kernel(const aicore_cuda_kernel *kernel) {
    table().push_back(kernel);
    return true;
}

}  // namespace int8_quant

namespace {

PyObject *kernels(PyObject *, PyObject *) {
    PyObject *found = PyDict_New();
    for (const aicore_cuda_kernel *kernel : int8_quant::table()) {
        // Whoever opens the capsule only reads.
        PyObject *capsule =
            PyCapsule_New(const_cast<aicore_cuda_kernel *>(kernel), AICORE_CUDA_KERNEL_CAPSULE, nullptr);
        const int failed = capsule == nullptr || PyDict_SetItemString(found, kernel->name, capsule);
        Py_XDECREF(capsule);
        if (failed) {
            Py_DECREF(found);
            return nullptr;
        }
    }
    return found;
}

PyObject *facts(PyObject *, PyObject *) {
    int multiprocessors = 0, major = 0, minor = 0, shared = 0;
    const bool found = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess &&
                       cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
                       cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess &&
                       cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess;
    if (!found) {
        cudaGetLastError();  // so that nobody else meets it
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(iii)", multiprocessors, 10 * major + minor, shared);
}

PyMethodDef methods[] = {
    {"kernels", kernels, METH_NOARGS, "Capsules of the kernels by name."},
    {"facts", facts, METH_NOARGS, "(multiprocessors, capability, bytes of shared memory) of the first GPU, or None."},
    {}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_int8_kernels", "CUDA kernels for 8-bit integers.", -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit__int8_kernels() { return PyModule_Create(&module); }
