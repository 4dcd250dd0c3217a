"""Comparison, selection, boolean and bitwise logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.ir import Op, dtype_name
from aicore.kernels import Kernel, kernel
from aicore.ops import logic as ops
from aicore.ops.logic import BitShift, IsInf, IsNaN, Where
from aicore_cpu_numpy.reference._precision import Array, widen

COMPARISONS: dict[type[Op], Callable[[Array, Array], Any]] = {
    ops.Equal: np.equal,
    ops.Less: np.less,
    ops.LessOrEqual: np.less_equal,
    ops.Greater: np.greater,
    ops.GreaterOrEqual: np.greater_equal,
}
FUNCTIONS: dict[type[Op], Callable[..., Any]] = {
    ops.And: np.logical_and,
    ops.Or: np.logical_or,
    ops.Xor: np.logical_xor,
    ops.Not: np.logical_not,
    ops.BitwiseAnd: np.bitwise_and,
    ops.BitwiseOr: np.bitwise_or,
    ops.BitwiseXor: np.bitwise_xor,
    ops.BitwiseNot: np.bitwise_not,
}


def comparison(op: type[Op], function: Callable[[Array, Array], Any]) -> Kernel:
    """The reference kernel that compares every pair of elements."""

    def compute(op: Op, a: Array, b: Array) -> Array:
        result: Array = function(widen(a), widen(b)).astype(bool)  # strings compare as objects
        return result

    return kernel(op, device="cpu")(compute)


def bitwise(op: type[Op], function: Callable[..., Any]) -> Kernel:
    """The reference kernel that applies the function to every element."""

    def compute(op: Op, *operands: Array) -> Any:
        return function(*operands)

    return kernel(op, device="cpu")(compute)


@kernel(BitShift, device="cpu")
def bit_shift(op: BitShift, x: Array, y: Array) -> Any:
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    amount = np.where(inside, y, 0).astype(x.dtype)
    if op.direction == "LEFT":
        return np.where(inside, np.left_shift(x, amount), 0).astype(x.dtype)
    fill = np.where(x < 0, -1, 0).astype(x.dtype)  # beside int64, uint64 would turn both into float64
    return np.where(inside, np.right_shift(x, amount), fill).astype(x.dtype)


@kernel(Where, device="cpu")
def where(op: Where, condition: Array, x: Array, y: Array) -> Any:
    return np.where(condition, x, y)


@kernel(IsNaN, device="cpu")
def isnan(op: IsNaN, x: Array) -> Any:
    return np.isnan(_plain(x))


@kernel(IsInf, device="cpu")
def isinf(op: IsInf, x: Array) -> Any:
    wide = _plain(x)
    return ((wide == np.inf) & bool(op.detect_positive)) | ((wide == -np.inf) & bool(op.detect_negative))


def _plain(x: Array) -> Array:
    return x.astype(np.float32) if dtype_name(x.dtype).startswith("float8") else widen(x)


KERNELS: tuple[Kernel, ...] = (
    *(comparison(op, function) for op, function in COMPARISONS.items()),
    *(bitwise(op, function) for op, function in FUNCTIONS.items()),
    bit_shift,
    where,
    isnan,
    isinf,
)
