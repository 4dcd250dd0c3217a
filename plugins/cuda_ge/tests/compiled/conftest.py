"""Runs compiled kernels on the CPU: the same sources through g++, with fibers for threads, and what `bind` returns."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value, as_tuple, numpy_dtype
from aicore.kernels import Kernel
from aicore.runtime import type_of

Array = np.ndarray[Any, Any]
_HEADERS = Path(__file__).parent / "headers"
_SOURCES = Path(__file__).parents[2] / "graph_executor"
_GUARD = 64
"""Bytes after each result that nobody may write."""


@dataclass(frozen=True)
class Launch:
    """What `calls.compiled` would make, by name; `extra` are arrays of this machine."""

    name: str
    params: bytes
    pick: tuple[int, ...] | None = None
    extra: tuple[Array, ...] = ()
    reports: str = ""


@pytest.fixture(name="recorded", scope="session")
def _recorded() -> Callable[..., Launch]:
    """Stands in for `calls.compiled`."""
    return record


def record(
    name: str,
    params: Sequence[int | float] = (),
    extra: Sequence[Any] = (),
    pick: tuple[int, ...] | None = None,
    reports: str = "",
) -> Launch:
    from aicore_cuda_ge.calls import pack  # here, so that pytest can read this file where the plugin is not installed

    return Launch(name, pack(params), pick, tuple(extra), reports)


@dataclass(frozen=True)
class HostKernels:
    """Kernels of some .cu files, as a library for this machine's processor."""

    library: ctypes.CDLL
    fault: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    """What launches with `reports` say."""

    def run(self, kernel: Kernel, op: Op, operands: Sequence[Array | None], **settings: Any) -> list[Array]:
        """The results of an op by what the kernel's `bind` launches; every result is surrounded by guards."""
        given = [None if a is None else type_of(a) for a in operands]
        types = as_tuple(op.infer(*(None if t is None else Value("x", t) for t in given)))
        assert kernel.bind is not None
        bound: Any = kernel.bind(op, given, [None] * len(given), **settings)
        results = [_guarded(t) for t in types]
        pointers: list[Array | None] = [None if a is None else np.ascontiguousarray(a) for a in operands]
        pointers += results
        if kernel.workspace is not None:
            pointers.append(np.full(kernel.workspace(op, *given, **settings) + 64, 0xFF, np.uint8))
        for launch in bound if isinstance(bound, tuple) else (bound,):
            self.launch(launch, pointers)
        return [_opened(result, t) for result, t in zip(results, types, strict=True)]

    def launch(self, launch: Launch, pointers: Sequence[Array | None]) -> None:
        pointers = [*pointers, *launch.extra]
        if launch.pick is not None:
            pointers = [None if at < 0 else pointers[at] for at in launch.pick]
        if launch.reports:
            pointers = [*pointers, self.fault]
        addresses = (ctypes.c_void_p * len(pointers))(*(None if a is None else a.ctypes.data for a in pointers))
        status = self.library.run(
            launch.name.encode(), addresses, len(pointers), launch.params, ctypes.c_size_t(len(launch.params))
        )
        assert status == 0, f"{launch.name} gave {status}"


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., HostKernels]:
    """Compiles .cu files, named relative to graph_executor."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    folder = tmp_path_factory.mktemp("host_kernels")

    def make(*names: str) -> HostKernels:
        sources = [_SOURCES / name for name in (*names, "ge/table.cpp")] + [_HEADERS / "run.cpp"]
        objects = [folder / f"{source.stem}.o" for source in sources]
        flags = [
            "-std=c++17",
            "-O1",
            "-fPIC",
            "-w",
            "-D__CUDACC__",
            "-fno-extern-tls-init",
            f"-I{_HEADERS}",
            f"-I{_SOURCES}",
            "-xc++",
            "-c",
        ]

        def compile_one(source: Path, made: Path) -> None:
            if not made.exists():
                subprocess.run([compiler, *flags, str(source), "-o", str(made)], check=True)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(compile_one, sources, objects))
        library = folder / f"lib{'_'.join(Path(name).stem for name in names)}.so"
        subprocess.run([compiler, "-shared", "-o", str(library), *map(str, objects)], check=True)
        return HostKernels(ctypes.CDLL(str(library)))

    return make


def _guarded(tensor: TensorType) -> Array:
    dtype = numpy_dtype(tensor.dtype)
    return np.full(int(np.prod(tensor.static_shape)) * dtype.itemsize + _GUARD, 0xFF, np.uint8)


def _opened(raw: Array, tensor: TensorType) -> Array:
    assert np.all(raw[-_GUARD:] == 0xFF), "written beyond the end"
    return raw[:-_GUARD].view(numpy_dtype(tensor.dtype)).reshape(tensor.static_shape)
