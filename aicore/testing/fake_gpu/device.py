"""The fake device: every byte crosses by `upload` or `download`, and host arrays are refused everywhere else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from aicore.errors import ExecutionError, UnsupportedError
from aicore.ir import TensorType, numpy_dtype
from aicore.testing.fake_gpu.memory import Bytes, FakeArray, FakeMemory
from aicore.testing.fake_gpu.stream import Stream

Array = np.ndarray[Any, Any]
_STREAMS = 2


class FakeDevice:
    """Looks like a GPU to the runtime: `aicore.runtime.Device` over a FakeMemory and two streams."""

    kind = "fake"
    static_shapes_only = True

    def __init__(self, name: str = "fake") -> None:
        self.name = name
        self.memory = FakeMemory()
        self.uploads = self.downloads = 0
        self._streams = [Stream(f"{name} stream {i}") for i in range(_STREAMS)]
        self._turn = itertools.cycle(self._streams)

    @property
    def fingerprint(self) -> str:
        return f"fake GPU numpy {np.__version__}"

    def next_stream(self) -> Stream:
        """A stream for a new chain of commands; they take turns."""
        return next(self._turn)

    def allocate(self, nbytes: int) -> FakeArray:
        return FakeArray(self.name, self.memory.allocate(nbytes), (nbytes,), np.dtype(np.uint8))

    def empty(self, tensor: TensorType) -> FakeArray:
        dtype = numpy_dtype(tensor.dtype)
        if dtype.hasobject:
            raise UnsupportedError(f"{tensor}: strings stay on the host")
        shape = tensor.static_shape
        count = int(np.prod(shape, dtype=np.int64))
        return FakeArray(self.name, self.memory.allocate(count * dtype.itemsize), shape, dtype)

    def upload(self, array: Array) -> FakeArray:
        """A copy on the device. Raises ExecutionError for anything but a host array."""
        if not isinstance(array, np.ndarray):
            raise ExecutionError(f"{self.name} uploads host arrays, got {array!r}")
        if array.dtype.hasobject:
            raise UnsupportedError("strings stay on the host")
        result = FakeArray(self.name, self.memory.allocate(array.nbytes), array.shape, array.dtype)
        self.view(result)[...] = array
        self.uploads += 1
        return result

    def download(self, array: Any) -> Array:
        """A copy on the host, once the work that writes the array is done."""
        self._finish(array)
        self.downloads += 1
        return self.view(array).copy()

    def copy(self, array: Any) -> FakeArray:
        self._finish(array)
        result = FakeArray(self.name, self.memory.allocate(array.nbytes), array.shape, array.dtype)
        self.bytes(result)[...] = self.bytes(array)
        return result

    def synchronize(self) -> None:
        for stream in self._streams:
            stream.synchronize()

    def check(self, array: Any) -> FakeArray:
        """The array itself. Raises ExecutionError for a host array, or one of another device."""
        if not isinstance(array, FakeArray):
            what = f"host {type(array).__name__}" if isinstance(array, np.ndarray) else type(array).__name__
            raise ExecutionError(f"{self.name} got a pointer that is not its own ({what}); upload the array first")
        if array.device != self.name:
            raise ExecutionError(f"{self.name} got an array of {array.device}")
        return array

    def bytes(self, array: Any) -> Bytes:
        """The bytes, for device code."""
        return self.memory.read(self.check(array).address, array.nbytes)

    def view(self, array: Any) -> Array:
        """The array as device code sees it."""
        flat: Array = self.bytes(array).view(array.dtype)
        return flat.reshape(array.shape)

    def _finish(self, array: Any) -> None:
        ready = self.check(array).ready
        if ready is not None:
            ready.finish()
