"""Sliding windows one kernel offset at a time: which outputs meet which inputs through it, as strided slices.

A loop over the offsets of the kernel (9 for 3x3) with a NumPy operation on whole tensors in it is the pattern of all
fast convolutions and pools; padding is never copied, since a slice leaves out what lies in it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from aicore.ops.window import Windowed
from aicore.records import dataclass

Index = tuple[Any, ...]

_USUAL = 1024
"""Elements of a kernel along one axis; padding lets a file give a kernel of any size."""


@dataclass(frozen=True)
class Geometry:
    """A sliding window over known dims: `dims` positions of `kernel` over `spatial`, moved by `begins` of padding."""

    spatial: tuple[int, ...]
    dims: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]

    @classmethod
    def of(cls, op: Windowed, spatial: Sequence[int], dims: Sequence[int]) -> Geometry:
        """Of an op with all defaults filled in and `auto_pad` resolved."""
        count = len(dims)
        return cls(tuple(spatial), tuple(dims), op.kernel_shape, op.strides, op.dilations, op.pads[:count])

    @property
    def offsets(self) -> int:
        """Elements of the kernel."""
        return math.prod(self.kernel)

    @property
    def positions(self) -> int:
        """Elements of one output channel."""
        return math.prod(self.dims)


@dataclass(frozen=True)
class Tap:
    """One offset of the kernel: the windows at `target` meet the elements at `source` through it.

    Both index the last dims of an array, whatever comes before them.
    index: of the offset, in row-major order.
    whole: every window does; else the others lie in the padding with this offset.
    """

    index: int
    target: Index
    source: Index
    whole: bool


@lru_cache(maxsize=4096)
def taps(geometry: Geometry, start: int, stop: int) -> tuple[Tap, ...]:
    """The taps of windows `start` to `stop` along the first spatial dim; `target` counts from `start`.

    Offsets that meet no element at all are left out.
    """
    along = [
        [(k, *_meeting(geometry, axis, k, start, stop)) for k in _offsets(geometry, axis, start, stop)]
        for axis in range(len(geometry.kernel))
    ]
    found = []
    for offset in itertools.product(*along):
        if all(target.start < target.stop for _, target, _, _ in offset):
            places, targets, sources, wholes = zip(*offset, strict=True)
            index = _row_major(places, geometry.kernel)
            found.append(Tap(index, (..., *targets), (..., *sources), all(wholes)))
    return tuple(found)


def _offsets(geometry: Geometry, axis: int, start: int, stop: int) -> Sequence[int]:
    """Offsets along one axis that may meet an element: all of a usual kernel, few of one larger than its input."""
    size = geometry.kernel[axis]
    if size <= _USUAL:
        return range(size)
    windows = range(start, stop) if axis == 0 else range(geometry.dims[axis])
    dilation, found = geometry.dilations[axis], set[int]()
    for window in windows:
        first = geometry.begins[axis] - window * geometry.strides[axis]
        last = first + geometry.spatial[axis] - 1
        found.update(range(max(-(-first // dilation), 0), min(last // dilation + 1, size)))
    return sorted(found)


def _row_major(places: Sequence[int], dims: Sequence[int]) -> int:
    index = 0
    for place, dim in zip(places, dims, strict=True):
        index = index * dim + place
    return index


def _meeting(geometry: Geometry, axis: int, k: int, start: int, stop: int) -> tuple[slice, slice, bool]:
    """Along one axis: the windows that meet an element through offset `k`, the elements, and whether all windows do."""
    first, count = (start, stop - start) if axis == 0 else (0, geometry.dims[axis])
    stride = geometry.strides[axis]
    base = k * geometry.dilations[axis] - geometry.begins[axis] + first * stride
    low = min(max(-(base // stride), 0), count)
    high = max(min((geometry.spatial[axis] - 1 - base) // stride + 1, count), low)
    begin = base + low * stride
    return slice(low, high), slice(begin, begin + max(high - low - 1, -1) * stride + 1, stride), high - low == count
