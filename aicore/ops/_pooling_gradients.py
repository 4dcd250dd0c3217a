"""Gradients of pools."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.builder import Builder
from aicore.ir.value import Value
from aicore.ops._convolution_gradients import transposed
from aicore.ops.gradients import numbers, reshape_like, zeros_like

if TYPE_CHECKING:
    from aicore.ops.pooling import AveragePool, LpPool, MaxPool

WINDOW = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def of_max_pool(op: Builder, pool: MaxPool, x: Value, dy: Value) -> Value:
    fields: dict[str, Any] = {name: getattr(pool, name) for name in WINDOW}
    return op.MaxPoolGrad(x, dy, **fields)  # type: ignore[no-any-return]


def of_average_pool(op: Builder, pool: AveragePool, x: Value, dy: Value) -> Value:
    fields: dict[str, Any] = {name: getattr(pool, name) for name in (*WINDOW, "count_include_pad")}
    return op.AveragePoolGrad(dy, op.Shape(x, start=2), **fields)  # type: ignore[no-any-return]


def of_lp_pool(op: Builder, pool: LpPool, x: Value, y: Value, dy: Value) -> Value:
    """Each window gives back dy * y^(1 - p), and each element multiplies what it gets by |x|^(p - 1) sign(x).

    Sums over windows are a transposed convolution with ones, of each channel as an image of its own.
    Raises UnsupportedError for SAME where sizes are open.
    """
    if pool.auto_pad != "NOTSET":
        raise UnsupportedError(f"the gradient of {pool.auto_pad} needs sizes in numbers")
    shares = _of_norm(op, pool.p, y, dy)
    ones = op.Expand(op.scalar(1.0, x), numbers(op, 1, 1, *pool.kernel_shape))
    image = op.Reshape(x, op.Concat(numbers(op, -1, 1), op.Shape(x, start=2), axis=0))
    windows = op.Reshape(shares, op.Concat(numbers(op, -1, 1), op.Shape(shares, start=2), axis=0))
    added = transposed(op, windows, ones, image, pool.kernel_shape, pool.strides, pool.dilations, _pads_of(pool, x, y))
    return op.Mul(_slope(op, pool.p, x), reshape_like(op, added, x))  # type: ignore[no-any-return]


def _pads_of(pool: LpPool, x: Value, y: Value) -> tuple[int, ...]:
    """Pads with those at the ends as long as the windows reach, which is further with `ceil_mode`."""
    count = len(pool.kernel_shape)
    ends = []
    for i, (size, positions) in enumerate(zip((x.shape or ())[2:], (y.shape or ())[2:], strict=True)):
        if not pool.ceil_mode:
            ends.append(pool.pads[count + i])
            continue
        reach = (positions - 1) * pool.strides[i] + (pool.kernel_shape[i] - 1) * pool.dilations[i] + 1
        missing = reach - pool.pads[i] - size
        if not isinstance(missing, int):
            raise UnsupportedError("the gradient of ceil_mode needs sizes in numbers")
        ends.append(max(missing, 0))
    return (*pool.pads[:count], *ends)


def of_global_average_pool(op: Builder, x: Value, dy: Value) -> Value:
    dims = (x.shape or ())[2:]
    known = [d for d in dims if isinstance(d, int)]
    if x.shape is not None and len(known) == len(dims):
        share = op.Div(dy, op.scalar(float(math.prod(known)), dy))
    else:
        count = op.ReduceProd(op.Shape(x, start=2), keepdims=0)
        share = op.Div(dy, op.CastLike(count, dy))
    return op.Expand(share, op.Shape(x))  # type: ignore[no-any-return]


def of_global_max_pool(op: Builder, x: Value, dy: Value) -> Value:
    """All of it goes to the first largest element, in row-major order."""
    flat = op.Reshape(x, numbers(op, 0, 0, -1))
    first = op.ArgMax(flat, axis=2, keepdims=1)
    size = op.Squeeze(op.Shape(flat, start=2), axes=(0,))
    places = op.Range(_integer(op, 0), size, _integer(op, 1))
    there = op.Equal(places, first)
    given = op.Where(there, op.Reshape(dy, numbers(op, 0, 0, 1)), op.scalar(0.0, dy))
    return reshape_like(op, given, x)


def of_global_lp_pool(op: Builder, p: int, x: Value, y: Value, dy: Value) -> Value:
    return op.Mul(_slope(op, p, x), _of_norm(op, p, y, dy))  # type: ignore[no-any-return]


def of_max_unpool(op: Builder, indices: Value, dy: Value) -> Value:
    return op.Gather(op.Reshape(dy, numbers(op, -1)), indices, axis=0)  # type: ignore[no-any-return]


def _of_norm(op: Builder, p: int, y: Value, dy: Value) -> Value:
    """dy * y^(1 - p), and 0 where the norm y is 0."""
    if p == 1:
        return dy
    power = y if p == 2 else op.Pow(y, op.scalar(float(p - 1), y))
    return op.Where(op.Equal(y, op.scalar(0.0, y)), zeros_like(op, y), op.Div(dy, power))  # type: ignore[no-any-return]


def _slope(op: Builder, p: int, x: Value) -> Value:
    """|x|^(p - 1) * sign(x): 0 at 0."""
    if p == 1:
        return op.Sign(x)  # type: ignore[no-any-return]
    if p == 2:
        return x
    return op.Mul(op.Pow(op.Abs(x), op.scalar(float(p - 1), x)), op.Sign(x))  # type: ignore[no-any-return]


def _integer(op: Builder, number: int) -> Value:
    return op.constant(np.array(number, np.int64), "integer")
