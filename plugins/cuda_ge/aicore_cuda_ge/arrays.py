"""Arrays in the memory of a CUDA device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aicore_cuda_ge import interop


class DeviceArray:
    """Dense numbers in C order on one device; other libraries see it through `__cuda_array_interface__` and DLPack.

    address: of the first byte. shape, dtype: as of a NumPy array.
    memory: what keeps the bytes alive, such as a block of CuPy's pool.
    stream: where work on it may still be queued, as a number; None when there is none.
    """

    __slots__ = ("__weakref__", "address", "device", "dtype", "memory", "shape", "stream")

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        device: int,
        memory: Any,
        stream: int | None = None,
    ) -> None:
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.memory = memory
        self.stream = stream

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3. Of no elements, the address is 0."""
        # bfloat16 has no type code; readers that know it take its bits for what they are.
        code = self.dtype.str if self.dtype.kind != "V" else f"<u{self.dtype.itemsize}"
        data = (self.address if self.size else 0, False)
        return {"shape": self.shape, "typestr": code, "data": data, "version": 3, "stream": self.stream}

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule for `from_dlpack` of another library.

        stream: work that the reader queues there comes after ours: None and 1 are the legacy default stream, 2 the
            default stream of the thread, -1 none, so that nothing is ordered; other numbers are addresses.
        Raises ValueError for stream 0, which says nothing, BufferError for another device, for a copy, and for element
        types that DLPack lacks. Source: Python array API standard, `__dlpack__`.
        """
        return interop.lend(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (interop.CUDA, self.device)

    def _as_cupy(self) -> Any:
        import cupy

        return cupy.asarray(self)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on cuda:{self.device}>"
