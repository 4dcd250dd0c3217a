"""Cutting a range out of each axis, or adding to its ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.slicing import CenterCropPad, Pad, Slice, clamped
from aicore_cpu_numpy.reference._indices import numbers_of

Array = np.ndarray[Any, Any]


@kernel(Slice, device="cpu")
def slice_(
    op: Slice,
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    begin, end = numbers_of(op.starts, starts), numbers_of(op.ends, ends)
    along = range(len(begin)) if op.axes is None and axes is None else numbers_of(op.axes, axes)
    step = (1,) * len(begin) if op.steps is None and steps is None else numbers_of(op.steps, steps)
    if 0 in step:
        raise ExecutionError("a step is 0")
    if not len(begin) == len(end) == len(along) == len(step):
        raise ExecutionError("starts, ends, axes and steps differ in length")
    ranges = [slice(None)] * x.ndim
    for axis, a, b, s in zip(along, begin, end, step, strict=True):
        if not -x.ndim <= axis < x.ndim:
            raise ExecutionError(f"axis {axis} is out of range for rank {x.ndim}")
        ranges[axis] = clamped(a, b, s, x.shape[axis])
    return x[tuple(ranges)]


@kernel(Pad, device="cpu")
def pad(
    op: Pad, x: Array, pads: Array | None = None, constant_value: Array | None = None, axes: Array | None = None
) -> Array:
    amounts = numbers_of(op.pads, pads)
    along = range(x.ndim) if op.axes is None and axes is None else numbers_of(op.axes, axes)
    if len(amounts) != 2 * len(along):
        raise ExecutionError(f"{len(amounts)} pads for {len(along)} axes; wants a begin and an end for each")
    added = [(0, 0)] * x.ndim
    cut = [slice(None)] * x.ndim
    for axis, begin, end in zip(along, amounts[: len(along)], amounts[len(along) :], strict=True):
        if x.shape[axis] + begin + end < 0:
            raise ExecutionError(f"pads {begin} and {end} leave less than nothing of axis {axis}")
        added[axis] = (max(begin, 0), max(end, 0))
        cut[axis] = slice(max(-begin, 0), x.shape[axis] - max(-end, 0))
    kept = x[tuple(cut)]
    if op.mode == "constant":
        return np.pad(kept, added, constant_values=_filling(op, x, constant_value))
    return np.pad(kept, added, op.mode)  # type: ignore[call-overload, no-any-return]


@kernel(CenterCropPad, device="cpu")
def center_crop_pad(op: CenterCropPad, x: Array, shape: Array | None = None) -> Array:
    axes = range(x.ndim) if op.axes is None else op.axes
    ranges, added = [slice(None)] * x.ndim, [(0, 0)] * x.ndim
    for axis, wanted in zip(axes, numbers_of(op.shape, shape), strict=True):
        extra = wanted - x.shape[axis]
        if extra < 0:
            start = -extra // 2
            ranges[axis] = slice(start, start + wanted)
        else:
            added[axis] = (extra // 2, extra - extra // 2)
    return np.pad(x[tuple(ranges)], added)


def _filling(op: Pad, x: Array, constant_value: Array | None) -> Any:
    if constant_value is not None:
        return constant_value.reshape(())
    if op.constant_value is not None:
        return op.constant_value
    return "" if x.dtype == object else x.dtype.type(0)


KERNELS: tuple[Kernel, ...] = (slice_, pad, center_crop_pad)
