"""Runs generated kernels on the CPU: the same source, compiled by g++ and called thread by thread."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value, as_tuple, numpy_dtype
from aicore.kernels import REFERENCE, KernelTable
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels

if TYPE_CHECKING:  # pytest reads this file where the plugin is not installed, too
    from aicore_cuda_ge.codegen.source import Source

Array = np.ndarray[Any, Any]
_SHIM = Path(__file__).parent / "host_shim.hpp"
_GUARD = 64
"""Bytes after each array that nobody may write."""


@dataclass(frozen=True)
class Task:
    """An op on operands, and the source for it; None when there is nothing to compute."""

    op: Op
    operands: tuple[Array | None, ...]
    types: tuple[TensorType, ...]
    source: Source | None

    @classmethod
    def of(cls, op: Op, operands: Sequence[Array | None]) -> Task:
        from aicore_cuda_ge.codegen.chain import chain_of
        from aicore_cuda_ge.codegen.source import source_of

        given = [None if a is None else type_of(a) for a in operands]
        types = as_tuple(op.infer(*(None if t is None else Value("x", t) for t in given)))
        if not all(t.size for t in types):
            return cls(op, tuple(operands), types, None)
        chain = chain_of(op, given)
        digest = hashlib.blake2b(source_of(chain, "kernel").text.encode(), digest_size=8).hexdigest()
        return cls(op, tuple(operands), types, source_of(chain, f"kernel_{digest}"))


@dataclass
class HostKernels:
    """The kernels of the tasks, compiled together into one library."""

    tasks: Sequence[Task]
    folder: Path
    library: ctypes.CDLL = field(init=False)

    def __post_init__(self) -> None:
        from aicore_cuda_ge.codegen.source import prelude

        sources = {task.source.name: task.source for task in self.tasks if task.source is not None}
        launchers = [f"HOST_LAUNCH({name})" for name in sources]
        parts = [f'#include "{_SHIM}"', prelude(), *(source.text for source in sources.values()), *launchers, ""]
        path = self.folder / f"kernels_{len(list(self.folder.iterdir()))}.cpp"  # a loader knows a library by its name
        path.write_text("\n".join(parts), encoding="utf-8")
        options = [
            "-std=c++17",
            "-O1",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wextra",
            "-Wno-unknown-pragmas",
        ]
        command = ["g++", *options, str(path), "-o", str(path.with_suffix(".so"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"g++ refuses generated source: {done.stderr[:4000]}")
        self.library = ctypes.CDLL(str(path.with_suffix(".so")))

    def run(self, task: Task, blocks: int = 0) -> tuple[Array, ...]:
        """The results; any number of blocks must give the same, 0 stands for the source's own."""
        from aicore_cuda_ge.codegen.source import THREADS

        shapes = [(t.static_shape, numpy_dtype(t.dtype)) for t in task.types]
        source = task.source
        if source is None:
            return tuple(np.empty(shape, dtype) for shape, dtype in shapes)
        arrays = [None if a is None else np.array(a, order="C") for a in task.operands]
        room = [np.full(int(np.prod(shape)) * dtype.itemsize + _GUARD, 0xA5, np.uint8) for shape, dtype in shapes]
        addresses = [None if a is None else a.ctypes.data for a in (*arrays, *room)]
        launch = getattr(self.library, f"{source.name}_launch")
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        launch(pointers, ctypes.c_longlong(source.count), blocks or source.blocks, THREADS)
        assert all((written[-_GUARD:] == 0xA5).all() for written in room), "a kernel wrote behind its result"
        return tuple(w[:-_GUARD].view(dtype).reshape(shape) for w, (shape, dtype) in zip(room, shapes, strict=True))


@pytest.fixture
def task() -> Callable[[Op, Sequence[Array | None]], Task]:
    """`(op, operands) -> Task`"""
    return Task.of


@pytest.fixture
def host_kernels(tmp_path: Path) -> Callable[[Sequence[Task]], HostKernels]:
    """`(tasks) -> HostKernels`; skips without a host compiler."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    return lambda tasks: HostKernels(tasks, tmp_path)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def evaluate() -> ReferenceEvaluator:
    """`(op, *arrays) -> results` of the reference kernels."""
    return ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
