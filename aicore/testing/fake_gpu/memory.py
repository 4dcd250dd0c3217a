"""An address space that the host cannot read: arrays are handles, and only device code gets at the bytes."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.testing.fake_gpu.stream import Submission

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_BASE = 0x7FA0_0000_0000
_GUARD = 256
"""Bytes between allocations that belong to none, so that an address beyond the end is caught."""


class FakeMemory:
    """Allocations by address. An address is valid while its Allocation lives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = _BASE
        self._bytes: dict[int, Bytes] = {}
        self._addresses: list[int] = []

    def allocate(self, nbytes: int) -> Allocation:
        try:
            storage = np.empty(nbytes, np.uint8)
        except MemoryError as error:
            raise ExecutionError(f"no {nbytes} bytes of memory are left on the device") from error
        with self._lock:
            address = self._next
            self._next += -(-nbytes // _GUARD) * _GUARD + _GUARD
            self._bytes[address] = storage
            insort(self._addresses, address)
        return Allocation(self, address, nbytes)

    def free(self, address: int) -> None:
        with self._lock:
            del self._bytes[address]
            del self._addresses[bisect_right(self._addresses, address) - 1]

    def read(self, address: int, nbytes: int) -> Bytes:
        """The bytes at an address, for device code. Raises ExecutionError when they are not inside one allocation."""
        with self._lock:
            at = bisect_right(self._addresses, address) - 1
            base = self._addresses[at] if at >= 0 else 0
            storage = self._bytes.get(base)
        offset = address - base
        if storage is None or offset + nbytes > storage.size:
            raise ExecutionError(f"address {address:#x}, {nbytes} bytes: not memory of this device")
        return storage[offset : offset + nbytes]

    @property
    def in_use(self) -> int:
        """Bytes of all living allocations."""
        with self._lock:
            return sum(storage.size for storage in self._bytes.values())


class Allocation:
    """Owns one range of addresses and frees it when the last handle is gone."""

    def __init__(self, memory: FakeMemory, address: int, nbytes: int) -> None:
        self._memory = memory
        self.address = address
        self.nbytes = nbytes

    def __del__(self) -> None:
        self._memory.free(self.address)


class FakeArray:
    """A dense array on the fake device: a handle with shape and dtype, without any way to the numbers.

    ready: set when the work that writes it is done; None when nothing is queued.
    """

    __slots__ = ("address", "allocation", "device", "dtype", "ready", "shape")
    __hash__ = object.__hash__

    def __init__(
        self,
        device: str,
        allocation: Allocation,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        ready: Submission | None = None,
    ) -> None:
        self.device = device
        self.allocation = allocation
        self.address = allocation.address
        self.shape = shape
        self.dtype = dtype
        self.ready = ready

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} at {self.address:#x} of {self.device}>"
