"""Reshape and its kin as NumPy has them. Results may be views of operands; who keeps one copies it."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError, InferenceError
from aicore.kernels import Kernel, kernel
from aicore.ops.base import normalize_axes
from aicore.ops.shape import Flatten, Identity, Reshape, Shape, Size, Squeeze, Unsqueeze, reshaped
from aicore_cpu_numpy.reference._indices import numbers_of

Array = np.ndarray[Any, Any]


@kernel(Shape, device="cpu")
def shape(op: Shape, x: Array) -> Array:
    return np.array(x.shape[op.start : op.end], np.int64)


@kernel(Size, device="cpu")
def size(op: Size, x: Array) -> Array:
    return np.array(x.size, np.int64)


@kernel(Identity, device="cpu")
def identity(op: Identity, x: Array) -> Array:
    return x


@kernel(Reshape, device="cpu")
def reshape(op: Reshape, x: Array, shape: Array | None = None) -> Array:
    wanted = numbers_of(op.shape, shape)
    try:
        dims = reshaped(x.shape, wanted, bool(op.allowzero))
    except InferenceError as error:
        raise ExecutionError(str(error)) from error
    return x.reshape(tuple(int(d) for d in dims if isinstance(d, int)))


@kernel(Flatten, device="cpu")
def flatten(op: Flatten, x: Array) -> Array:
    axis = op.axis + x.ndim if op.axis < 0 else op.axis
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return x.reshape(rows, int(np.prod(x.shape[axis:], dtype=np.int64)))


@kernel(Squeeze, device="cpu")
def squeeze(op: Squeeze, x: Array, axes: Array | None = None) -> Array:
    if op.axes is None and axes is None:
        return x.reshape(tuple(d for d in x.shape if d != 1))
    gone = _axes(numbers_of(op.axes, axes), x.ndim)
    wrong = [axis for axis in gone if x.shape[axis] != 1]
    if wrong:
        raise ExecutionError(f"axis {wrong[0]} of {x.shape} is {x.shape[wrong[0]]}, not 1")
    return x.reshape(tuple(d for i, d in enumerate(x.shape) if i not in gone))


@kernel(Unsqueeze, device="cpu")
def unsqueeze(op: Unsqueeze, x: Array, axes: Array | None = None) -> Array:
    numbers = numbers_of(op.axes, axes)
    added = _axes(numbers, x.ndim + len(numbers))
    rest = iter(x.shape)
    return x.reshape(tuple(1 if i in added else next(rest) for i in range(x.ndim + len(numbers))))


def _axes(numbers: tuple[int, ...], rank: int) -> tuple[int, ...]:
    try:
        return normalize_axes(numbers, rank)
    except InferenceError as error:
        raise ExecutionError(str(error)) from error


KERNELS: tuple[Kernel, ...] = (shape, size, identity, reshape, flatten, squeeze, unsqueeze)
