#include "dlpack.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace py = pybind11;

namespace aicore {

namespace {

constexpr char plain_name[] = "dltensor", versioned_name[] = "dltensor_versioned";
constexpr char plain_used[] = "used_dltensor", versioned_used[] = "used_dltensor_versioned";
constexpr std::uint64_t read_only_flag = 1;

struct Element {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
};

struct Tensor {
    void *data;
    std::int32_t device_kind, device;
    std::int32_t rank;
    Element element;
    std::int64_t *shape;
    std::int64_t *strides;  // in elements; null for an array in C order
    std::uint64_t offset;   // in bytes
};

struct Plain {
    Tensor tensor;
    void *owner;
    void (*release)(Plain *);
};

struct Versioned {
    std::uint32_t major, minor;
    void *owner;
    void (*release)(Versioned *);
    std::uint64_t flags;
    Tensor tensor;
};

template <class Managed> void release(Managed *managed) {
    if (managed != nullptr && managed->release != nullptr) managed->release(managed);
}

// What keeps the memory of others alive: it is released with this object.
template <class Managed> py::capsule owner_of(Managed *managed) {
    return py::capsule(managed, [](void *pointer) { release(static_cast<Managed *>(pointer)); });
}

std::vector<std::int64_t> numbers(const std::int64_t *from, std::int32_t count) { return {from, from + count}; }

py::tuple described(const Tensor &tensor, bool read_only, py::object owner) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.offset;
    const py::object strides =
        tensor.strides == nullptr ? py::object(py::none()) : py::cast(numbers(tensor.strides, tensor.rank));
    return py::make_tuple(address, numbers(tensor.shape, tensor.rank), strides,
                          py::make_tuple(tensor.element.code, tensor.element.bits, tensor.element.lanes),
                          py::make_tuple(tensor.device_kind, tensor.device), read_only, std::move(owner));
}

// Takes the array out of its capsule, which may be done once.
py::tuple read_dlpack(const py::object &capsule) {
    if (PyCapsule_IsValid(capsule.ptr(), versioned_name)) {
        auto *managed = static_cast<Versioned *>(PyCapsule_GetPointer(capsule.ptr(), versioned_name));
        if (managed->major != 1) {
            throw py::buffer_error("version " + std::to_string(managed->major) + " of DLPack is not known here");
        }
        PyCapsule_SetName(capsule.ptr(), versioned_used);
        return described(managed->tensor, managed->flags & read_only_flag, owner_of(managed));
    }
    if (PyCapsule_IsValid(capsule.ptr(), plain_name)) {
        auto *managed = static_cast<Plain *>(PyCapsule_GetPointer(capsule.ptr(), plain_name));
        PyCapsule_SetName(capsule.ptr(), plain_used);
        return described(managed->tensor, false, owner_of(managed));
    }
    throw py::type_error("not a capsule of DLPack, or one whose array was taken out already");
}

// An array of ours that somebody else looks at; `owner` stays until they let go.
template <class Managed> struct Lent {
    Managed managed = {};
    std::vector<std::int64_t> shape, strides;
    py::object owner;

    static void release(Managed *managed) {
        auto *lent = static_cast<Lent *>(managed->owner);
        if (!Py_IsInitialized()) return;  // the process ends, and with it all memory
        py::gil_scoped_acquire locked;    // whoever lets go need not be Python
        delete lent;
    }
};

template <class Managed> py::object lend(std::unique_ptr<Lent<Managed>> lent, const char *name) {
    Managed *managed = &lent->managed;
    managed->owner = lent.get();
    managed->release = &Lent<Managed>::release;
    const auto unused = [](PyObject *capsule) {
        const char *is = PyCapsule_GetName(capsule);
        if (is == nullptr || std::strncmp(is, "used", 4) == 0) return;
        release(static_cast<Managed *>(PyCapsule_GetPointer(capsule, is)));
    };
    PyObject *capsule = PyCapsule_New(managed, name, unused);
    if (capsule == nullptr) throw py::error_already_set();
    lent.release();  // the capsule has it
    return py::reinterpret_steal<py::object>(capsule);
}

template <class Managed>
std::unique_ptr<Lent<Managed>> lent(std::uintptr_t address, const std::vector<std::int64_t> &shape,
                                    std::pair<int, int> element, std::pair<int, int> device, py::object owner) {
    auto made = std::make_unique<Lent<Managed>>();
    made->shape = shape;
    made->strides.assign(shape.size(), 1);
    for (std::size_t axis = shape.size(); axis-- > 1;) {
        made->strides[axis - 1] = made->strides[axis] * shape[axis];
    }
    made->owner = std::move(owner);
    Tensor &tensor = made->managed.tensor;
    tensor.data = reinterpret_cast<void *>(address);
    tensor.device_kind = device.first;
    tensor.device = device.second;
    tensor.rank = static_cast<std::int32_t>(shape.size());
    tensor.element = {static_cast<std::uint8_t>(element.first), static_cast<std::uint8_t>(element.second), 1};
    tensor.shape = made->shape.data();
    tensor.strides = made->strides.data();
    return made;
}

py::object make_dlpack(std::uintptr_t address, const std::vector<std::int64_t> &shape, std::pair<int, int> element,
                       std::pair<int, int> device, py::object owner, bool versioned) {
    if (!versioned) return lend(lent<Plain>(address, shape, element, device, std::move(owner)), plain_name);
    auto made = lent<Versioned>(address, shape, element, device, std::move(owner));
    made->managed.major = 1;
    return lend(std::move(made), versioned_name);
}

}  // namespace

void define_dlpack(py::module_ &module) {
    module.def("read_dlpack", &read_dlpack, py::arg("capsule"),
               "(address, shape, strides or None, (code, bits, lanes), (kind, device), read-only, owner)");
    module.def("make_dlpack", &make_dlpack, py::arg("address"), py::arg("shape"), py::arg("element"),
               py::arg("device"), py::arg("owner"), py::arg("versioned"));
}

}  // namespace aicore
