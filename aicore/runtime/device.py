"""What the runtime asks of a device: memory of its own, and ways to and from it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from aicore.ir import TensorType, dtype_name

HOST = "host"
"""Where NumPy arrays live that no device owns: what a program takes and gives."""


@runtime_checkable
class Device(Protocol):
    """One device. Its arrays are dense and in C order, and have `shape` and `dtype` (of NumPy); nothing else is asked.

    name: `cpu`, `cuda:0`.
    kind: `cpu`, `cuda`; kernels name it.
    fingerprint: model, driver and library versions; what a tuned time holds for.
    static_shapes_only: nodes whose sizes depend on data, and strings, must be elsewhere.
    """

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def static_shapes_only(self) -> bool: ...

    def allocate(self, nbytes: int) -> Any:
        """Uninitialised memory: a flat uint8 array of this device."""

    def empty(self, tensor: TensorType) -> Any:
        """An uninitialised array; the type must be static."""

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """An array of this device with these numbers. Where host and device are one it may be `array` itself."""

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """The numbers, after all work queued before. Where host and device are one it may be `array` itself."""

    def copy(self, array: Any) -> Any:
        """Another array with the same numbers."""

    def synchronize(self) -> None:
        """Wait for all queued work."""


def type_of(array: Any) -> TensorType:
    """The type of an array of any device, or of the host."""
    return TensorType(dtype_name(array.dtype), tuple(array.shape))
