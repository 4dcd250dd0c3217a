"""Arrays that are lent and borrowed: capsules of DLPack and streams, which need no GPU."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

import numpy as np
import pytest

from aicore.errors import InputError
from aicore.ir import numpy_dtype
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge import interop
from aicore_cuda_ge.arrays import DeviceArray

Array = np.ndarray[Any, Any]
HOST = (1, 0)


class Owner:
    """Something that a capsule keeps."""


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (5,)])
def test_numpy_reads_what_is_lent(shape: tuple[int, ...], versioned: bool) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)

    class Lender:
        def __dlpack_device__(self) -> tuple[int, int]:
            return HOST

        def __dlpack__(self, **options: Any) -> Any:
            return native.make_dlpack(array.ctypes.data, shape, (0, 32), HOST, array, versioned)

    seen = np.from_dlpack(Lender())
    np.testing.assert_array_equal(seen, array)
    assert seen.dtype == array.dtype
    assert seen.flags.c_contiguous


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_what_numpy_lends_is_read(version: tuple[int, int] | None) -> None:
    array = np.arange(12, dtype=np.float64).reshape(3, 4)[:, 1:]
    options: dict[str, Any] = {} if version is None else {"max_version": version}
    capsule = array.__dlpack__(**options)
    address, shape, strides, element, device, read_only, owner = native.read_dlpack(capsule)
    assert (address, shape, strides) == (array.ctypes.data, [3, 3], [4, 1])
    assert (element, device, read_only) == ((2, 64, 1), HOST, False)
    with pytest.raises(TypeError, match="not a capsule of DLPack, or one whose array was taken out already"):
        native.read_dlpack(capsule)
    del owner


def test_read_only_memory_is_told() -> None:
    array = np.arange(3)
    array.flags.writeable = False
    assert native.read_dlpack(array.__dlpack__(max_version=(1, 0)))[5] is True


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("taken", [False, True])
def test_the_owner_stays_as_long_as_somebody_looks(versioned: bool, taken: bool) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    capsule = native.make_dlpack(64, (1,), (0, 8), HOST, owner, versioned)
    del owner
    held = native.read_dlpack(capsule) if taken else capsule
    del capsule
    gc.collect()
    assert gone() is not None
    del held
    gc.collect()
    assert gone() is None


def device_array(dtype: str = "float32", stream: int | None = None) -> DeviceArray:
    return DeviceArray(4096, (2, 3), numpy_dtype(dtype), 0, None, stream)


@pytest.mark.parametrize("dtype", sorted(interop._CODES))
def test_every_element_type_goes_there_and_back(dtype: str) -> None:
    address, shape, strides, (code, bits, lanes), device, *_ = native.read_dlpack(device_array(dtype).__dlpack__())
    assert (address, shape, strides, device) == (4096, [2, 3], [3, 1], (2, 0))
    assert interop._NAMES[code, bits] == dtype
    assert lanes == 1


def test_versions() -> None:
    assert "dltensor_versioned" in repr(device_array().__dlpack__(max_version=(1, 2)))
    assert "dltensor_versioned" not in repr(device_array().__dlpack__(max_version=(0, 8)))
    assert "dltensor_versioned" not in repr(device_array().__dlpack__())


@pytest.mark.parametrize(
    ("dtype", "options", "error", "message"),
    [
        ("float32", {"stream": 0}, ValueError, "stream=0 says nothing"),
        ("float32", {"stream": -2}, ValueError, "stream=-2 says nothing"),
        ("float32", {"dl_device": (2, 1)}, BufferError, r"on its own device only, \(2, 0\), not on \(2, 1\)"),
        ("float32", {"copy": True}, BufferError, "ask for a copy where it is taken"),
        ("int4", {}, BufferError, "DLPack has no elements of type int4"),
    ],
)
def test_what_cannot_be_lent(dtype: str, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        device_array(dtype).__dlpack__(**options)


def test_the_array_interface() -> None:
    shown = device_array(stream=7).__cuda_array_interface__
    assert shown == {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, "stream": 7}
    empty = DeviceArray(4096, (0,), np.dtype(np.int8), 0, None).__cuda_array_interface__
    assert empty["data"] == (0, False)
    assert empty["stream"] is None


STREAMS = [
    (None, 1),
    (1, 1),
    (2, 2),
    (0x7F00, 0x7F00),
    (types.SimpleNamespace(ptr=0x7F00), 0x7F00),  # CuPy
    (types.SimpleNamespace(ptr=0), 1),
    (types.SimpleNamespace(cuda_stream=0x7F00), 0x7F00),  # PyTorch
    (types.SimpleNamespace(cuda_stream=0), 1),
    (types.SimpleNamespace(handle=types.SimpleNamespace(value=0x7F00)), 0x7F00),  # Numba
    (types.SimpleNamespace(handle=types.SimpleNamespace(value=None)), 1),
    (types.SimpleNamespace(__cuda_stream__=lambda: (0, 0x7F00)), 0x7F00),  # cuda.core
]


@pytest.mark.parametrize(("stream", "number"), STREAMS)
def test_numbers_of_streams(stream: Any, number: int) -> None:
    assert interop.stream_number(stream) == number


@pytest.mark.parametrize("stream", [0, -1, True, "default", 1.5])
def test_what_is_no_stream(stream: Any) -> None:
    with pytest.raises(InputError, match=r"says nothing|is no stream"):
        interop.stream_number(stream)


class Interface:
    """What Numba's arrays offer."""

    def __init__(self, **more: Any) -> None:
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, **more}


@pytest.fixture
def ordered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Calls that order two streams; device 0 owns all memory."""
    calls: list[tuple[int, ...]] = []
    monkeypatch.setattr(native, "order", lambda *numbers: calls.append(numbers))
    monkeypatch.setattr(native, "device_of", lambda address: 0)
    return calls


def test_arrays_with_the_interface_alone(ordered: list[tuple[int, ...]]) -> None:
    array = Interface(stream=9, data=(4096, True), strides=(12, 4))
    found = interop.borrow(array, 0, 7)
    assert (found.address, found.shape, found.dtype, found.owner) == (4096, (2, 3), np.float32, array)
    assert found.is_dense
    assert found.read_only
    assert ordered == [(0, 9, 7)]
    assert not interop.borrow(Interface(strides=(4, 8)), 0, 7).is_dense
    assert interop.borrow(Interface(strides=(400, 4), shape=(1, 3)), 0, 7).is_dense
    assert interop.borrow(Interface(strides=(1, 1), shape=(0, 3), data=(0, False)), 0, 7).is_dense


@pytest.mark.usefixtures("ordered")
@pytest.mark.parametrize(
    ("more", "device", "message"),
    [
        ({"mask": object()}, 0, "has a mask"),
        ({"stream": 0}, 0, "stream=0 says nothing"),
        ({"typestr": "<M8[s]"}, 0, "has no counterpart"),
        ({}, 1, "is on cuda:0, not on cuda:1"),
    ],
)
def test_arrays_that_cannot_be_borrowed(more: dict[str, Any], device: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        interop.borrow(Interface(**more), device, 1)


def test_elements_that_aicore_lacks_cannot_be_borrowed() -> None:
    class Wide:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, *, stream: int) -> Any:
            return native.make_dlpack(64, (1,), (2, 128), (2, 0), self, False)

    with pytest.raises(InputError, match=r"of a type that aicore lacks: DLPack \(2, 128, 1\)"):
        interop.borrow(Wide(), 0, 1)
