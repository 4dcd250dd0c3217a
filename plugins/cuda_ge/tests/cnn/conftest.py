"""Runs what `bind` returns on the host: kernels of convolutions and pools, compiled by g++ for an emulated device."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Op, as_tuple, numpy_dtype
from aicore.kernels import REFERENCE, Kernel, KernelTable
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
Arrays = Sequence[Array | None]
Results = tuple[Array, ...]

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def host_kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The library of tests/cnn/host_kernels.cpp."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ to compile kernels for the host")
    library = tmp_path_factory.mktemp("host") / "host_kernels.so"
    sources = HERE.parents[1] / "graph_executor"
    options = [
        "-std=c++17",
        "-O1",
        "-Wno-unknown-pragmas",
        "-shared",
        "-fPIC",
        "-I",
        str(sources),
        "-I",
        str(HERE.parent / "compiled" / "headers"),
    ]
    subprocess.run([compiler, *options, str(HERE / "host_kernels.cpp"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="session")
def run_kernel(host_kernels: ctypes.CDLL) -> Callable[..., Results | str]:
    """`(kernel, op, arrays, **settings) -> results`, or the kernel's reason not to run.

    Outputs and workspace start out as rubbish. Weights are no constants, so packing is among the launches.
    """

    def run(kernel: Kernel, op: Op, arrays: Arrays, **settings: Any) -> Results | str:
        builder = Builder()
        values = [None if a is None else builder.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays)]
        results = as_tuple(builder.apply(op, *values))
        op = builder.nodes[-1].op
        types = [None if v is None else v.type for v in values]
        reason = kernel.reason_against(op, *types)
        if reason is not None:
            return reason
        chosen = {**kernel.settings[0], **settings}
        outputs = tuple(_rubbish(v.type.static_shape, numpy_dtype(v.dtype)) for v in results)
        buffers = [None if a is None else _aligned(a) for a in arrays] + list(outputs)
        if kernel.workspace is not None:
            buffers.append(_rubbish((kernel.workspace(op, *types, **chosen) // 4,), np.dtype(np.float32)))
        addresses = [None if b is None else b.ctypes.data for b in buffers]
        from aicore_cuda_ge.calls import picked  # here, so that pytest can read this file without the plugin

        bound = kernel.bind(op, types, [None] * len(types), **chosen)  # type: ignore[misc]
        for call in bound if isinstance(bound, tuple) else (bound,):
            name = _name(call.kernel)
            wanted = getattr(host_kernels, f"size_of_{name}")()
            assert len(call.params) == wanted, f"{name}: {len(call.params)} bytes of params, the struct has {wanted}"
            given = picked(call, addresses)
            pointers = (ctypes.c_void_p * len(given))(*given)
            assert getattr(host_kernels, name)(pointers, call.params) == 0
        return outputs

    return run


@pytest.fixture(scope="session")
def reference() -> Callable[[Op, Arrays], Results]:
    """`(op, arrays) -> results` of the reference kernels alone, in float64 for float32."""
    evaluate = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))

    def run(op: Op, arrays: Arrays) -> Results:
        wide = [a.astype(np.float64) if a is not None and a.dtype == np.float32 else a for a in arrays]
        with np.errstate(all="ignore"):
            found: Results = evaluate(op, *wide)
        return found

    return run


def _name(capsule: Any) -> str:
    """Of the kernel in a capsule: the struct of aicore_cuda_launch.h has its name after four numbers."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = get(capsule, b"aicore_cuda_kernel_v1")
    return ctypes.c_char_p.from_address(address + 16).value.decode()  # type: ignore[union-attr]


def _rubbish(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return _aligned(np.full(shape, np.nan if dtype.kind == "f" else 77, dtype))


def _aligned(array: Array) -> Array:
    """A copy that begins at a multiple of 64 bytes, as every buffer of a device does."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found
