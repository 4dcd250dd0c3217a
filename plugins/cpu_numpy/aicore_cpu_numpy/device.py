"""The CPU as a device: its arrays are NumPy's, so nothing needs to be moved."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.records import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CpuDevice:
    """The memory that NumPy uses. `upload` and `download` return the array itself unless it is strided."""

    name: str = "cpu"
    kind: str = "cpu"
    static_shapes_only: bool = False
    pitched: bool = True

    @property
    def fingerprint(self) -> str:
        return f"{platform.machine()} {platform.processor()} numpy {np.__version__}"

    def allocate(self, nbytes: int) -> Array:
        return np.empty(nbytes, np.uint8)

    def empty(self, tensor: TensorType) -> Array:
        return np.empty(tensor.static_shape, numpy_dtype(tensor.dtype))

    def upload(self, array: Array) -> Array:
        if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
            return array
        return np.array(array, array.dtype.newbyteorder("="), order="C")

    def download(self, array: Array) -> Array:
        return array

    def copy(self, array: Array) -> Array:
        return array.copy()

    def synchronize(self) -> None:
        """Nothing is queued: kernels have run when they return."""
