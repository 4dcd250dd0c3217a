"""The part of channels-last images that a block of windows reaches: a view of them, or a copy with zeros around.

A region is given by `lows` and `highs`, the first and end element along each spatial axis; below 0 and beyond the image
lies the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from aicore_cpu_numpy.fast._last_epilogue import Array, Call, Calls
from aicore_cpu_numpy.fast._taps import Geometry

Bounds = tuple[int, ...]

_RUN_BYTES = 1024
"""Longer runs are copied as quickly without further ado."""


def reach(geometry: Geometry, start: int, stop: int) -> tuple[Bounds, Bounds]:
    """(lows, highs) of what the windows of rows `start` to `stop` reach; rows are along the first spatial axis."""
    firsts = [start] + [0] * (len(geometry.dims) - 1)
    lasts = [stop - 1] + [n - 1 for n in geometry.dims[1:]]
    moves = list(zip(geometry.strides, geometry.begins, strict=True))
    extents = [(k - 1) * d + 1 for k, d in zip(geometry.kernel, geometry.dilations, strict=True)]
    lows = tuple(first * stride - begin for first, (stride, begin) in zip(firsts, moves, strict=True))
    highs = tuple(
        last * stride - begin + extent for last, (stride, begin), extent in zip(lasts, moves, extents, strict=True)
    )
    return lows, highs


def is_inside(spatial: Sequence[int], lows: Bounds, highs: Bounds) -> bool:
    """Whether a region meets no padding."""
    return min(lows) >= 0 and all(high <= n for high, n in zip(highs, spatial, strict=True))


def sizes(lows: Bounds, highs: Bounds) -> Bounds:
    """Dims of a region; a block needs a buffer (images, *sizes, channels) unless it is inside."""
    return tuple(high - low for low, high in zip(lows, highs, strict=True))


def view_of(images: Array, lows: Bounds, highs: Bounds) -> Array:
    """The region as a view, if it is inside."""
    return images[(slice(None), *(slice(low, high) for low, high in zip(lows, highs, strict=True)))]


def clear(buffer: Array, images: Array | None = None, lows: Bounds = (), highs: Bounds = ()) -> Calls:
    """Calls to make once before `copy_region` for regions that differ along the first spatial axis only.

    They put zeros into all of the buffer or, with one of the regions given, where copies leave it as it is.
    """
    if images is None:
        return [partial(buffer.fill, 0)]
    calls: Calls = []
    for axis, (low, high, size) in enumerate(zip(lows, highs, images.shape[1:-1], strict=True)):
        if axis:
            start = max(-low, 0)
            inside = slice(start, start + max(min(high, size) - max(low, 0), 0))
            calls += [partial(edge.fill, 0) for edge in _outside(buffer, axis + 1, inside)]
    return calls


def copy_region(images: Array, lows: Bounds, highs: Bounds, buffer: Array) -> Calls:
    """Calls that copy the region into the buffer, with zeros for what lies outside along the first spatial axis.

    images: (n, spatial..., channels), strided as it likes. buffer: (n, *sizes, channels); along the other axes it
    keeps what it has outside of the images, the zeros of `clear`.
    """
    spatial = images.shape[1:-1]
    sources = [slice(max(low, 0), max(min(high, n), 0)) for low, high, n in zip(lows, highs, spatial, strict=True)]
    starts = [max(-low, 0) for low in lows]
    found = images[(slice(None), *sources)]
    places = [slice(start, start + n) for start, n in zip(starts, found.shape[1:-1], strict=True)]
    calls: Calls = [partial(edge.fill, 0) for edge in _outside(buffer, 1, places[0])]
    return [*calls, copy_runs(found, buffer[(slice(None), *places)])] if found.size else calls


def _outside(buffer: Array, axis: int, inside: slice) -> list[Array]:
    """What lies before and after the slice of an axis."""
    before = (slice(None),) * axis
    edges = [buffer[(*before, slice(None, inside.start))], buffer[(*before, slice(inside.stop, None))]]
    return [edge for edge in edges if edge.size]


def copy_runs(source: Array, target: Array) -> Call:
    """The call of a copy, in which runs of memory are elements: NumPy moves from element to element much faster."""
    run, axis = source.itemsize, source.ndim
    while axis and source.shape[axis - 1] * run <= _RUN_BYTES and _is_run(source, target, axis - 1, run):
        axis -= 1
        run *= source.shape[axis]
    if axis == source.ndim or not source.size:
        return partial(np.copyto, target, source)
    return partial(np.copyto, _runs(target, axis, run), _runs(source, axis, run))


def _is_run(source: Array, target: Array, axis: int, run: int) -> bool:
    """Whether the elements along the axis, of `run` bytes each, follow one another."""
    return source.strides[axis] == target.strides[axis] == run


def _runs(array: Array, axis: int, run: int) -> Array:
    """The array with the axes from `axis` on, which lie one after another in `run` bytes, as one element."""
    shape, strides = (*array.shape[:axis], run // array.itemsize), (*array.strides[:axis], array.itemsize)
    return np.lib.stride_tricks.as_strided(array, shape, strides).view(f"V{run}")
