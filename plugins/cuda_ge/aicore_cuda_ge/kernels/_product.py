"""Matrix products of every op as one kind of problem: strides stand for transposes, vectors and broadcasting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aicore.ir import Op, TensorType
from aicore.ops.fused_linear import GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.matmul import Gemm
from aicore_cuda_ge.kernels._activations import IDENTITY, Params, activation_params

BATCH_AXES = 6

Shape = tuple[int, ...]


@dataclass(frozen=True)
class BatchAxis:
    """One axis of the batch: its size, and the strides of the operands along it, 0 where one is broadcast."""

    size: int
    a: int
    b: int
    c: int

    def continues(self, inner: BatchAxis) -> bool:
        """Whether this axis and the next one inside it can be walked as one."""
        return (self.a, self.b, self.c) == (inner.a * inner.size, inner.b * inner.size, inner.c * inner.size)


@dataclass(frozen=True)
class Product:
    """y = activation(alpha * a @ b + beta * c) for each entry of a batch; y is dense.

    Strides are in elements. batch: outermost axis first; y's matrices follow each other in this order.
    """

    rows: int
    columns: int
    inner: int
    a_row: int
    a_inner: int
    b_inner: int
    b_column: int
    batch: tuple[BatchAxis, ...] = ()
    has_c: bool = False
    c_row: int = 0
    c_column: int = 0
    alpha: float = 1.0
    beta: float = 1.0
    activation: Params = IDENTITY
    swapped: bool = False

    @property
    def entries(self) -> int:
        """Products in the batch."""
        return math.prod(axis.size for axis in self.batch)

    @property
    def flops(self) -> int:
        return 2 * self.entries * self.rows * self.columns * self.inner

    def swap(self) -> Product:
        """The same as y' = b' @ a', in the same memory."""
        return replace(
            self,
            rows=self.columns,
            columns=self.rows,
            a_row=self.b_column,
            a_inner=self.b_inner,
            b_inner=self.a_inner,
            b_column=self.a_row,
            batch=tuple(BatchAxis(axis.size, axis.b, axis.a, axis.c) for axis in self.batch),
            c_row=self.c_column,
            c_column=self.c_row,
            swapped=not self.swapped,
        )

    def params(
        self, y_at: int, *, splits: int = 1, wide: int = 0, constant: bool = False, partial: bool = False
    ) -> Params:
        """The struct Gemm of graph_executor/kernels/gemm.cuh.

        y_at: which pointer of the launch is y; c, if there is one, is the third. constant: nothing writes b while a
        program runs. partial: y_at + 1 is a workspace for sums of splits.
        """
        axes = (*(BatchAxis(1, 0, 0, 0) for _ in range(BATCH_AXES - len(self.batch))), *self.batch)
        y_row, y_column = (1, self.rows) if self.swapped else (self.columns, 1)
        return (
            *(self.rows, self.columns, self.inner),
            *(self.a_row, self.a_inner, self.b_inner, self.b_column, y_row, y_column),
            self.entries,
            *(axis.size for axis in axes),
            *(axis.a for axis in axes),
            *(axis.b for axis in axes),
            *(axis.c for axis in axes),
            *(self.c_row, self.c_column, float(self.alpha), float(self.beta)),
            *self.activation,
            *(splits, wide, int(y_column == 1 and self.columns % 4 == 0), int(constant), int(partial)),
            *(int(self.swapped), 2 if self.has_c else -1, y_at),
        )

    def are_aligned(self, *strides: int) -> bool:
        """Whether 16-byte reads of float32 stay aligned for these strides."""
        return all(stride % 4 == 0 for stride in strides)

    @property
    def a_is_wide(self) -> bool:
        """Whether columns of a can be read 16 bytes at a time."""
        return self.a_row == 1 and self.are_aligned(self.rows, self.a_inner, *(axis.a for axis in self.batch))

    @property
    def b_is_wide(self) -> bool:
        """Whether rows of b can be read 16 bytes at a time."""
        return self.b_column == 1 and self.are_aligned(self.columns, self.b_inner, *(axis.b for axis in self.batch))

    @property
    def a_inner_is_wide(self) -> bool:
        """Whether a can be read 16 bytes at a time along the inner axis."""
        return self.a_inner == 1 and self.are_aligned(self.inner, self.a_row, *(axis.a for axis in self.batch))

    @property
    def b_inner_is_wide(self) -> bool:
        """Whether b can be read 16 bytes at a time along the inner axis."""
        return self.b_inner == 1 and self.are_aligned(self.inner, self.b_column, *(axis.b for axis in self.batch))

    @property
    def reads(self) -> int:
        """How gemm_tile.cuh is to read a and b 16 bytes at a time; 0 where one of them is not aligned."""
        if self.a_inner_is_wide:
            return 1 if self.b_is_wide else 2 if self.b_inner_is_wide else 0
        return 3 if self.a_is_wide and self.b_is_wide else 0

    @property
    def inner_is_wide(self) -> bool:
        """Whether a and b can be read 16 bytes at a time along the inner axis."""
        return self.a_inner_is_wide and self.b_inner_is_wide


def product_of(op: Op, *types: TensorType | None) -> Product:
    """The problem of a MatMul, Gemm or fused product whose operands have known shapes."""
    a, b, *rest = (None if t is None else t.static_shape for t in types)
    if a is None or b is None:
        raise ValueError("a and b are required")
    c = rest[0] if rest else None
    activation = activation_params(op.activation) if isinstance(op, GemmAct | MatMulAddAct) else IDENTITY
    gemm = op.gemm if isinstance(op, GemmAct) else op
    if isinstance(gemm, Gemm):
        return fold(replace(_gemm(gemm, a, b, c), activation=activation))
    added = c if isinstance(op, MatMulAdd | MatMulAddAct) else None
    return fold(replace(_matmul(a, b, added), activation=activation))


def _gemm(op: Gemm, a: Shape, b: Shape, c: Shape | None) -> Product:
    rows, inner = a[::-1] if op.transA else a
    columns = b[0] if op.transB else b[1]
    c_row, c_column = (0, 0) if c is None else _strides(c, (rows, columns))
    return Product(
        *(rows, columns, inner),
        a_row=1 if op.transA else inner,
        a_inner=rows if op.transA else 1,
        b_inner=1 if op.transB else columns,
        b_column=inner if op.transB else 1,
        has_c=c is not None,
        c_row=c_row,
        c_column=c_column,
        alpha=op.alpha,
        beta=op.beta,
    )


def _matmul(a: Shape, b: Shape, c: Shape | None) -> Product:
    """Vectors become matrices, and so does c beside them; c may make the result larger than the product."""
    vector_a, vector_b = len(a) == 1, len(b) == 1
    a, b = (1, *a) if vector_a else a, (*b, 1) if vector_b else b
    if c is not None:
        rank = max(len(c), len(a) - vector_a - vector_b, len(b) - vector_a - vector_b)
        c = (1,) * (rank - len(c)) + c
        c = (*c, 1) if vector_b else c
        c = (*c[:-1], 1, c[-1]) if vector_a else c
    rank = max(len(a), len(b), 0 if c is None else len(c))
    batch_a, batch_b = _padded(a[:-2], rank - 2), _padded(b[:-2], rank - 2)
    whole = (*map(_larger, batch_a, batch_b), a[-2], b[-1])
    if c is not None:
        whole = tuple(map(_larger, whole, _padded(c, rank)))
    strides_a, strides_b = _strides(a, (*whole[:-1], a[-1])), _strides(b, (*whole[:-2], b[-2], whole[-1]))
    strides_c = (0,) * rank if c is None else _strides(c, whole)
    axes = zip(whole[:-2], strides_a[:-2], strides_b[:-2], strides_c[:-2], strict=True)
    narrow = b[-1] == 1  # a column has its numbers side by side, whichever axis is said to be the inner one
    return Product(
        *(whole[-2], whole[-1], a[-1]),
        a_row=0 if a[-2] == 1 < whole[-2] else a[-1],
        a_inner=1,
        b_inner=1 if narrow else b[-1],
        b_column=(0 if whole[-1] > 1 else b[-2]) if narrow else 1,
        batch=tuple(BatchAxis(*axis) for axis in axes),
        has_c=c is not None,
        c_row=strides_c[-2],
        c_column=strides_c[-1],
    )


def fold(product: Product) -> Product:
    """The same numbers with the fewest batch axes: neighbours become one, and entries that share b become rows."""
    axes: list[BatchAxis] = []
    for axis in product.batch:
        if axis.size == 1:
            continue
        if axes and axes[-1].continues(axis):
            axis = replace(axis, size=axis.size * axes.pop().size)
        axes.append(axis)
    product = replace(product, batch=tuple(axes))
    while product.batch and _shares_b(product, product.batch[-1]):
        product = _as_rows(product)
    return product


def _shares_b(product: Product, axis: BatchAxis) -> bool:
    follows = (axis.a, axis.c) == (product.rows * product.a_row, product.rows * product.c_row)
    return axis.b == 0 and (product.rows == 1 or follows)


def _as_rows(product: Product) -> Product:
    axis = product.batch[-1]
    if product.rows == 1:
        product = replace(product, a_row=axis.a, c_row=axis.c)
    return replace(product, rows=product.rows * axis.size, batch=product.batch[:-1])


def _strides(shape: Sequence[int], whole: Sequence[int]) -> Shape:
    """Of a dense array of this shape, seen as one of the shape `whole` that it broadcasts to."""
    shape = _padded(shape, len(whole))
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tuple(0 if size == 1 else step for size, step in zip(shape, steps, strict=True))


def _padded(shape: Sequence[int], rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + tuple(shape)


def _larger(one: int, other: int) -> int:
    """Of two sizes that broadcast; 0 and 1 give 0."""
    return other if one == 1 else one
