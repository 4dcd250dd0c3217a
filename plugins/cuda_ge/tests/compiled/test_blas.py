"""Products by cuBLASLt: what the library is told, and the launch, with a stand-in for the library; see blas.cpp."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore.errors import ExecutionError
from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, KernelTable
from aicore.ops.activation import Gelu, Relu
from aicore.ops.fused_linear import GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm, MatMul
from aicore.runtime import ReferenceEvaluator, type_of
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cuda_ge.kernels import _blas as blas
from aicore_cuda_ge.kernels import _blas_product, products
from aicore_cuda_ge.kernels._machine import Machine

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    made = tmp_path_factory.mktemp("blas") / "libcublasLt.so.13"
    source = Path(__file__).with_name("blas.cpp")
    subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    return str(made)


@pytest.fixture(scope="module")
def host(build: Callable[..., Any]) -> Any:
    return build("kernels/gemm_blas.cu")


@pytest.fixture(autouse=True)
def _with_library(library: str, monkeypatch: pytest.MonkeyPatch, recorded: Any) -> Iterator[None]:
    monkeypatch.setattr(blas, "library_path", lambda: library)
    monkeypatch.setattr(_blas_product, "compiled", recorded)
    runtime = types.SimpleNamespace(getDevice=lambda: 0)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)))
    forget()
    yield
    forget()


def forget() -> None:
    for remembered in (blas.prepared, blas._library, blas._handle):
        remembered.cache_clear()


def named(op: type[Op], variant: str = "cublas") -> Kernel:
    return next(kernel for kernel in products.library_kernels(op) if kernel.variant == variant)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def exact(op: Op, *operands: Array) -> Array:
    evaluate = ReferenceEvaluator(KernelTable(all_kernels()))
    return evaluate(op, *(a.astype(np.float64) for a in operands))[0]


CASES: dict[str, tuple[Op, tuple[tuple[int, ...], ...]]] = {
    "plain": (MatMul(), ((5, 7), (7, 6))),
    "bias": (MatMulAdd(), ((5, 7), (7, 6), (6,))),
    "bias of a stack": (MatMulAdd(), ((2, 3, 7), (7, 6), (6,))),
    "bias and activation": (MatMulAddAct(Gelu()), ((5, 7), (7, 6), (6,))),
    "residual": (MatMulAddAct(Relu()), ((5, 7), (7, 6), (5, 6))),
    "batch": (MatMul(), ((3, 5, 7), (3, 7, 6))),
    "batch with one left": (MatMul(), ((1, 5, 7), (3, 7, 6))),
    "batch of residuals": (MatMulAdd(), ((3, 5, 7), (3, 7, 6), (3, 5, 6))),
    "one row": (MatMulAdd(), ((1, 7), (7, 6), (6,))),
    "one column": (MatMulAdd(), ((5, 7), (7, 1), (1,))),
    "scaled": (Gemm(alpha=0.5, beta=3.0), ((5, 7), (7, 6), (5, 6))),
    **{
        f"transposed {a}{b}": (
            GemmAct(Gemm(alpha=2.0, transA=a, transB=b), Relu()),
            ((7, 5) if a else (5, 7), (6, 7) if b else (7, 6), (6,)),
        )
        for a in (0, 1)
        for b in (0, 1)
    },
}


@pytest.mark.parametrize("note", CASES)
@pytest.mark.parametrize("variant", ["cublas", "cublas_tf32"])
def test_products(note: str, variant: str, host: Any) -> None:
    op, shapes = CASES[note]
    operands = tuple(normal(*shape) for shape in shapes)
    kernel = named(type(op), variant)
    assert kernel.reason_against(op, *map(type_of, operands)) is None
    (found,) = host.run(kernel, op, operands)
    np.testing.assert_allclose(found, exact(op, *operands), rtol=1e-5, atol=1e-5)


def test_activation_of_odd_counts_keeps_nan(host: Any) -> None:
    a, b = normal(3, 4), normal(4, 5)
    a[1, 2] = np.nan
    op = MatMulAddAct(Relu())
    (found,) = host.run(named(MatMulAddAct), op, (a, b, normal(5)))
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


REFUSALS: dict[str, tuple[Op, list[TensorType], str]] = {
    "two batch axes": (
        MatMul(),
        [TensorType("float32", (2, 1, 5, 7)), TensorType("float32", (1, 3, 7, 6))],
        "one batch axis",
    ),
    "nothing": (MatMul(), [TensorType("float32", (0, 7)), TensorType("float32", (7, 6))], "at least 1"),
    "a column": (MatMulAdd(), [TensorType("float32", s) for s in ((5, 7), (7, 6), (5, 1))], "as a row"),
    "a scaled row": (Gemm(beta=2.0), [TensorType("float32", s) for s in ((5, 7), (7, 6), (6,))], "as a row"),
    "narrow activation": (
        MatMulAddAct(Gelu()),
        [TensorType("float16", s) for s in ((5, 7), (7, 6), (6,))],
        "rounded twice",
    ),
}


@pytest.mark.parametrize("note", REFUSALS)
def test_refusals(note: str) -> None:
    op, given, reason = REFUSALS[note]
    assert reason in str(named(type(op)).reason_against(op, *given))


def test_older_gpus_and_missing_libraries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [TensorType("float32", (5, 7)), TensorType("float32", (7, 6))]
    monkeypatch.setattr(_blas_product, "machine", lambda: Machine(capability=75))
    assert "8.0" in str(named(MatMul).reason_against(MatMul(), *given))
    monkeypatch.setattr(blas, "library_path", lambda: "")
    assert "not installed" in str(named(MatMul).reason_against(MatMul(), *given))
    with pytest.raises(ExecutionError, match="not installed"):
        blas._library()


def test_a_file_that_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "libcublasLt.so.13"
    empty.write_bytes(b"")
    monkeypatch.setattr(blas, "library_path", lambda: str(empty))
    with pytest.raises(ExecutionError, match="cannot be loaded"):
        blas._library()


def test_a_product_that_the_library_refuses(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blas_product, "_room", lambda product, dtype: 0)
    operands = (normal(5, 7), normal(7, 6))
    with pytest.raises(ExecutionError, match="no way to multiply 5 x 7 by 6"):
        host.run(named(MatMul), MatMul(), operands)


def test_status_of_the_library_is_told() -> None:
    with pytest.raises(ExecutionError, match="describing failed: cuBLASLt says 7"):
        blas._check(7, "describing")


def test_a_failed_call_is_an_error(host: Any) -> None:
    """The launch gives no success when the library does not."""
    a, b = normal(5, 7), normal(7, 6)
    (launch,) = named(MatMul).bind(MatMul(), [type_of(a), type_of(b)], [None, None])  # type: ignore[misc]
    params = bytearray(launch.params)
    params[7 * 8] ^= 1  # the algorithm
    out, room = np.zeros((5, 6), np.float32), np.zeros(4096, np.uint8)
    pointers = (ctypes.c_void_p * 4)(*(array.ctypes.data for array in (a, b, out, room)))
    status = host.library.run(b"gemm_blas", pointers, 4, bytes(params), ctypes.c_size_t(len(params)))
    assert status != 0
