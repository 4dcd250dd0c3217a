"""Slice, Pad and Gather straight into the planned output, with ranges and indices worked out when the plan is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aicore.ir import TensorType, dtype_name
from aicore.kernels import Kernel, kernel
from aicore.ops.gather import Gather
from aicore.ops.slicing import Pad, Slice, clamped
from aicore_cpu_numpy.fast._sized import DENSE, sized
from aicore_cpu_numpy.reference._indices import counted_from_front, need_in_range

Array = np.ndarray[Any, Any]
Range = tuple[slice, ...]


def bind_slice(op: Slice, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Callable[..., None]:
    ranges = _ranges(op, types[0].static_shape if types[0] is not None else ())

    def run(x: Array, *operands: Array | None, out: Array) -> None:
        np.copyto(out, x[ranges])

    return run


@kernel(Slice, device="cpu", variant="strided", dtypes=DENSE, supports=sized, bind=bind_slice)
def slice_into(op: Slice, x: Array, *operands: Array | None, out: Array) -> None:
    np.copyto(out, x[_ranges(op, x.shape)])


def bind_pad(op: Pad, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Callable[..., None]:
    shape = types[0].static_shape if types[0] is not None else ()
    kept, centre, borders = _margins(op, shape)

    def run(
        x: Array,
        pads: Array | None = None,
        constant_value: Array | None = None,
        axes: Array | None = None,
        *,
        out: Array,
    ) -> None:
        if op.mode == "constant" and borders:
            out.fill(constant_value.item() if constant_value is not None else op.constant_value or 0)
        np.copyto(out[centre], x[kept])
        if op.mode != "constant":
            for target, source in borders:
                np.copyto(out[target], out[source])

    return run


@kernel(Pad, device="cpu", variant="strided", dtypes=DENSE, supports=sized, bind=bind_pad)
def pad_into(op: Pad, x: Array, *operands: Array | None, out: Array) -> None:
    """The centre is copied, then each axis' borders slice by slice from what is already there."""
    bind_pad(op, [TensorType(dtype_name(x.dtype), x.shape)], [])(x, *operands, out=out)


def bind_gather(
    op: Gather, types: Sequence[TensorType | None], constants: Sequence[Array | None]
) -> Callable[..., None]:
    fixed = constants[1] if len(constants) > 1 else None
    if fixed is None or types[0] is None:
        return lambda x, indices, *, out, workspace: gather_into.function(op, x, indices, out=out, workspace=workspace)
    shape = types[0].static_shape
    axis = op.axis % len(shape)
    places = counted_from_front(fixed, shape[axis], axis)

    def run(x: Array, indices: Array, *, out: Array, workspace: Array) -> None:
        np.take(x, places, axis, out, "clip")

    return run


def _wide_indices(op: Gather, x: TensorType, indices: TensorType) -> int:
    return 0 if indices.dtype == "int64" else 8 * math.prod(indices.static_shape)


@kernel(Gather, device="cpu", variant="take", dtypes=DENSE, supports=sized, bind=bind_gather, workspace=_wide_indices)
def gather_into(op: Gather, x: Array, indices: Array, *, out: Array, workspace: Array) -> None:
    """Once the indices are in range, `wrap` counts negative ones from the back; it also writes without a buffer."""
    axis = op.axis % x.ndim
    need_in_range(indices, x.shape[axis], axis)
    places = indices
    if indices.dtype != np.int64:
        places = workspace[: 8 * indices.size].view(np.int64).reshape(indices.shape)
        np.copyto(places, indices)
    np.take(x, places, axis, out, "wrap")


def _ranges(op: Slice, shape: Sequence[int]) -> Range:
    starts, ends = op.starts or (), op.ends or ()
    ranges = [slice(None)] * len(shape)
    axes = range(len(starts)) if op.axes is None else op.axes
    for axis, start, end, step in zip(axes, starts, ends, op.steps or (1,) * len(starts), strict=True):
        ranges[axis] = clamped(start, end, step, shape[axis])
    return tuple(ranges)


def _margins(op: Pad, shape: Sequence[int]) -> tuple[Range, Range, list[tuple[Range, Range]]]:
    """(what is kept of the operand, where it goes, and (target, source) of each border slice in the output)."""
    rank, pads = len(shape), op.pads or ()
    axes = [axis % rank for axis in (range(rank) if op.axes is None else op.axes)]
    begins, ends = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        begins[axis], ends[axis] = pads[i], pads[len(axes) + i]
    kept = tuple(slice(max(-b, 0), d - max(-e, 0)) for d, b, e in zip(shape, begins, ends, strict=True))
    sizes = [d + min(b, 0) + min(e, 0) for d, b, e in zip(shape, begins, ends, strict=True)]
    centre = tuple(slice(max(b, 0), max(b, 0) + n) for b, n in zip(begins, sizes, strict=True))
    borders = []
    for axis in range(rank):
        for place, source in _border(op.mode, sizes[axis], max(begins[axis], 0), max(ends[axis], 0)):
            before, after = (slice(None),) * axis, centre[axis + 1 :]
            borders.append(((*before, place, *after), (*before, source, *after)))
    return kept, centre, borders


def _border(mode: str, size: int, begin: int, end: int) -> list[tuple[slice, slice]]:
    """(place, source) along one axis of the output; one-element slices keep the axis."""
    if not begin and not end:
        return []
    inner = np.arange(begin, begin + size)
    table = np.pad(inner, (begin, end)) if mode == "constant" else np.pad(inner, (begin, end), mode)  # type: ignore[call-overload]
    outside = [*range(begin), *range(begin + size, begin + size + end)]
    return [(slice(i, i + 1), slice(int(table[i]), int(table[i]) + 1)) for i in outside]


KERNELS: tuple[Kernel, ...] = (slice_into, pad_into, gather_into)
