"""Matrix products, and the determinant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import floats, integers
from aicore.ops.base import Simple, broadcast, ensure, need_dtype, need_rank, same_dim, same_dtype, shape_text
from aicore.ops.gradients import Given, Gradients, reshape_like, sum_to

MULTIPLIED = FLOATS | {"int32", "int64", "uint32", "uint64"}


@op_class
class MatMul(Op):
    """a @ b as numpy.matmul: leading dims broadcast, and a vector counts as a row on the left, a column on the right.

    Shapes (..., m, k) and (..., k, n) give (..., m, n); floats and 32- or 64-bit integers, which wrap.
    Raises InferenceError when inner dims differ or an operand has rank 0. Source: ONNX MatMul.
    """

    def infer(self, a: Value, b: Value) -> Types:
        need_dtype(a, MULTIPLIED)
        same_dtype(a, b)
        ensure(a.rank != 0 and b.rank != 0, f"wants rank 1 or more: {shape_text(a.shape)} @ {shape_text(b.shape)}")
        if a.shape is None or b.shape is None:
            return TensorType(a.dtype, None)
        inner = b.shape[0] if len(b.shape) == 1 else b.shape[-2]
        agree = same_dim(a.shape[-1], inner)
        ensure(agree, f"inner dimensions differ: {shape_text(a.shape)} @ {shape_text(b.shape)}")
        batch = broadcast(a.shape[:-2], b.shape[:-2]) or ()
        return TensorType(a.dtype, batch + a.shape[-2:-1] + (b.shape[-1:] if len(b.shape) > 1 else ()))

    def cost(self, a: Value, b: Value) -> tuple[Dim, Dim]:
        (result,) = as_tuple(self.infer(a, b))
        inner = 1 if a.shape is None else a.shape[-1]
        return result.size * inner * 2, moved_bytes(result, (a, b))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (a, b), (g,) = inputs, grads
        if a.rank is None or b.rank is None:
            raise UnsupportedError(f"the gradient of MatMul needs to know ranks: {a.type} @ {b.type}")
        row, column = a.rank == 1, b.rank == 1
        if column:
            b, g = op.Unsqueeze(b, axes=(1,)), op.Unsqueeze(g, axes=(-1,))
        if row:
            a, g = op.Unsqueeze(a, axes=(0,)), op.Unsqueeze(g, axes=(-2,))
        to_a, to_b = _gradients_of_product(op, a, b, g)
        return op.Squeeze(to_a, axes=(0,)) if row else to_a, op.Squeeze(to_b, axes=(1,)) if column else to_b

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (3, 4)), floats(rng, (4, 5))))
        yield Sample(cls(), (floats(rng, (17, 33)), floats(rng, (33, 19))), constant=(1,), note="constant weight")
        yield Sample(cls(), (floats(rng, (2, 1, 3, 4)), floats(rng, (5, 4, 2))), note="broadcast batch")
        yield Sample(cls(), (floats(rng, (2, 3, 4)), floats(rng, (4, 5))), constant=(1,), note="shared weight")
        yield Sample(cls(), (floats(rng, (4,)), floats(rng, (4,))), note="vector, vector")
        yield Sample(cls(), (floats(rng, (4,)), floats(rng, (2, 4, 3))), note="vector, matrices")
        yield Sample(cls(), (floats(rng, (2, 3, 4)), floats(rng, (4,))), note="matrices, vector")
        yield Sample(cls(), (floats(rng, (3, 0)), floats(rng, (0, 2))), note="nothing to sum: zeros")
        yield Sample(cls(), (floats(rng, (0, 4)), floats(rng, (4, 2))), note="zero size")
        yield Sample(
            cls(), (np.array([[np.nan, 1], [np.inf, 1]], np.float32), floats(rng, (2, 2))), note="NaN, infinity"
        )
        yield Sample(cls(), (integers(rng, (3, 4)), integers(rng, (4, 2))), note="int64")
        yield Sample(cls(), (integers(rng, (3, 4), dtype="int32"), integers(rng, (4, 2), dtype="int32")), note="int32")


@op_class
class Gemm(Op):
    """alpha * a' @ b' + beta * c, where a' and b' are transposed if transA and transB say so.

    Shapes: a' (m, k), b' (k, n), c broadcasts to (m, n) or is absent; floats and 32- or 64-bit integers. Integers are
    scaled in float64 and rounded towards zero, unless alpha and beta are 1.
    Raises InferenceError when inner dims differ, a rank is not 2, or c does not broadcast. Source: ONNX Gemm.
    """

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0  # noqa: N815 - the name in ONNX
    transB: int = 0  # noqa: N815

    def infer(self, a: Value, b: Value, c: Value | None = None) -> Types:
        need_dtype(a, MULTIPLIED)
        same_dtype(a, b, c)
        need_rank(a, 2)
        need_rank(b, 2)
        if a.shape is None or b.shape is None:
            return TensorType(a.dtype, None)
        rows, inner = a.shape[::-1] if self.transA else a.shape
        other, columns = b.shape[::-1] if self.transB else b.shape
        marks = f"{shape_text(a.shape)}{'ᵀ' if self.transA else ''} @ {shape_text(b.shape)}{'ᵀ' if self.transB else ''}"
        ensure(same_dim(inner, other), f"inner dimensions differ: {marks}")
        if c is not None and c.shape is not None:
            fits = len(c.shape) <= 2 and all(
                dim == 1 or same_dim(dim, wanted) for dim, wanted in zip(c.shape[::-1], (columns, rows), strict=False)
            )
            ensure(fits, f"c {shape_text(c.shape)} does not broadcast to {shape_text((rows, columns))}")
        return TensorType(a.dtype, (rows, columns))

    def cost(self, a: Value, b: Value, c: Value | None = None) -> tuple[Dim, Dim]:
        (result,) = as_tuple(self.infer(a, b, c))
        inner = 1 if a.shape is None else a.shape[0 if self.transA else 1]
        added = 0 if c is None else result.size
        return result.size * inner * 2 + added, moved_bytes(result, (a, b, c))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (a, b, c), (g,) = (*inputs, None)[:3], grads
        alpha, flip_a, flip_b = self.alpha, self.transA, self.transB
        if flip_a:
            to_a = op.Gemm(b, g, alpha=alpha, transA=flip_b, transB=1)
        else:
            to_a = op.Gemm(g, b, alpha=alpha, transB=1 - flip_b)
        if flip_b:
            to_b = op.Gemm(g, a, alpha=alpha, transA=1, transB=flip_a)
        else:
            to_b = op.Gemm(a, g, alpha=alpha, transA=1 - flip_a)
        if c is None:
            return to_a, to_b
        summed = sum_to(op, g, c)
        return to_a, to_b, summed if self.beta == 1 else op.Mul(summed, op.scalar(self.beta, g))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        a, b, c = floats(rng, (3, 4)), floats(rng, (4, 5)), floats(rng, (5,))
        yield Sample(cls(), (a, b, c), constant=(1, 2), note="constant weight and bias")
        yield Sample(cls(), (a, b, c))
        yield Sample(cls(), (a, b), note="no c")
        yield Sample(cls(0.25, 0.5, 1, 1), (floats(rng, (4, 3)), floats(rng, (5, 4)), c), note="all attributes")
        yield Sample(cls(transB=1), (floats(rng, (17, 33)), floats(rng, (19, 33)), floats(rng, (19,))), constant=(1, 2))
        yield Sample(cls(beta=0.5), (a, b, floats(rng, (3, 1))), note="c is a column")
        yield Sample(cls(), (a, b, floats(rng, (1, 5))), note="c is a row")
        yield Sample(cls(), (a, b, floats(rng, ())), note="c is a scalar")
        yield Sample(cls(), (a, b, floats(rng, (3, 5))), note="c is a matrix")
        yield Sample(cls(beta=2.0), (floats(rng, (3, 0)), floats(rng, (0, 5)), c), note="nothing to sum: beta * c")
        yield Sample(cls(), (floats(rng, (0, 4)), b, c), note="zero size")
        yield Sample(cls(), (integers(rng, (3, 4)), integers(rng, (4, 5)), integers(rng, (5,))), note="int64")
        yield Sample(cls(0.5), (integers(rng, (3, 4)), integers(rng, (4, 5))), note="int64, scaled")


@op_class
class Det(Simple):
    """The determinant of each square matrix: (..., n, n) -> (...), floating point; 1 for n = 0. Source: ONNX Det."""

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS)
        if x.shape is None:
            return x.type
        square = len(x.shape) >= 2 and same_dim(x.shape[-1], x.shape[-2])
        ensure(square, f"wants square matrices, got {shape_text(x.shape)}")
        return TensorType(x.dtype, x.shape[:-2])

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (3, 3)),))
        yield Sample(cls(), (floats(rng, (2, 4, 4)),), note="batch")
        yield Sample(cls(), (floats(rng, (2, 0, 0)),), note="zero size")


def _gradients_of_product(op: Builder, a: Value, b: Value, g: Value) -> tuple[Any, Any]:
    """Of a @ b by both operands, of rank 2 or more."""
    if b.rank == 2:  # one matrix for all: its gradient is one product over all rows, and nothing is transposed
        rows, to_rows = (_as_matrix(op, value) for value in (a, g))
        return reshape_like(op, op.Gemm(to_rows, b, transB=1), a), op.Gemm(rows, to_rows, transA=1)
    to_a, to_b = op.MatMul(g, _transposed(op, b)), op.MatMul(_transposed(op, a), g)
    return sum_to(op, to_a, a), sum_to(op, to_b, b)


def _as_matrix(op: Builder, value: Value) -> Any:
    """All rows below each other."""
    return value if value.rank == 2 else op.Flatten(value, axis=-1)


def _transposed(op: Builder, value: Value) -> Any:
    rank = value.rank or 0
    return op.Transpose(value, perm=(*range(rank - 2), rank - 1, rank - 2))
