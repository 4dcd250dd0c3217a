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

    It may have `pitched = True`, which says that its launcher knows buffers with a pitch (see BufferPlan).
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


@runtime_checkable
class SharesMemory(Protocol):
    """What a device offers beside, if other libraries have arrays in its memory: a program can be bound to those.

    Streams are numbers of the device; what is queued on one happens in order.
    """

    def stream_of(self, stream: Any) -> int:
        """The number of a stream of whichever library; None stands for the one that libraries use when told nothing.

        Raises InputError for what is no stream.
        """

    def adopt(self, array: Any, stream: int, writable: bool = False) -> Any:
        """The same memory as an array of this device; work on `stream` comes after what the array's library queued.

        Raises InputError for an array that is elsewhere, strided, or read-only though it is to be writable.
        """

    def queued(self, tensor: TensorType, stream: int) -> Any:
        """An uninitialised array that work on `stream` is going to fill: whoever reads it waits for that."""

    def write(self, target: Any, source: np.ndarray[Any, Any]) -> None:
        """Copy from the host into an array of this device, of the same type, after all that is queued by default."""

    def overwrite(self, target: Any, source: Any, stream: int) -> None:
        """Copy between two arrays of this device and of one type, on the stream."""

    def span(self, array: Any) -> tuple[int, int]:
        """Addresses of the first byte of an array of this device, and of what comes after the last."""

    def finish(self, stream: int) -> None:
        """Wait for all that is queued on the stream."""


def type_of(array: Any) -> TensorType:
    """The type of an array of any device, or of the host."""
    return TensorType(dtype_name(array.dtype), tuple(array.shape))
