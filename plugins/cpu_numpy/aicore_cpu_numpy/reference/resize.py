"""Resize, one axis after the other: an axis' weights do not depend on the other axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.resize import Resize
from aicore_cpu_numpy.reference._grid import coordinates, grid, nearest_places, outside, taps
from aicore_cpu_numpy.reference._precision import widen

Array = np.ndarray[Any, Any]


@kernel(Resize, device="cpu")
def resize(
    op: Resize, x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Array:
    """Integers are interpolated in float64 and cut off towards zero."""
    y = widen(x) if x.dtype.kind not in "biu" or op.mode == "nearest" else x.astype(np.float64)
    missing = []
    given = (_numbers(op.roi, roi), _numbers(op.scales, scales), _numbers(op.sizes, sizes))
    for axis, new, scale, crop in grid(op, x.shape, *given):
        old = x.shape[axis]
        where = coordinates(op, old, new, scale, crop)
        y = _along(op, y, axis, where, old, scale or new / max(old, 1))
        missing.append((axis, outside(where, old)))
    if op.coordinate_transformation_mode == "tf_crop_and_resize":
        y = _extrapolated(op, y, missing)
    return y.astype(x.dtype)


def _along(op: Resize, x: Array, axis: int, where: Array, old: int, scale: float) -> Array:
    if op.mode == "nearest":
        return np.take(x, nearest_places(op, where, old), axis)
    places, weights = taps(op, where, old, scale)
    shape = [1] * x.ndim
    shape[axis] = len(where)
    y = np.zeros((*x.shape[:axis], len(where), *x.shape[axis + 1 :]), x.dtype)
    for i in range(places.shape[1]):
        y += np.take(x, places[:, i], axis) * weights[:, i].reshape(shape).astype(x.dtype)
    return y


def _extrapolated(op: Resize, y: Array, missing: Sequence[tuple[int, Array]]) -> Array:
    mask = np.zeros((1,) * y.ndim, bool)
    for axis, flags in missing:
        mask = mask | flags.reshape([-1 if i == axis else 1 for i in range(y.ndim)])
    return np.where(mask, np.asarray(op.extrapolation_value, y.dtype), y)


def _numbers(field: Sequence[float] | None, operand: Array | None) -> Sequence[float] | None:
    if field is not None:
        return field
    return None if operand is None else operand.tolist()


KERNELS: tuple[Kernel, ...] = (resize,)
