"""Memory of one device, from a pool that only aicore uses.

A CUDA Graph remembers addresses. CuPy's own pool hands out again what was freed while a graph was captured, and then
somebody else writes there; a block of this pool lives as long as the executable that captured it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore_cuda_ge.arrays import DeviceArray


class Pool:
    """Blocks aligned to 512 bytes, kept for the next request when they are freed."""

    def __init__(self, device: int) -> None:
        import cupy

        self.device = device
        self._cupy = cupy
        self._pool = cupy.cuda.MemoryPool()

    def allocate(self, nbytes: int) -> Any:
        """A block; `block.ptr` is its address. Raises ExecutionError when the device has no memory left."""
        try:
            with self._cupy.cuda.Device(self.device):
                return self._pool.malloc(max(nbytes, 1))
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            self._pool.free_all_blocks()
            free, total = self._free()
            raise ExecutionError(
                f"cuda:{self.device} has no room for {nbytes:,} bytes: {free:,} of {total:,} are free"
            ) from error

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialised array."""
        count = 1
        for size in shape:
            count *= size
        block = self.allocate(count * dtype.itemsize)
        return DeviceArray(block.ptr, shape, dtype, self.device, block)

    def release(self) -> None:
        """Give back what no array uses."""
        with self._cupy.cuda.Device(self.device):
            self._pool.free_all_blocks()

    @property
    def used(self) -> int:
        """Bytes in use."""
        return int(self._pool.used_bytes())

    def _free(self) -> tuple[int, int]:
        with self._cupy.cuda.Device(self.device) as device:
            free, total = device.mem_info
        return int(free), int(total)
