// The kernels as capsules: kernels() -> {name: capsule}.
#include <Python.h>

#include "aicore_cuda_launch.h"

extern "C" const aicore_cuda_kernel toy_axpy;

namespace {

const aicore_cuda_kernel *const table[] = {&toy_axpy};

PyObject *kernels(PyObject *, PyObject *) {
    PyObject *found = PyDict_New();
    for (const aicore_cuda_kernel *kernel : table) {
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

PyMethodDef methods[] = {{"kernels", kernels, METH_NOARGS, "Capsules of the kernels by name."}, {}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", "CUDA kernels of the toy plugin.", -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit__kernels() { return PyModule_Create(&module); }
