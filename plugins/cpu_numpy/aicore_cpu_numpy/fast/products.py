"""Matrix products shared by workers, with bias and activation done on each block of rows while it is in the cache.

One matrix for all rows: workers take rows, or columns where there are few rows. A matrix for each entry of a batch:
workers take entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.fused_linear import GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm, MatMul
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_epilogue import Bias, finish, needs_two, reason_against
from aicore_cpu_numpy.fast._last_rates import gemm_seconds, pass_seconds
from aicore_cpu_numpy.fast._parallel import Array, Call, nothing, parts_of, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carve, carved_bytes

DTYPES = frozenset({"float32", "float64"})
BLOCK_BYTES, LEAST_ROWS = 128 << 10, 256
"""Of the results of a block; each block costs a packing of the matrix, so it has rows enough to be worth that."""


@dataclass(frozen=True)
class Product:
    """activation(a @ b + bias) of known shapes: (rows, inner) @ (inner, columns).

    transposed: b is (columns, inner).
    """

    rows: int
    inner: int
    columns: int
    itemsize: int
    transposed: bool = False
    bias: bool = False
    activation: Op | None = None

    @property
    def seconds(self) -> float:
        """Of one thread."""
        blocks = -(-self.rows // self.step(self.rows))
        passes = self.bias + (0 if self.activation is None else 6 if needs_two(self.activation) else 2)
        return gemm_seconds(self.rows, self.inner, self.columns, blocks) + pass_seconds(
            self.rows * self.columns, passes
        )

    def step(self, rows: int) -> int:
        """Rows of a block, of so many."""
        if not self.bias and self.activation is None:
            return max(rows, 1)
        return max(min(rows, max(BLOCK_BYTES // max(self.columns * self.itemsize, 1), LEAST_ROWS)), 1)

    def shares(self, parts: int) -> list[tuple[slice, slice]]:
        """Rows and columns of each worker."""
        rows, columns = slice(0, self.rows), slice(0, self.columns)
        if self.rows >= self.columns or self.rows >= parts * LEAST_ROWS:
            return [(slice(*span), columns) for span in spans(self.rows, parts)]
        return [(rows, slice(*span)) for span in spans(self.columns, parts)]

    def rooms(self, parts: int) -> list[tuple[int]]:
        """Elements that each worker needs for products that are not made in place."""
        apart = needs_two(self.activation)
        return [
            (self.step(rows.stop - rows.start) * (columns.stop - columns.start) if apart else 0,)
            for rows, columns in self.shares(parts)
        ]


@dataclass(frozen=True, eq=False)
class Bound:
    """A product whose bias is packed if it is constant."""

    product: Product
    parts: int
    bias: Bias | None

    def __call__(self, *operands: Any, out: Array, workspace: Array) -> None:
        self.place(*operands, out=out, workspace=workspace)()

    def place(self, a: Array, b: Array, c: Array | None = None, *, out: Array, workspace: Array) -> Call:
        p = self.product
        if not out.size:
            return nothing
        matrix = b.T if p.transposed else b
        left, result = a.reshape(p.rows, p.inner), out.reshape(p.rows, p.columns)
        bias = self.bias if self.bias is not None or c is None else Bias(c.reshape(-1))
        rooms = carve(workspace, out.dtype, *p.rooms(self.parts))
        tasks: list[list[Call]] = []
        for (rows, columns), room in zip(p.shares(self.parts), rooms, strict=True):
            own = None if bias is None else bias.part(columns)
            calls: list[Call] = []
            for start in range(rows.start, rows.stop, step := p.step(rows.stop - rows.start)):
                block = slice(start, min(start + step, rows.stop))
                target = result[block, columns]
                source = room[: target.size].reshape(target.shape) if room.size else target
                calls.append(partial(np.matmul, left[block], matrix[:, columns], out=source))
                calls += finish(source, target, own, None, p.activation)
            tasks.append(calls)
        return side_by_side(tasks)


@lru_cache(maxsize=4096)
def product_of(op: Op, a: TensorType, b: TensorType, c: TensorType | None = None) -> Product:
    """Of operands for which `_reason` finds none."""
    gemm = op.gemm if isinstance(op, GemmAct) else op if isinstance(op, Gemm) else None
    transposed = gemm is not None and bool(gemm.transB)
    inner, columns = b.static_shape[::-1] if transposed else b.static_shape
    rows = math.prod(a.static_shape[:-1])
    activation = getattr(op, "activation", None)
    return Product(rows, inner, columns, numpy_dtype(a.dtype).itemsize, transposed, c is not None, activation)


def _reason(op: Op, a: TensorType, b: TensorType, c: TensorType | None = None) -> str | None:
    if not all(t is None or t.is_static for t in (a, b, c)):
        return "needs shapes that are known in numbers"
    if len(b.static_shape) != 2 or not a.static_shape:
        return "takes one matrix for all rows only"
    gemm = op.gemm if isinstance(op, GemmAct) else op
    if isinstance(gemm, Gemm) and (gemm.transA or gemm.alpha != 1 or (c is not None and gemm.beta != 1)):
        return "does not scale, nor transpose the first factor"
    columns = product_of(op, a, b, c).columns
    if c is not None and (math.prod(c.static_shape) != columns or c.static_shape[-1:] != (columns,)):
        return f"adds one number for each of {columns} columns only, not {c}"
    if c is not None and len(c.static_shape) > len(a.static_shape):
        return "makes no axes"
    activation = getattr(op, "activation", None)
    return None if activation is None else reason_against(activation)


def _workspace(op: Op, *types: TensorType) -> int:
    p = product_of(op, *types)
    return carved_bytes(*(size * p.itemsize for (size,) in p.rooms(parts_of(p.seconds))))


def _estimate(op: Op, *types: TensorType) -> float:
    seconds = product_of(op, *types).seconds
    return seconds / parts_of(seconds)


def _bind(op: Op, types: Sequence[Any], constants: Sequence[Array | None]) -> Bound:
    p, c = product_of(op, *types), constants[2] if len(constants) > 2 else None
    return Bound(p, parts_of(p.seconds), None if c is None else Bias.constant(c.reshape(-1)))


def _rows(cls: type[Op]) -> Kernel:
    def run(op: Op, *operands: Array | None, out: Array, workspace: Array) -> None:
        types = [None if x is None else TensorType(x.dtype.name, x.shape) for x in operands]
        _bind(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)

    return kernel(
        cls,
        device="cpu",
        variant="rows",
        dtypes=DTYPES,
        supports=_reason,
        workspace=_workspace,
        estimate=_estimate,
        bind=_bind,
    )(run)


@dataclass(frozen=True)
class Batch:
    """A product for each entry of a batch, which workers share along its longest axis."""

    parts: int

    def __call__(self, a: Array, b: Array, *, out: Array) -> None:
        self.place(a, b, out=out)()

    def place(self, a: Array, b: Array, *, out: Array) -> Call:
        batch = out.shape[:-2]
        axis = max(range(len(batch)), key=lambda i: batch[i])
        return side_by_side(
            [
                [partial(np.matmul, _entries(a, axis, batch, span), _entries(b, axis, batch, span), out=target)]
                for span in spans(batch[axis], self.parts)
                for target in (_entries(out, axis, batch, span),)
            ]
        )


def _entries(x: Array, axis: int, batch: Sequence[int], span: tuple[int, int]) -> Array:
    """Some of the entries along an axis of the batch; all of an operand that has one for all of them."""
    own = axis - len(batch) + x.ndim - 2
    if own < 0 or x.shape[own] == 1:
        return x
    return x[(slice(None),) * own + (slice(*span),)]


def _batch_seconds(a: TensorType, b: TensorType) -> float:
    batch = math.prod(np.broadcast_shapes(a.static_shape[:-2], b.static_shape[:-2]))
    rows, inner = a.static_shape[-2:]
    return gemm_seconds(batch * rows, inner, b.static_shape[-1], batch)


def _batch_reason(op: MatMul, a: TensorType, b: TensorType) -> str | None:
    if not (a.is_static and b.is_static):
        return "needs shapes that are known in numbers"
    if min(len(a.static_shape), len(b.static_shape)) < 2 or len(b.static_shape) < 3:
        return "wants a matrix for each entry of a batch"
    return None


def _batch_estimate(op: MatMul, a: TensorType, b: TensorType) -> float:
    seconds = _batch_seconds(a, b)
    return seconds / parts_of(seconds)


def _bind_batch(op: MatMul, types: Sequence[Any], constants: Sequence[Array | None]) -> Batch:
    return Batch(parts_of(_batch_seconds(*types)))


@kernel(
    MatMul,
    device="cpu",
    variant="batch",
    dtypes=DTYPES,
    supports=_batch_reason,
    estimate=_batch_estimate,
    bind=_bind_batch,
)
def matmul_batch(op: MatMul, a: Array, b: Array, *, out: Array) -> None:
    Batch(1)(a, b, out=out)


KERNELS: tuple[Kernel, ...] = (*map(_rows, (MatMul, MatMulAdd, MatMulAddAct, Gemm, GemmAct)), matmul_batch)
