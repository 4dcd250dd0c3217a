"""Generated gathers, run on the CPU: the reference's numbers, and what they report of indices that are out of range."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.ir import Op, TensorType, Value, as_tuple, numpy_dtype
from aicore.kernels import Kernel
from aicore.ops.gather import Gather, GatherElements, GatherND
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cuda_ge.codegen.compiler import Function, waits_first
from aicore_cuda_ge.codegen.gathering import gather_source
from aicore_cuda_ge.codegen.source import prelude
from aicore_cuda_ge.kernels import movement

Array = np.ndarray[Any, Any]
SHIM = Path(__file__).parent / "host_shim.hpp"


def gathered(op: Op, x: Array, indices: Array, folder: Path) -> tuple[Array, int]:
    """(result, fault)"""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    types = [type_of(x), type_of(indices)]
    (tensor,) = as_tuple(op.infer(*(Value("x", t) for t in types)))
    source = gather_source(op, *types, tensor)
    path = folder / f"{type(op).__name__}_{len(list(folder.iterdir()))}.cpp"
    text = [f'#include "{SHIM}"', prelude(), source.text, f"HOST_LAUNCH({source.name})", ""]
    path.write_text("\n".join(text), encoding="utf-8")
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas", str(path)]
    subprocess.run([*command, "-o", str(path.with_suffix(".so"))], check=True)
    launch = getattr(ctypes.CDLL(str(path.with_suffix(".so"))), f"{source.name}_launch")
    y, fault = np.zeros(tensor.static_shape, numpy_dtype(tensor.dtype)), np.zeros(1, np.int64)
    x, indices = (np.ascontiguousarray(a) for a in (x, indices))
    pointers = (ctypes.c_void_p * 4)(*(a.ctypes.data for a in (x, indices, y, fault)))
    launch(pointers, ctypes.c_longlong(source.count), source.grid[0], source.block[0])
    return y, int(fault[0])


X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
CASES: list[tuple[Op, Any]] = [
    (Gather(0), [[2, 0], [-1, -3]]),
    (Gather(1), [3, -4]),
    (Gather(2), [[4], [-5]]),
    (GatherElements(1), [[[0, 3, -1, -4, 2]], [[1] * 5], [[-1] * 5]]),
    (GatherND(), [[2, 3], [-3, -4]]),
    (GatherND(1), [[3], [-4], [0]]),
]


@pytest.mark.parametrize(("op", "indices"), CASES, ids=str)
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_indices_in_range(op: Op, indices: Any, dtype: str, tmp_path: Path, evaluate: ReferenceEvaluator) -> None:
    places = np.array(indices, dtype)
    found, fault = gathered(op, X, places, tmp_path)
    np.testing.assert_array_equal(found, evaluate(op, X, places)[0])
    assert fault == 0


@pytest.mark.parametrize(("op", "indices"), CASES, ids=str)
@pytest.mark.parametrize("wrong", [5, -6, 2**62, -(2**63)])
def test_indices_out_of_range_are_reported(op: Op, indices: Any, wrong: int, tmp_path: Path) -> None:
    places = np.array(indices, np.int64)
    places.flat[-1] = wrong
    found, fault = gathered(op, X, places, tmp_path)
    assert fault == wrong
    assert np.isin(found, X).all(), "memory of others was read"


def kernels() -> Sequence[Kernel]:
    return [kernel for kernel in movement.KERNELS if kernel.variant == "gather"]


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.op.__name__)
def test_launches_report_and_begin_early(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[str, str]] = []

    def load(text: str, name: str) -> Function:
        loaded.append((text, name))
        return Function(1234, None, waits_first(text, name))

    monkeypatch.setattr(movement, "load", load)
    assert kernel.bind is not None
    (call,) = kernel.bind(kernel.op(), [TensorType("float32", (5, 3)), TensorType("int64", (2, 1))], [None, None])
    assert call.early
    assert call.reports.format(value=7) == "index 7 is out of range"


def test_operands_without_elements_are_left_to_other_devices() -> None:
    kernel = next(k for k in kernels() if k.op is Gather)
    none, two = TensorType("float32", (0, 3)), TensorType("int64", (2,))
    assert kernel.reason_against(Gather(0), none, two) == "every index is out of range"
    assert kernel.reason_against(Gather(1), none, two) is None
    assert kernel.reason_against(Gather(0), none, TensorType("int64", (0,))) is None
