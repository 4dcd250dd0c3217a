"""A CUDA device as aicore's runtime sees it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.ir import TensorType, numpy_dtype
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.memory import Pool

Array = np.ndarray[Any, Any]


class CudaDevice:
    """One GPU. Uploads and downloads wait for their end; runs are ordered by the executable that makes them.

    index: as CUDA counts, among the devices that CUDA_VISIBLE_DEVICES leaves.
    """

    kind = "cuda"
    static_shapes_only = True

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"cuda:{index}"
        self.facts: dict[str, Any] = native.device_facts(index)

    @cached_property
    def pool(self) -> Pool:
        return Pool(self.index)

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, such as (9, 0)."""
        return self.facts["major"], self.facts["minor"]

    @property
    def fingerprint(self) -> str:
        driver, runtime = native.versions()
        major, minor = self.capability
        return f"{self.facts['name']} sm_{major}{minor} driver {driver} runtime {runtime}"

    def allocate(self, nbytes: int) -> DeviceArray:
        return self.pool.array((nbytes,), np.dtype(np.uint8))

    def empty(self, tensor: TensorType) -> DeviceArray:
        return self.pool.array(tensor.static_shape, numpy_dtype(tensor.dtype))

    def upload(self, array: Array | DeviceArray) -> DeviceArray:
        if isinstance(array, DeviceArray):
            return array
        dense = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
        result = self.pool.array(dense.shape, dense.dtype)
        if dense.nbytes:
            native.upload(result.address, dense.ctypes.data, dense.nbytes, self.index)
        return result

    def download(self, array: DeviceArray) -> Array:
        result = np.empty(array.shape, array.dtype)
        if result.nbytes:
            native.download(result.ctypes.data, array.address, result.nbytes, self.index)
        return result

    def copy(self, array: DeviceArray) -> DeviceArray:
        result = self.pool.array(array.shape, array.dtype)
        if result.nbytes:
            native.duplicate(result.address, array.address, result.nbytes, self.index)
        return result

    def synchronize(self) -> None:
        native.synchronize(self.index)

    def check(self, array: Any) -> DeviceArray:
        """The array itself; raises ExecutionError for one that is not on this device."""
        if not isinstance(array, DeviceArray) or array.device != self.index:
            raise ExecutionError(f"{array!r} is no array of {self.name}")
        return array
