"""A CUDA device as aicore's runtime sees it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from aicore.config import from_environment
from aicore.errors import ExecutionError, InputError
from aicore.ir import TensorType, numpy_dtype
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.failures import told
from aicore_cuda_ge.graph_cache import GraphCache
from aicore_cuda_ge.interop import borrow, stream_number
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
    def graphs(self) -> GraphCache:
        return GraphCache(from_environment().graphs)

    @cached_property
    def pool(self) -> Pool:
        return Pool(self.index, self.graphs.clear)

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, such as (9, 0)."""
        return self.facts["major"], self.facts["minor"]

    @property
    def l2_bytes(self) -> int:
        """Of the cache that all multiprocessors share."""
        return int(self.facts["l2"])

    @property
    def fingerprint(self) -> str:
        driver, runtime = native.versions()
        major, minor = self.capability
        return f"{self.facts['name']} sm_{major}{minor} driver {driver} runtime {runtime}"

    def current(self) -> AbstractContextManager[Any]:
        """Makes this device CUDA's current one, for a block, and then the one that was."""
        import cupy

        guard: AbstractContextManager[Any] = cupy.cuda.Device(self.index)
        return guard

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
            with told("copying to the device"):
                native.upload(result.address, dense.ctypes.data, dense.nbytes, self.index)
        return result

    def download(self, array: DeviceArray) -> Array:
        result = np.empty(array.shape, array.dtype)
        if result.nbytes:
            with told("copying from the device"):
                self._finish(array)
                native.download(result.ctypes.data, array.address, result.nbytes, self.index)
        return result

    def copy(self, array: DeviceArray) -> DeviceArray:
        result = self.pool.array(array.shape, array.dtype)
        if result.nbytes:
            with told("copying on the device"):
                self._finish(array)
                native.duplicate(result.address, array.address, result.nbytes, self.index)
        return result

    def synchronize(self) -> None:
        with told("waiting for the device"):
            native.synchronize(self.index)

    def check(self, array: Any) -> DeviceArray:
        """The array itself; raises ExecutionError for one that is not on this device."""
        if not isinstance(array, DeviceArray) or array.device != self.index:
            raise ExecutionError(f"{array!r} is no array of {self.name}")
        return array

    def stream_of(self, stream: Any) -> int:
        """See `aicore.runtime.SharesMemory`."""
        return stream_number(stream)

    def adopt(self, array: Any, stream: int, writable: bool = False) -> DeviceArray:
        """See `aicore.runtime.SharesMemory`; arrays with DLPack or `__cuda_array_interface__`."""
        if isinstance(array, DeviceArray) and array.device == self.index:
            if array.stream is not None and array.stream != stream:
                native.order(self.index, array.stream, stream)
            return array
        found = borrow(array, self.index, stream)
        if not found.is_dense:
            raise InputError(f"it has strides {found.strides}; only dense arrays in C order can be bound")
        if writable and found.read_only:
            raise InputError("it is read-only")
        return DeviceArray(found.address, found.shape, found.dtype, self.index, found.owner)

    def queued(self, tensor: TensorType, stream: int) -> DeviceArray:
        """See `aicore.runtime.SharesMemory`."""
        result = self.empty(tensor)
        result.stream = stream
        return result

    def write(self, target: DeviceArray, source: Array) -> None:
        """See `aicore.runtime.SharesMemory`."""
        dense = np.ascontiguousarray(source, target.dtype)
        if target.nbytes:
            with told("copying to the device"):
                native.upload(target.address, dense.ctypes.data, target.nbytes, self.index)

    def overwrite(self, target: DeviceArray, source: DeviceArray, stream: int) -> None:
        """See `aicore.runtime.SharesMemory`."""
        if target.nbytes:
            with told("copying on the device"):
                native.duplicate_on(target.address, source.address, target.nbytes, self.index, stream)

    def span(self, array: DeviceArray) -> tuple[int, int]:
        """See `aicore.runtime.SharesMemory`."""
        return array.address, array.address + array.nbytes

    def finish(self, stream: int) -> None:
        """See `aicore.runtime.SharesMemory`."""
        with told("waiting for a stream"):
            native.synchronize_stream(self.index, stream)

    def _finish(self, array: DeviceArray) -> None:
        if array.stream is not None:
            native.synchronize_stream(self.index, array.stream)
