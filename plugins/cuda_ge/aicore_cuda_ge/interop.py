"""Arrays of other libraries on a GPU, taken and lent without copies: DLPack and `__cuda_array_interface__`.

Sources: the Python array API standard for DLPack (`__dlpack__`, `__dlpack_device__`), version 3 of the CUDA array
interface. Streams are numbers, as in both: 1 is the legacy default stream, 2 that of the thread, others are addresses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aicore.errors import InputError, UnsupportedError
from aicore.ir import dtype_name, numpy_dtype
from aicore_cuda_ge import _graph_executor as native

if TYPE_CHECKING:
    from aicore_cuda_ge.arrays import DeviceArray

CUDA = 2
"""kDLCUDA; 13, kDLCUDAManaged, is memory that devices and host share."""
_MANAGED = 13
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2
_VERSION = (1, 0)
_CODES = {
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "bfloat16": (4, 16),
    "complex64": (5, 64),
    "complex128": (5, 128),
    "bool": (6, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
"""(code, bits) of DLPack by element type."""
_NAMES = {element: name for name, element in _CODES.items()}


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Memory of another library: what keeps it alive, and how it looks. strides: in bytes; None for C order."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    read_only: bool
    owner: Any
    strides: tuple[int, ...] | None = None

    @property
    def is_dense(self) -> bool:
        if self.strides is None or 0 in self.shape:
            return True
        wanted = self.dtype.itemsize
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != wanted:
                return False
            wanted *= size
        return True


def stream_number(stream: Any) -> int:
    """The number of a stream: of a number, None (the legacy default stream), or a stream of CuPy, PyTorch or Numba.

    Raises InputError for anything else, and for the number 0, which may mean either default stream.
    """
    if stream is None:
        return LEGACY_STREAM
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream <= 0:
            raise InputError(f"stream={stream} says nothing; 1 is the legacy default stream, 2 that of the thread")
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1]) or LEGACY_STREAM
    for name in ("cuda_stream", "ptr"):  # of PyTorch and CuPy
        address = getattr(stream, name, None)
        if isinstance(address, int):
            return address or LEGACY_STREAM
    if hasattr(stream, "handle"):  # of Numba
        return int(getattr(stream.handle, "value", stream.handle) or LEGACY_STREAM)
    raise InputError(f"{stream!r} is no stream; give its address, or a stream of CuPy, PyTorch or Numba")


def borrow(array: Any, device: int, stream: int) -> Borrowed:
    """The memory of an array of any library on this device; work on `stream` comes after what its library queued.

    Raises InputError for an array that is elsewhere, or that nobody can look at.
    """
    kind = getattr(array, "__dlpack_device__", None)
    place = tuple(map(int, kind())) if kind is not None else None
    if place is not None and place[0] not in (CUDA, _MANAGED):
        raise InputError(f"{type(array).__name__} is not on a CUDA device")
    if place is not None and hasattr(array, "__dlpack__"):
        _need_device(array, place[1], device)
        return _from_dlpack(array, device, stream)
    if hasattr(array, "__cuda_array_interface__"):
        return _from_interface(array, device, stream)
    raise InputError(f"{type(array).__name__} has neither DLPack nor __cuda_array_interface__")


def lend(
    array: DeviceArray,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The capsule of `DeviceArray.__dlpack__`, which says what the arguments mean."""
    place = array.__dlpack_device__()
    if dl_device is not None and tuple(map(int, dl_device)) != place:
        raise BufferError(f"{array!r} can be lent on its own device only, {place}, not on {tuple(dl_device)}")
    if copy:
        raise BufferError(f"{array!r} is lent as it is; ask for a copy where it is taken")
    element = _CODES.get(dtype_name(array.dtype))
    if element is None:
        raise BufferError(f"DLPack has no elements of type {array.dtype}")
    reader = LEGACY_STREAM if stream is None else int(stream)
    if reader == 0 or reader < -1:
        raise ValueError(f"stream={stream} says nothing; 1 is the legacy default stream, 2 that of the thread, -1 none")
    if reader != -1 and array.stream is not None and array.stream != reader:
        native.order(array.device, array.stream, reader)
    versioned = max_version is not None and tuple(max_version) >= _VERSION
    return native.make_dlpack(array.address, array.shape, element, place, array, versioned)


def _from_dlpack(array: Any, device: int, stream: int) -> Borrowed:
    try:
        capsule = array.__dlpack__(stream=stream, max_version=_VERSION)
    except TypeError:  # of before DLPack 1.0
        capsule = array.__dlpack__(stream=stream)
    address, shape, strides, (code, bits, lanes), _, read_only, owner = native.read_dlpack(capsule)
    name = _NAMES.get((code, bits)) if lanes == 1 else None
    if name is None:
        raise InputError(f"{type(array).__name__} has elements of a type that aicore lacks: DLPack {code, bits, lanes}")
    dtype = numpy_dtype(name)
    steps = None if strides is None else tuple(step * dtype.itemsize for step in strides)
    return Borrowed(address, tuple(shape), dtype, device, read_only, owner, steps)


def _from_interface(array: Any, device: int, stream: int) -> Borrowed:
    described = array.__cuda_array_interface__
    if described.get("mask") is not None:
        raise InputError(f"{type(array).__name__} has a mask")
    address, read_only = described["data"]
    shape, strides = tuple(described["shape"]), described.get("strides")
    if math.prod(shape):
        _need_device(array, native.device_of(address), device)
    queued = described.get("stream")
    if queued is not None:
        native.order(device, stream_number(queued), stream)
    dtype = np.dtype(described["typestr"])
    try:
        dtype_name(dtype)
    except UnsupportedError as error:
        raise InputError(f"{type(array).__name__}: {error}") from error
    return Borrowed(address or 0, shape, dtype, device, bool(read_only), array, _steps(strides))


def _steps(strides: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if strides is None else tuple(map(int, strides))


def _need_device(array: Any, found: int, wanted: int) -> None:
    if found != wanted:
        where = "on no CUDA device" if found < 0 else f"on cuda:{found}"
        raise InputError(f"{type(array).__name__} is {where}, not on cuda:{wanted}")
