"""MatMulInteger and QLinearMatMul on float32 BLAS, with the reference's bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.quantized_linear import EIGHT_BITS, MatMulInteger, QLinearMatMul
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_rates import gemm_seconds, shared
from aicore_cpu_numpy.fast._quantized import (
    MOST_TERMS,
    Array,
    Epilogue,
    Packed,
    Requantization,
    Room,
    chunks,
    exact_length,
    magnitude,
    padded,
    part_of,
    run_unbound,
    shifted,
    spread_tasks,
    sum_products,
    threads_for,
)
from aicore_cpu_numpy.reference.quantized_linear import by_column, by_row, matmul_multiplier

BLOCK_ELEMENTS, FEWEST_ROWS = 1 << 17, 64
"""Sums of a block, which stay in the second-level cache, and rows below which packing inside BLAS takes over."""
CONVERTED, FINISHED, CALLS = 1.0e-9, 1.6e-9, 70e-6
"""For estimates: seconds to make a float of an integer, to finish a sum, and of the calls that any product takes.

Fitted to 21 products of 8-bit integers beside the same in float32, of 1 to 4096 rows (benchmarks/int8_race.py)."""

Shape3 = tuple[int, int, int]
Piece = tuple[slice, slice, slice]


@dataclass(frozen=True)
class _Sizes:
    """A batch of products (rows, terms) @ (terms, columns).

    shared: one right operand for the whole batch. threads: how many it is worth to use.
    """

    batch: int
    rows: int
    terms: int
    columns: int
    shared: bool
    threads: int

    @classmethod
    def of(cls, a: tuple[int, ...], b: tuple[int, ...]) -> _Sizes:
        """With one right operand, the rows of the whole batch are those of one matrix."""
        threads = threads_for(math.prod(a) * b[-1])
        if len(b) == 2:
            return cls(1, math.prod(a[:-1]), a[-1], b[-1], True, threads)
        return cls(math.prod(a[:-2]), a[-2], a[-1], b[-1], False, threads)

    @property
    def left(self) -> Shape3:
        return self.batch, self.rows, self.terms

    @property
    def right(self) -> Shape3:
        return 1 if self.shared else self.batch, self.terms, self.columns

    @property
    def result(self) -> Shape3:
        return self.batch, self.rows, self.columns

    @property
    def block(self) -> Shape3:
        """Products, rows and columns of a block."""
        threads = self.threads
        columns, rows = max(self.columns, 1), max(self.rows, 1)
        if self.batch == 1 and rows < threads * FEWEST_ROWS:  # too few rows to share
            columns = -(-columns // threads)
        most = max(BLOCK_ELEMENTS // columns, FEWEST_ROWS)
        rows = min(rows, most, max(-(-self.batch * rows // threads), FEWEST_ROWS))
        whole = rows * columns if rows == self.rows else BLOCK_ELEMENTS
        batch = min(BLOCK_ELEMENTS // max(whole, 1), -(-self.batch // threads))
        return max(batch, 1), rows, columns

    @property
    def pieces(self) -> list[Piece]:
        """All blocks, as places in the result."""
        along = [
            [slice(start, min(start + step, total)) for start in range(0, total, step)]
            for step, total in zip(self.block, self.result, strict=True)
        ]
        return [(batch, row, column) for batch in along[0] for row in along[1] for column in along[2]]

    @property
    def room(self) -> tuple[int, int, int]:
        """Elements that a block takes: left operand, a chunk of the right one, sums."""
        batch, rows, columns = self.block
        right = (1 if self.shared else batch) * min(self.terms, MOST_TERMS) * columns
        return batch * rows * self.terms, right, batch * rows * columns


class Product:
    """One product of known sizes; the weight is packed once if it and its zero point are constant."""

    def __init__(self, a: TensorType, b: TensorType, weight: Array | None, zero_point: Array | None) -> None:
        self._sizes = _Sizes.of(a.static_shape, b.static_shape)
        self._pieces = self._sizes.pieces
        self._packed = None
        if weight is not None:
            right = weight.reshape(self._sizes.right)
            self._packed = Packed.of(right, self._by_column(zero_point, weight), -2)

    def run(
        self,
        a: Array,
        a_zero_point: Array | None,
        b: Array,
        b_zero_point: Array | None,
        result: Epilogue | None,
        out: Array,
        workspace: Array,
    ) -> None:
        """out = the sums, or what `result` makes of them."""
        s, packed = self._sizes, self._packed
        left, right, sums = a.reshape(s.left), b.reshape(s.right), out.reshape(s.result)
        rows, columns = self._by_row(a_zero_point, a), self._by_column(b_zero_point, b)
        largest = magnitude(a.dtype, a_zero_point)
        if packed is None:
            parts = chunks(s.terms, exact_length(largest, magnitude(b.dtype, b_zero_point)))
        else:
            parts = packed.parts(s.terms, largest)
        wide = result is None or len(parts) > 1 or result.needs_integers

        def compute(piece: Piece, share: Array) -> None:
            batch, row, column = piece
            room, target = Room(share), sums[piece]
            shared = slice(None) if s.shared else batch
            chosen, chunk = left[batch, row], room.take(s.room[1])
            converted = shifted(chosen, part_of(rows, piece), room.take(chosen.size).reshape(chosen.shape))

            def of_right(part: slice) -> Array:
                if packed is not None:
                    return packed.numbers[shared, part, column]
                taken = right[shared, part, column]
                return shifted(taken, part_of(columns, piece), chunk[: taken.size].reshape(taken.shape))

            work = room.take(target.size).reshape(target.shape)
            total = target if result is None else room.take(target.size, np.int32).reshape(target.shape)
            found = sum_products(lambda part: converted[..., part], of_right, parts, work, total if wide else None)
            if result is not None:
                result.at(piece).finish(found, work, target)

        spread_tasks(self._pieces, compute, workspace, s.threads)

    def multiplier(self, a: Array, a_scale: Array, b: Array, b_scale: Array, y_scale: Array, out: Array) -> Array:
        """In a shape that broadcasts to (batch, rows, columns)."""
        s, found = self._sizes, matmul_multiplier(a, a_scale, b, b_scale, y_scale)
        if found.ndim == 0 or found.shape in ((s.columns,), (1, s.columns)):
            return found
        return np.broadcast_to(found, out.shape).reshape(s.result)

    def _by_row(self, zero_point: Array | None, a: Array) -> Array | None:
        return None if zero_point is None else _spread(by_row(zero_point, a), (*a.shape[:-1], 1), self._sizes.left)

    def _by_column(self, zero_point: Array | None, b: Array) -> Array | None:
        shape = (*b.shape[:-2], 1, b.shape[-1])
        return None if zero_point is None else _spread(by_column(zero_point, b), shape, self._sizes.right)


def _spread(zero_point: Array, shape: tuple[int, ...], whole: Shape3) -> Array:
    """In float32, of rank 0 or of rank 3: that broadcasts to `whole`, once it has been broadcast to `shape`."""
    if zero_point.size == 1:
        return zero_point.astype(np.float32).reshape(())
    dims = (whole[0], *(1 if dim == 1 else n for dim, n in zip(shape[-2:], whole[1:], strict=True)))
    return np.broadcast_to(zero_point, shape).astype(np.float32).reshape(dims)


def supports_product(a: TensorType, b: TensorType, *others: TensorType | None) -> str | None:
    if not all(t is None or t.is_static for t in (a, b, *others)):
        return "needs shapes that are known in numbers"
    left, right = a.static_shape, b.static_shape
    if min(len(left), len(right)) < 2:
        return "takes matrices, not vectors"
    return None if len(right) == 2 or left[:-2] == right[:-2] else "does not broadcast batches"


def product_workspace(a: TensorType, b: TensorType, sums: int) -> int:
    """sums: arrays for them, beside the result."""
    sizes = _Sizes.of(a.static_shape, b.static_shape)
    left, right, block = sizes.room
    return sizes.threads * sum(padded(4 * size) for size in (left, right, *(block,) * sums))


def product_seconds(a: TensorType, b: TensorType) -> float:
    """Of the product in float32, each of whose blocks of rows packs the right operand, and of what is around it."""
    s = _Sizes.of(a.static_shape, b.static_shape)
    rows = s.batch * s.rows
    blocks = s.batch * -(-s.rows // s.block[1])
    around = rows * (s.terms * CONVERTED + s.columns * FINISHED)
    return shared(gemm_seconds(rows, s.terms, s.columns, blocks) + around, s.threads) + CALLS


class _IntegerProduct(Product):
    def __init__(
        self, op: MatMulInteger, types: Sequence[TensorType | None], constants: Sequence[Array | None]
    ) -> None:
        a, b, _, b_zero_point = (*types, None, None)[:4]
        _, weight, _, zero_point = (*constants, None, None)[:4]
        fixed = b_zero_point is None or zero_point is not None
        super().__init__(_given(a), _given(b), weight if fixed else None, zero_point)

    def __call__(
        self,
        a: Array,
        b: Array,
        a_zero_point: Array | None = None,
        b_zero_point: Array | None = None,
        *,
        out: Array,
        workspace: Array,
    ) -> None:
        self.run(a, a_zero_point, b, b_zero_point, None, out, workspace)


class _QuantizedProduct(Product):
    def __init__(
        self, op: QLinearMatMul, types: Sequence[TensorType | None], constants: Sequence[Array | None]
    ) -> None:
        weight, zero_point = constants[3], constants[5]
        super().__init__(_given(types[0]), _given(types[3]), None if zero_point is None else weight, zero_point)

    def __call__(
        self,
        a: Array,
        a_scale: Array,
        a_zero_point: Array,
        b: Array,
        b_scale: Array,
        b_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
        *,
        out: Array,
        workspace: Array,
    ) -> None:
        result = Requantization(self.multiplier(a, a_scale, b, b_scale, y_scale, out), y_zero_point)
        self.run(a, a_zero_point, b, b_zero_point, result, out, workspace)


def _given(found: TensorType | None) -> TensorType:
    assert found is not None  # inference refuses a node without it
    return found


@kernel(
    MatMulInteger,
    device="cpu",
    variant="blas",
    dtypes=EIGHT_BITS,
    supports=lambda op, *types: supports_product(*types),
    workspace=lambda op, a, b, *others: product_workspace(a, b, sums=1),
    bind=_IntegerProduct,
    estimate=lambda op, a, b, *others: product_seconds(a, b),
)
def matmul_integer_blas(op: MatMulInteger, *operands: Array | None, out: Array, workspace: Array) -> None:
    run_unbound(_IntegerProduct, op, operands, out, workspace)


@kernel(
    QLinearMatMul,
    device="cpu",
    variant="blas",
    dtypes=EIGHT_BITS,
    supports=lambda op, a, s, z, b, *others: supports_product(a, b, *others),
    workspace=lambda op, a, s, z, b, *others: product_workspace(a, b, sums=2),
    bind=_QuantizedProduct,
    estimate=lambda op, a, s, z, b, *others: product_seconds(a, b),
)
def qlinear_matmul_blas(op: QLinearMatMul, *operands: Array | None, out: Array, workspace: Array) -> None:
    run_unbound(_QuantizedProduct, op, operands, out, workspace)


KERNELS: tuple[Kernel, ...] = (matmul_integer_blas, qlinear_matmul_blas)
