"""LRN: the sum over neighbouring channels as shifted additions, on blocks of positions that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.normalization import LRN

Array = np.ndarray[Any, Any]

FLOATS = frozenset({"float32", "float64"})
BLOCK_BYTES = 128 << 10
RATE, CALL = 0.8e9, 3e-6
"""For estimates: elements per second of one pass, and seconds of one NumPy call."""


def _supports(op: LRN, x: TensorType) -> str | None:
    return None if x.is_static else "needs a shape that is known in numbers"


def _positions(shape: tuple[int, ...], itemsize: int) -> int:
    """Positions of a block."""
    return min(max(BLOCK_BYTES // max(shape[1] * itemsize, 1), 1), max(math.prod(shape[2:]), 1))


def _workspace(op: LRN, x: TensorType) -> int:
    itemsize = numpy_dtype(x.dtype).itemsize
    return 2 * x.static_shape[1] * _positions(x.static_shape, itemsize) * itemsize


def _seconds(op: LRN, x: TensorType) -> float:
    passes = len(list(_shifts(op.size, x.static_shape[1]))) + 8
    return passes * math.prod(x.static_shape) / RATE + CALL


def _shifts(size: int, channels: int) -> Iterator[int]:
    """How far the neighbours of a window are, those that any channel has; 0 aside."""
    for shift in range(-min((size - 1) // 2, channels - 1), min(size // 2, channels - 1) + 1):
        if shift:
            yield shift


@kernel(
    LRN, device="cpu", variant="shifted", dtypes=FLOATS, supports=_supports, workspace=_workspace, estimate=_seconds
)
def lrn_shifted(op: LRN, x: Array, *, out: Array, workspace: Array) -> None:
    images, channels = x.shape[:2]
    positions = math.prod(x.shape[2:])
    source, target = x.reshape(images, channels, positions), out.reshape(images, channels, positions)
    step = _positions(x.shape, x.itemsize)
    shifts = list(_shifts(op.size, channels))
    for image in range(images):
        for start in range(0, positions, step):
            part, result = source[image, :, start : start + step], target[image, :, start : start + step]
            room = workspace[: 2 * part.nbytes].view(x.dtype).reshape(2, *part.shape)
            _block(op, shifts, part, result, *room)


def _block(op: LRN, shifts: list[int], x: Array, out: Array, squares: Array, total: Array) -> None:
    np.square(x, out=squares)
    np.copyto(total, squares)
    for shift in shifts:
        here, there = (total[:-shift], squares[shift:]) if shift > 0 else (total[-shift:], squares[:shift])
        np.add(here, there, out=here)
    np.multiply(total, op.alpha / op.size, out=total)
    np.add(total, op.bias, out=total)
    if op.beta == 0.75:  # the usual one: two square roots take a tenth of the time of a power
        np.sqrt(total, out=squares)
        np.sqrt(squares, out=total)
        np.multiply(total, squares, out=total)
    else:
        np.power(total, op.beta, out=total)
    np.divide(x, total, out=out)


KERNELS: tuple[Kernel, ...] = (lrn_shifted,)
