"""Arrays in the memory of a CUDA device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class DeviceArray:
    """Dense numbers in C order on one device; other libraries see it through `__cuda_array_interface__` and DLPack.

    address: of the first byte. shape, dtype: as of a NumPy array.
    memory: what keeps the bytes alive, such as a block of CuPy's pool.
    """

    __slots__ = ("address", "device", "dtype", "memory", "shape")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int, memory: Any) -> None:
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.memory = memory

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # bfloat16 has no type code; readers that know it take its bits for what they are.
        code = self.dtype.str if self.dtype.kind != "V" else f"<u{self.dtype.itemsize}"
        return {"shape": self.shape, "typestr": code, "data": (self.address, False), "version": 3, "stream": None}

    def __dlpack__(self, **options: Any) -> Any:
        return self._as_cupy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device)  # kDLCUDA

    def _as_cupy(self) -> Any:
        import cupy

        return cupy.asarray(self)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on cuda:{self.device}>"
