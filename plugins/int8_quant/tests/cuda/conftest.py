"""CUDA kernels on the CPU: the same sources through g++, with fibers for threads, and what `bind` returns."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value, as_tuple, numpy_dtype
from aicore.kernels import Kernel
from aicore.runtime import type_of

Array = np.ndarray[Any, Any]
_HERE = Path(__file__).parent
_SOURCES = _HERE.parents[1] / "csrc"
_HEADERS = _HERE.parents[2] / "cuda_ge" / "tests" / "compiled" / "headers"
_GUARD = 64
"""Bytes after each result and the workspace that nobody may write."""
_EXTENSION = "aicore_int8_quant._int8_kernels"


class _Names(dict[str, str]):
    """Stands in for the table of capsules: a kernel is its name."""

    def __missing__(self, name: str) -> str:
        return name


def _stand_in() -> None:
    """Lets the modules that choose launches be imported where no kernel was compiled."""
    if importlib.util.find_spec(_EXTENSION) is not None:
        return
    module = ModuleType(_EXTENSION)
    module.__spec__ = ModuleSpec(_EXTENSION, None)
    vars(module).update(kernels=_Names, facts=lambda: None)
    sys.modules[_EXTENSION] = module
    try:
        importlib.import_module("aicore_int8_quant.cuda.launch")
    finally:
        del sys.modules[_EXTENSION]


_stand_in()


@cache
def missing_device() -> str:
    """Why no kernel can run on a GPU here; empty when one can."""
    if importlib.util.find_spec(_EXTENSION) is None:
        return "the CUDA kernels were not built; AICORE_INT8_CUDA=1 builds them"
    try:
        importlib.import_module("cupy")
        native = importlib.import_module("aicore_cuda_ge._graph_executor")
    except ImportError as error:
        return str(error)
    count, reason = native.device_count()
    return "" if count else f"no GPU: {reason}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    on_device = any(item.get_closest_marker(name) for name in ("gpu", "sanitize"))
    if on_device and missing_device():
        pytest.skip(missing_device())


@dataclass(frozen=True)
class HostKernels:
    """Some .cu files, as a library for this machine's processor."""

    library: ctypes.CDLL

    def run(self, kernel: Kernel, op: Op, operands: Sequence[Array | None], **settings: Any) -> list[Array]:
        """The results by what `bind` launches; weights are not constant, so that they are packed by a kernel, too."""
        given = [None if a is None else type_of(a) for a in operands]
        types = as_tuple(op.infer(*(None if t is None else Value("x", t) for t in given)))
        assert kernel.bind is not None
        bound: Any = kernel.bind(op, given, [None] * len(given), **settings)
        results = [_guarded(t) for t in types]
        pointers: list[Array | None] = [None if a is None else np.ascontiguousarray(a) for a in operands]
        pointers += results
        if kernel.workspace is not None:
            pointers.append(_aligned(kernel.workspace(op, *given, **settings) + _GUARD))
        for launch in bound:
            self.launch(launch, pointers)
        if kernel.workspace is not None:
            room = pointers[-1]
            assert room is not None
            assert np.all(room[-_GUARD:] == 0xFF), "written beyond the workspace"
        return [_opened(result, t) for result, t in zip(results, types, strict=True)]

    def launch(self, launch: Any, pointers: Sequence[Array | None]) -> None:
        addresses = (ctypes.c_void_p * len(pointers))(*(None if a is None else a.ctypes.data for a in pointers))
        size = ctypes.c_size_t(len(launch.params))
        name = str(launch.kernel) if isinstance(launch.kernel, str) else _name(launch.kernel)
        status = self.library.run(name.encode(), addresses, ctypes.c_size_t(len(pointers)), launch.params, size)
        assert status == 0, f"{name} gave {status}"


def _name(capsule: Any) -> str:
    """Of a real capsule, by the table that it comes from."""
    from aicore_int8_quant.cuda.launch import _CAPSULES

    return next(name for name, one in _CAPSULES.items() if one is capsule)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., HostKernels]:
    """Compiles .cu files of csrc, and files of this folder beside them."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    folder = tmp_path_factory.mktemp("host_kernels")
    flags = ["-std=c++17", "-O1", "-fPIC", "-w", "-D__CUDACC__", "-fno-extern-tls-init", "-ffp-contract=off"]
    include = [f"-I{_HEADERS}", f"-I{_SOURCES}", "-include", str(_HERE / "host_device.hpp"), "-xc++", "-c"]

    def compile_one(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        if not made.exists():
            emulated = ["-DINT8_EMULATED"] if any(one in source.stem for one in ("mma", "warpgroup")) else []
            subprocess.run([compiler, *flags, *emulated, *include, str(source), "-o", str(made)], check=True)
        return made

    def make(*names: str, beside: Sequence[str] = ("host_run.cpp",)) -> HostKernels:
        sources = [*(_SOURCES / f"{name}.cu" for name in names), *(_HERE / name for name in beside)]
        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(compile_one, sources))
        library = folder / f"lib{'_'.join(one.stem for one in sources)}.so"
        subprocess.run([compiler, "-shared", "-o", str(library), *map(str, objects)], check=True)
        return HostKernels(ctypes.CDLL(str(library)))

    return make


def _aligned(count: int) -> Array:
    """Bytes that begin at a multiple of 64, all ones."""
    raw = np.full(count + 64, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count]


def _guarded(tensor: TensorType) -> Array:
    dtype = numpy_dtype(tensor.dtype)
    return _aligned(int(np.prod(tensor.static_shape)) * dtype.itemsize + _GUARD)


def _opened(raw: Array, tensor: TensorType) -> Array:
    assert np.all(raw[-_GUARD:] == 0xFF), "written beyond the end"
    return raw[:-_GUARD].view(numpy_dtype(tensor.dtype)).reshape(tensor.static_shape)
