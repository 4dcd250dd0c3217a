"""Large problems get operands that repeat, so that a few rows of the reference say what every row should be.

The images of a batch, and the rows of a matrix product, do not depend on each other. So the reference computes a few of
them that differ, and the operands that are measured have each row be one of those, in a random order. Every element of
a candidate's result is still compared with the reference; only a row that is taken for another one with the same
numbers would go unnoticed, and with it are many that would not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.ir import Node, Op, TensorType, Value
from aicore.numerics.expected import Expected
from aicore.ops.fused_linear import GemmAct, MatMulAdd, MatMulAddAct
from aicore.ops.layout import IMAGE_OPS, ChannelsLast, images_of
from aicore.ops.matmul import Gemm, MatMul
from aicore.records import dataclass

Array = np.ndarray[Any, Any]
_PRODUCTS: tuple[type[Op], ...] = (MatMul, MatMulAdd, MatMulAddAct, Gemm, GemmAct)
_LEAST = 3
"""Rows that differ, whatever the reference takes for them."""
_FLOPS, _ELEMENTS = 1e9, float(1 << 21)
"""Operations and results of the reference for the rows that differ; it runs several times to learn how errors grow."""
_BLOCK = 1 << 18
"""Elements that are compared at once."""


@dataclass(frozen=True)
class Repeats:
    """Which rows of the operands of a node are alike.

    axes: by operand that has these rows, the axis along which they lie.
    axis: along which they lie in the only result.
    rows: which of the rows that differ each row is; each occurs.
    """

    axes: dict[Value, int]
    axis: int
    rows: Array

    @property
    def different(self) -> int:
        """How many rows differ."""
        return int(self.rows.max()) + 1

    def shape_of_few(self, value: Value) -> tuple[int, ...]:
        """Of the operand, with no row more than once."""
        shape = list(value.type.static_shape)
        if value in self.axes:
            shape[self.axes[value]] = self.different
        return tuple(shape)

    def repeated(self, value: Value, few: Array) -> Array:
        """The operand with all its rows."""
        return few.take(self.rows, self.axes[value]) if value in self.axes else few

    def fault(self, expected: Expected, results: Sequence[Array]) -> str:
        """As Expected.fault, of all rows. expected: for the rows that differ, each once."""
        if len(results) != 1:
            return expected.fault(results)
        (got,), (want,), (allowed,) = results, expected.arrays, expected.allowed
        shape = [len(self.rows) if i == self.axis else size for i, size in enumerate(want.shape)]
        if list(got.shape) != shape:
            return f"the shape is {list(got.shape)}, should be {shape}"
        step = max(1, _BLOCK * len(self.rows) // max(got.size, 1))
        for start in range(0, len(self.rows), step):
            rows = self.rows[start : start + step]
            limits = allowed if allowed.ndim == 0 else allowed.take(rows, self.axis)
            part = got[(slice(None),) * self.axis + (slice(start, start + step),)]
            wrong = Expected((want.take(rows, self.axis),), (limits,), expected.wide).fault([part])
            if wrong:
                return f"from row {start} of axis {self.axis}: {wrong}"
        return ""


def repeats_of(node: Node) -> Repeats | None:
    """How the operands of a node of known sizes are to repeat; None where all rows may differ."""
    found = _row_axes(node)
    if found is None:
        return None
    axes, axis = found
    if any(value.constant is not None for value in axes):
        return None
    shape = node.outputs[0].type.static_shape
    flops = node.op.cost(*node.inputs)[0]
    assert isinstance(flops, int)  # all sizes are known
    count, share = shape[axis], max(flops / _FLOPS, math.prod(shape) / _ELEMENTS)
    different = max(_LEAST, int(count / share)) if share > 1 else count
    if 2 * different > count:
        return None
    rng = np.random.default_rng(0)
    more = rng.integers(0, different, count - different)
    return Repeats(axes, axis, np.concatenate([np.arange(different), more]))


def _row_axes(node: Node) -> tuple[dict[Value, int], int] | None:
    """Operands with rows that do not depend on each other, with their axis, and the axis of the result."""
    if len(node.outputs) != 1:
        return None
    held = node.op.inner if isinstance(node.op, ChannelsLast) else node.op
    if type(held) in IMAGE_OPS:
        images = images_of(held)
        return {v: 0 for i, v in enumerate(node.inputs) if i in images and v is not None}, 0
    return _rows_of_product(held, node) if type(held) in _PRODUCTS else None


def _rows_of_product(op: Op, node: Node) -> tuple[dict[Value, int], int] | None:
    """The longest axis of a, but for its last, where b is one matrix."""
    a, b, *others = node.inputs
    result = node.outputs[0].type.static_shape
    assert a is not None  # a product has both
    assert b is not None
    given = a.type.static_shape
    is_turned = getattr(getattr(op, "gemm", op), "transA", 0)
    if is_turned or a is b or len(b.type.static_shape) != 2 or given[:-1] != result[:-1] or len(given) < 2:
        return None
    axis = int(np.argmax(given[:-1]))
    axes = {a: axis}
    for other in others:
        at = None if other is None else _axis_behind(other.type, result, axis)
        if other is not None and at is not None:
            axes[other] = at
    return axes, axis


def _axis_behind(operand: TensorType, result: tuple[int, ...], axis: int) -> int | None:
    """Where an operand that is broadcast to the result has the axis; None where all its rows are one."""
    at = axis - (len(result) - len(operand.static_shape))
    return at if at >= 0 and operand.static_shape[at] == result[axis] else None
