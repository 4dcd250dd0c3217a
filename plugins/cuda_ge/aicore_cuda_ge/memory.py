"""Memory of one device, from a pool that only aicore uses.

A CUDA Graph remembers addresses. CuPy's own pool hands out again what was freed while a graph was captured, and then
somebody else writes there; a block of this pool lives as long as the executable that captured it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.errors import OutOfMemoryError
from aicore_cuda_ge.arrays import DeviceArray


class Pool:
    """Blocks aligned to 512 bytes, kept for the next request when they are freed.

    make_room: gives back memory that nobody needs now, and says whether there was any; asked before a request fails.
    """

    def __init__(self, device: int, make_room: Callable[[], bool] = lambda: False) -> None:
        import cupy

        self.device = device
        self._cupy = cupy
        self._pool = cupy.cuda.MemoryPool()
        self._make_room = make_room

    def allocate(self, nbytes: int) -> Any:
        """A block; `block.ptr` is its address. Raises OutOfMemoryError when the device has no memory left."""
        size = max(nbytes, 1)
        with self._cupy.cuda.Device(self.device):
            try:
                return self._pool.malloc(size)
            except self._cupy.cuda.memory.OutOfMemoryError as error:
                first = error
            self._make_room()
            self._pool.free_all_blocks()
            try:
                return self._pool.malloc(size)
            except self._cupy.cuda.memory.OutOfMemoryError:
                free, total = self._cupy.cuda.runtime.memGetInfo()
        raise OutOfMemoryError(
            f"cuda:{self.device} has no room for {nbytes:,} bytes: {free:,} of {total:,} are free, and aicore uses "
            f"{self.used:,}"
        ) from first

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialised array."""
        block = self.allocate(math.prod(shape) * dtype.itemsize)
        return DeviceArray(block.ptr, shape, dtype, self.device, block)

    def limit(self, nbytes: int) -> None:
        """Take no more than so many bytes from the device; 0 means as many as there are."""
        with self._cupy.cuda.Device(self.device):
            self._pool.set_limit(size=nbytes)

    def release(self) -> None:
        """Give back what no array uses."""
        with self._cupy.cuda.Device(self.device):
            self._pool.free_all_blocks()

    @property
    def used(self) -> int:
        """Bytes in use."""
        with self._cupy.cuda.Device(self.device):  # CuPy counts for the current device
            return int(self._pool.used_bytes())

    @property
    def held(self) -> int:
        """Bytes that the pool has taken from the device, in use or not."""
        with self._cupy.cuda.Device(self.device):
            return int(self._pool.total_bytes())
