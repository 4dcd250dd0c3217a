"""Matrix products on BLAS, with what follows them done in place on the result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.fused_linear import GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm, MatMul
from aicore_cpu_numpy.fast import _epilogue

Array = np.ndarray[Any, Any]

DTYPES = frozenset({"float32", "float64"})
GEMM_RATE, MEMORY_RATE, CALL = 60e9, 8e9, 3e-6
"""For estimates: operations and bytes per second of two cores, and seconds of one NumPy call."""


def _static(op: Op, *types: TensorType | None) -> str | None:
    known = all(t is None or t.is_static for t in types)
    return None if known else "needs shapes that are known in numbers"


def _gemm_seconds(op: Op, a: TensorType, b: TensorType, c: TensorType | None = None) -> float:
    gemm = op.gemm if isinstance(op, GemmAct) else op
    rows, inner = a.static_shape[::-1] if getattr(gemm, "transA", 0) else a.static_shape
    columns = math.prod(b.static_shape) // max(inner, 1)
    return _seconds(rows * inner * columns, a, b)


def _matmul_seconds(op: Op, a: TensorType, b: TensorType, bias: TensorType | None = None) -> float:
    columns = b.static_shape[-1] if len(b.static_shape) > 1 else 1
    batch = math.prod(a.static_shape[:-2]) or math.prod(b.static_shape[:-2])
    shared = len(b.static_shape) <= 2
    calls = 1 if shared else batch
    return _seconds(math.prod(a.static_shape) * columns, a, b) + 1e-6 * calls


def _seconds(products: int, a: TensorType, b: TensorType) -> float:
    moved = (math.prod(a.static_shape) + math.prod(b.static_shape)) * numpy_dtype(a.dtype).itemsize
    return max(2 * products / GEMM_RATE, moved / MEMORY_RATE) + CALL


def _gemm_workspace(op: Gemm, a: TensorType, b: TensorType, c: TensorType | None = None) -> int:
    """Room for beta * c."""
    if c is None or op.beta == 1:
        return 0
    return math.prod(c.static_shape) * numpy_dtype(c.dtype).itemsize


def _multiply(a: Array, b: Array, out: Array) -> None:
    """out = a @ b; with one matrix for the whole batch, as one product."""
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous:
        rows = math.prod(a.shape[:-1])
        a, out = a.reshape(rows, a.shape[-1]), out.reshape(rows, b.shape[1])
    np.matmul(a, b, out=out)


def _gemm(op: Gemm, a: Array, b: Array, c: Array | None, out: Array, workspace: Array) -> None:
    np.matmul(a.T if op.transA else a, b.T if op.transB else b, out=out)
    if op.alpha != 1:
        np.multiply(out, op.alpha, out=out)
    if c is None:
        return
    if op.beta != 1:
        scaled = workspace[: c.nbytes].view(c.dtype).reshape(c.shape)
        c = np.multiply(c, op.beta, out=scaled)
    np.add(out, c, out=out)


@kernel(
    Gemm,
    device="cpu",
    variant="blas",
    dtypes=DTYPES,
    supports=_static,
    workspace=_gemm_workspace,
    estimate=_gemm_seconds,
)
def gemm_blas(op: Gemm, a: Array, b: Array, c: Array | None = None, *, out: Array, workspace: Array) -> None:
    _gemm(op, a, b, c, out, workspace)


@kernel(MatMul, device="cpu", variant="blas", dtypes=DTYPES, supports=_static, estimate=_matmul_seconds)
def matmul_blas(op: MatMul, a: Array, b: Array, *, out: Array) -> None:
    _multiply(a, b, out)


def _gemm_act_supports(op: GemmAct, *types: TensorType | None) -> str | None:
    return _static(op, *types) or _epilogue.reason_against(op.activation)


def _gemm_act_workspace(op: GemmAct, a: TensorType, b: TensorType, c: TensorType | None = None) -> int:
    rows = a.static_shape[1 if op.gemm.transA else 0]
    columns = b.static_shape[0 if op.gemm.transB else 1]
    scratch = _epilogue.scratch_bytes(op.activation, rows, columns, a.dtype)
    return max(_gemm_workspace(op.gemm, a, b, c), scratch)


@kernel(
    GemmAct,
    device="cpu",
    variant="blas",
    dtypes=DTYPES,
    supports=_gemm_act_supports,
    workspace=_gemm_act_workspace,
    estimate=_gemm_seconds,
)
def gemm_act_blas(op: GemmAct, a: Array, b: Array, c: Array | None = None, *, out: Array, workspace: Array) -> None:
    _gemm(op.gemm, a, b, c, out, workspace)
    _epilogue.finish(out[None], None, None, op.activation, workspace)


def _product_shape(a: TensorType, b: TensorType) -> tuple[int, ...]:
    left, right = a.static_shape, b.static_shape
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def _bias_reason(a: TensorType, b: TensorType, bias: TensorType) -> str | None:
    """Why the bias cannot be added in place, or None."""
    product = _product_shape(a, b)
    try:
        fits = np.broadcast_shapes(product, bias.static_shape) == product
    except ValueError:
        fits = False
    return None if fits else f"adds in place only what broadcasts to the product {product}, not {bias}"


def _matmul_add_supports(op: MatMulAdd, a: TensorType, b: TensorType, bias: TensorType) -> str | None:
    return _static(op, a, b, bias) or _bias_reason(a, b, bias)


def _matmul_add_act_supports(op: MatMulAddAct, a: TensorType, b: TensorType, bias: TensorType) -> str | None:
    return _static(op, a, b, bias) or _bias_reason(a, b, bias) or _epilogue.reason_against(op.activation)


def _matmul_add_act_workspace(op: MatMulAddAct, a: TensorType, b: TensorType, bias: TensorType) -> int:
    rows, columns = _as_rows(_product_shape(a, b))
    return _epilogue.scratch_bytes(op.activation, rows, columns, a.dtype)


def _as_rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """The shape as (rows, columns)."""
    columns = shape[-1] if shape else 1
    return math.prod(shape[:-1]), columns


@kernel(MatMulAdd, device="cpu", variant="blas", dtypes=DTYPES, supports=_matmul_add_supports, estimate=_matmul_seconds)
def matmul_add_blas(op: MatMulAdd, a: Array, b: Array, bias: Array, *, out: Array) -> None:
    _multiply(a, b, out)
    np.add(out, bias, out=out)


@kernel(
    MatMulAddAct,
    device="cpu",
    variant="blas",
    dtypes=DTYPES,
    supports=_matmul_add_act_supports,
    workspace=_matmul_add_act_workspace,
    estimate=_matmul_seconds,
)
def matmul_add_act_blas(op: MatMulAddAct, a: Array, b: Array, bias: Array, *, out: Array, workspace: Array) -> None:
    _multiply(a, b, out)
    np.add(out, bias, out=out)
    _epilogue.finish(out.reshape(1, *_as_rows(out.shape)), None, None, op.activation, workspace)


KERNELS: tuple[Kernel, ...] = (gemm_blas, matmul_blas, gemm_act_blas, matmul_add_blas, matmul_add_act_blas)
