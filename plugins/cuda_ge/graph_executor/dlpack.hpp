// DLPack: how array libraries lend each other memory. Structures after the header dlpack.h of DLPack 1.0, whose layout
// is fixed; Python sees them in capsules.
#pragma once

#include <pybind11/pybind11.h>

namespace aicore {

// read_dlpack and make_dlpack, as _graph_executor.pyi has them.
void define_dlpack(pybind11::module_ &module);

}  // namespace aicore
