"""The CPU as a device: its arrays are NumPy's, so nothing needs to be moved."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.records import dataclass

Array = np.ndarray[Any, Any]

_INFO = Path("/proc/cpuinfo")
_START = 1024
"""Bytes of it that hold the name of the first processor."""


@cache
def _processor() -> str:
    """The processor's name. `platform` would run `uname -p` for it, which takes 8 ms and mostly answers `unknown`."""
    if not _INFO.is_file():
        return platform.processor()
    with _INFO.open(encoding="utf-8", errors="replace") as file:
        lines = file.read(_START).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


@dataclass(frozen=True)
class CpuDevice:
    """The memory that NumPy uses. `upload` and `download` return the array itself unless it is strided."""

    name: str = "cpu"
    kind: str = "cpu"
    static_shapes_only: bool = False
    pitched: bool = True

    @property
    def fingerprint(self) -> str:
        return f"{platform.machine()} {_processor()} numpy {np.__version__}"

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
