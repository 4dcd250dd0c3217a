"""Matrix products, and the determinant."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.matmul import Det, Gemm, MatMul
from aicore_cpu_numpy.reference._precision import Array, widen
from aicore_cpu_numpy.reference.cast import convert


@kernel(MatMul, device="cpu")
def matmul(op: MatMul, a: Array, b: Array) -> Any:
    return np.matmul(widen(a), widen(b)).astype(a.dtype, copy=False)


@kernel(Gemm, device="cpu")
def gemm(op: Gemm, a: Array, b: Array, c: Array | None = None) -> Any:
    left = a.T if op.transA else a
    right = b.T if op.transB else b
    y = np.matmul(widen(left), widen(right))
    if a.dtype.kind in "iu" and (op.alpha, op.beta) != (1, 1):
        scaled = op.alpha * y.astype(np.float64) + (0 if c is None else op.beta * c.astype(np.float64))
        return convert(scaled, a.dtype.name)
    scale = y.dtype.type
    y = scale(op.alpha) * y
    if c is not None:
        y = y + scale(op.beta) * widen(c)
    return y.astype(a.dtype, copy=False)


@kernel(Det, device="cpu")
def det(op: Det, x: Array) -> Any:
    return np.linalg.det(widen(x)).astype(x.dtype, copy=False)


KERNELS: tuple[Kernel, ...] = (matmul, gemm, det)
