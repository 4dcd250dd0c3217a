"""A stand-in for the GPU: launch lists that run on the host, in Python, so that all above them is tested anywhere."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
from aicore.config import Config
from aicore.errors import OutOfMemoryError
from aicore.ir import Graph
from aicore.kernels import Kernel, kernel
from aicore.ops.arithmetic import Add, Mul
from aicore.ops.elementwise import Neg
from aicore.plugins import PluginRegistry, Probe, hookimpl
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Compiled, Eager
from aicore_cuda_ge.device import CudaDevice
from aicore_cuda_ge.executable import CudaExecutable
from aicore_cuda_ge.graph_cache import GraphCache

Array = np.ndarray[Any, Any]
_CAPSULE = b"aicore_cuda_kernel_v1"
_open_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_open_capsule.restype, _open_capsule.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _KernelStruct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("version", "params", "pointers", "reserved")),
        ("name", ctypes.c_char_p),
    )


def _run_compiled(capsule: Any, pointers: Sequence[int], params: bytes) -> None:
    struct = _KernelStruct.from_address(_open_capsule(capsule, _CAPSULE))
    numbers = np.frombuffer(params, np.int64)
    if struct.name == b"copy":
        ctypes.memmove(pointers[1], pointers[0], int(numbers[0]))
    elif struct.name == b"fill":
        ctypes.memset(pointers[0], int(numbers[1]), int(numbers[0]))
    else:
        raise NotImplementedError(struct.name)


class HostLaunchList:
    """What a LaunchList does, at once and on the host. Kernels are functions of pointers and params."""

    made: list[HostLaunchList] = []  # noqa: RUF012  # of the test that runs; the fixture empties it

    def __init__(self, device: int, stream: int = 0) -> None:
        self.stream = stream or 1000 + len(self.made)
        self.launches: list[tuple[Any, list[int], bytes, str]] = []
        self.inputs: list[tuple[int, int, int]] = []
        self.outputs: list[tuple[int, int, int]] = []
        self.kept: list[Any] = []
        self.replays = 0
        self.captured = self.closed = False
        self.streams: list[int] = []
        self.runs: Any = None
        self._faults: list[Any] = []
        self.made.append(self)

    def add_kernel(self, kernel: Any, pointers: Sequence[int], params: bytes, label: str) -> None:
        assert not self.captured
        self.launches.append((kernel, list(pointers), params, label))

    def add_input(self, argument: int, fixed: int, nbytes: int) -> None:
        self.inputs.append((argument, fixed, nbytes))

    def add_output(self, argument: int, fixed: int, nbytes: int) -> None:
        self.outputs.append((argument, fixed, nbytes))

    def add_fault(self) -> int:
        self._faults.append(ctypes.c_int64(0))
        return ctypes.addressof(self._faults[-1])

    def take_faults(self) -> list[tuple[int, int]]:
        found = [(i, fault.value) for i, fault in enumerate(self._faults) if fault.value]
        for fault in self._faults:
            fault.value = 0
        return found

    def count_in(self, runs: Any) -> None:
        self.runs = runs

    def keep(self, owner: Any) -> None:
        self.kept.append(owner)

    def capture(self) -> None:
        self.captured = True

    def place(self, inputs: Sequence[int]) -> None:
        for argument, fixed, nbytes in self.inputs:
            ctypes.memmove(fixed, inputs[argument], nbytes)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], stream: int = 0) -> None:
        assert not self.closed
        self.place(inputs)
        self._launch(stream)
        for argument, fixed, nbytes in self.outputs:
            ctypes.memmove(outputs[argument], fixed, nbytes)

    def replay(self, stream: int) -> int:
        if self.closed:
            return 1
        if any(fault.value for fault in self._faults):
            return 2
        self._launch(stream)
        return 0

    def wait(self, stream: int) -> None:
        """All is done at once."""

    def close(self) -> None:
        self.closed = True
        self.kept.clear()

    def time_launch(self, index: int) -> float:
        self._call(*self.launches[index][:3])
        return 2.0

    def time_replay(self, repeats: int) -> float:
        assert self.captured
        assert not self.closed
        for launch in self.launches:
            self._call(*launch[:3])
        return 3.0

    time_bare = time_replay

    def __len__(self) -> int:
        return len(self.launches)

    def _launch(self, stream: int) -> None:
        assert self.captured
        self.streams.append(stream)
        self.replays += 1
        if self.runs is not None:
            self.runs.value += 1
        for launch in self.launches:
            self._call(*launch[:3])

    def _call(self, kernel: Any, pointers: list[int], params: bytes) -> None:
        if callable(kernel):
            kernel(pointers, params)
        else:
            _run_compiled(kernel, pointers, params)


class HostCounter:
    value = 0


class HostPool:
    """Memory of the host, aligned as the device's, up to a limit."""

    def __init__(self, make_room: Callable[[], bool]) -> None:
        self.bound = 1 << 40
        self.used = 0
        self._make_room = make_room

    def allocate(self, nbytes: int) -> Any:
        if self.used + nbytes > self.bound:
            self._make_room()
        if self.used + nbytes > self.bound:
            raise OutOfMemoryError(f"no room for {nbytes:,} bytes")
        return _Block(self, nbytes)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        block = self.allocate(int(np.prod(shape)) * dtype.itemsize)
        return DeviceArray(block.ptr, shape, dtype, 0, block)

    def release(self) -> None:
        """Blocks are given back when they are freed."""


class _Block:
    def __init__(self, pool: HostPool, nbytes: int) -> None:
        self._pool, self._nbytes = pool, nbytes
        self._bytes = np.full(nbytes + 512, 0xA5, np.uint8)
        self.ptr = -(-self._bytes.ctypes.data // 512) * 512
        pool.used += nbytes

    def __del__(self) -> None:
        self._pool.used -= self._nbytes


class HostDevice(CudaDevice):
    """cuda:0 in memory of the host."""

    def __init__(self, graphs: int = 64) -> None:
        self.index, self.name = 0, "cuda:0"
        self.facts = {"name": "host", "major": 9, "minor": 0, "l2": 4096}
        self.entered = 0
        self.__dict__["graphs"] = GraphCache(graphs)
        self.__dict__["pool"] = HostPool(self.graphs.clear)

    def current(self) -> AbstractContextManager[Any]:
        self.entered += 1
        return nullcontext()

    @property
    def fingerprint(self) -> str:
        return "host"


def view(address: int, count: int, dtype: Any = np.float32) -> Array:
    """The memory there."""
    kind = np.dtype(dtype)
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind)


def _elementwise(function: Callable[..., Array], operands: int) -> Callable[..., Compiled]:
    def bind(op: Any, types: Sequence[Any], constants: Sequence[Any]) -> Compiled:
        count = int(np.prod(types[0].static_shape))

        def run(pointers: Sequence[int], params: bytes) -> None:
            view(pointers[operands], count)[...] = function(*(view(p, count) for p in pointers[:operands]))

        return Compiled(run)

    return bind


def _eager_mul(op: Any, types: Sequence[Any], constants: Sequence[Any]) -> Eager:
    def run(stream: int, x: DeviceArray, y: DeviceArray, result: DeviceArray) -> None:
        x_, y_, result_ = (view(a.address, a.size) for a in (x, y, result))
        if (x_ == 13).any():
            raise ValueError("thirteen")
        result_[...] = x_ * y_

    return Eager(run)


def _checked_neg(op: Any, types: Sequence[Any], constants: Sequence[Any]) -> Compiled:
    count = int(np.prod(types[0].static_shape))

    def run(pointers: Sequence[int], params: bytes) -> None:
        x = view(pointers[0], count)
        view(pointers[1], count)[...] = -x
        for wrong in x[x < 0]:
            view(pointers[2], 1, np.int64)[0] = int(wrong)

    return Compiled(run, reports="{value} is negative")


def _never(op: Any, *operands: Any, out: Any) -> None:
    raise NotImplementedError


KERNELS = [
    kernel(Add, device="cuda", variant="host", bind=_elementwise(np.add, 2), inplace=True)(_never),
    kernel(Mul, device="cuda", variant="eager", bind=_eager_mul)(_never),
    kernel(Neg, device="cuda", variant="checked", bind=_checked_neg)(_never),
]


class HostPlugin:
    """The hooks."""

    def __init__(self, device: HostDevice, kernels: Sequence[Kernel]) -> None:
        self.device, self.kernels = device, list(kernels)
        self.launched: list[CudaExecutable] = []

    @hookimpl
    def probe(self) -> Probe:
        return Probe(devices=(self.device,))

    @hookimpl
    def register_kernels(self) -> list[Kernel]:
        return self.kernels

    @hookimpl
    def launch(self, plan: Any) -> CudaExecutable:
        self.launched.append(CudaExecutable(plan, self.device))
        return self.launched[-1]


class HostMachine:
    """A machine with HostDevice as its only GPU. lists: every launch list that was made."""

    lists = HostLaunchList.made
    view = staticmethod(view)

    def plugin(self, graphs: int = 64) -> HostPlugin:
        return HostPlugin(HostDevice(graphs), KERNELS)

    def compiled(self, plugin: HostPlugin, graph: Graph, fallback: Any = "error", **options: Any) -> aicore.Program:
        plugins = {"cpu_numpy": aicore_cpu_numpy.plugin, "host": plugin}
        registry = PluginRegistry.from_modules(plugins, config=Config())
        return aicore.compile(graph, "cuda:0", registry=registry, fallback=fallback, optimize=False, **options)


def _copied(to: int, source: int, nbytes: int, *place: int, **named: int) -> None:
    ctypes.memmove(to, source, nbytes)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> HostMachine:
    """The machine, with the extension and CuPy as its GPU needs them."""
    monkeypatch.setenv("AICORE_TUNE", "off")
    HostLaunchList.made.clear()
    monkeypatch.setattr(native, "LaunchList", HostLaunchList)
    monkeypatch.setattr(native, "Counter", HostCounter)
    for name in ("upload", "download", "duplicate", "duplicate_on"):
        monkeypatch.setattr(native, name, _copied)
    monkeypatch.setattr(native, "synchronize_stream", lambda device, stream: None)
    monkeypatch.setattr(native, "device_of", lambda address: 0)
    monkeypatch.setattr(native, "addresses_of", lambda arrays: [array.ctypes.data for array in arrays], raising=False)
    fake = types.ModuleType("cupy")
    fake.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        Stream=types.SimpleNamespace(from_external=lambda stream: nullcontext(stream.__cuda_stream__())),
        memory=types.SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (Exception,), {})),
        nvtx=types.SimpleNamespace(available=False),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    return HostMachine()
