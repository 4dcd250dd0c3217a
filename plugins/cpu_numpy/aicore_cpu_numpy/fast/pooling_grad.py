"""Gradients of pools: for each offset of the window, what it gets is added to the strided slice of elements it meets.

Images with channels first are so many images of one channel; with channels last, each has all channels. Blocks of rows
of windows stay in the cache, and each worker takes images of its own, or channels where there is one image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import AveragePool
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_rates import shared
from aicore_cpu_numpy.fast._parallel import Array, Call, Placing, parts_of, run_all, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carved_bytes
from aicore_cpu_numpy.fast._taps import Geometry, Tap, taps
from aicore_cpu_numpy.fast.pooling import divisors, geometry_of

Calls: TypeAlias = list[Call]
Index: TypeAlias = tuple[Any, ...]

FLOATS = frozenset({"float32", "float64"})
BLOCK_BYTES = 256 << 10
"""Of the windows' gradients in a block."""
CALL = 0.7e-6
_TAP = 3.3e-9
"""Seconds for one window and offset of MaxPoolGrad."""
_SHARE = 0.35
"""What AveragePoolGrad takes of that."""


@dataclass(frozen=True)
class Spread:
    """Windows of known shapes that give something back to the elements they meet.

    images, channels: with channels first, all channels are images of one.
    """

    geometry: Geometry
    images: int
    channels: int
    itemsize: int
    last: bool

    @property
    def overlaps(self) -> bool:
        """Whether an element may be in two windows."""
        g = self.geometry
        return any((k - 1) * d >= s for k, d, s in zip(g.kernel, g.dilations, g.strides, strict=True))

    @property
    def covers(self) -> bool:
        """Whether each element is in exactly one window."""
        g = self.geometry
        whole = tuple(d * s for d, s in zip(g.dims, g.strides, strict=True)) == g.spatial
        return whole and not self.overlaps and g.kernel == g.strides and not any(g.begins)

    @property
    def _image(self) -> int:
        """Elements of an image of windows."""
        return self.geometry.positions * self.channels

    @property
    def block(self) -> tuple[int, int]:
        """Images and rows of a block."""
        size, height = max(self._image * self.itemsize, 1), max(self.geometry.dims[0], 1)
        if size > BLOCK_BYTES:
            return 1, max(BLOCK_BYTES * height // size, 1)
        return max(min(BLOCK_BYTES // size, self.images), 1), height

    @property
    def scratch(self) -> int:
        """Elements of the windows of a block."""
        images, rows = self.block
        return images * rows * math.prod(self.geometry.dims[1:]) * self.channels

    @property
    def blocks(self) -> list[tuple[slice, int, int]]:
        """(images, first row, end row); blocks of the same images follow each other."""
        images, rows = self.block
        height = self.geometry.dims[0] if self.geometry.positions else 0
        return [
            (slice(image, min(image + images, self.images)), row, min(row + rows, height))
            for image in range(0, self.images, images)
            for row in range(0, height, rows)
        ]

    @property
    def seconds(self) -> float:
        """Of one thread, for MaxPoolGrad."""
        elements = self.images * self._image * self.geometry.offsets
        return elements * _TAP + 6 * CALL * self.geometry.offsets * len(self.blocks)


@lru_cache(maxsize=4096)
def spread(op: Op, *types: TensorType) -> Spread:
    """The problem of a gradient, or of one with channels last, for types of (x, dy) or of dy alone."""
    *others, dy = types
    last = isinstance(op, ChannelsLast)
    inner: Any = op.inner if isinstance(op, ChannelsLast) else op
    shape = dy.static_shape
    dims, channels = _spatial(shape, last), shape[-1] if last else shape[1]
    spatial = inner.shape if not others else _spatial(others[0].static_shape, last)
    geometry = replace(geometry_of(inner, spatial), dims=dims)
    images = shape[0] if last else shape[0] * channels
    return Spread(geometry, images, channels if last else 1, numpy_dtype(dy.dtype).itemsize, last)


def _spatial(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    return shape[1:-1] if last else shape[2:]


@dataclass(frozen=True)
class Way:
    """How one of the ops goes about it.

    scratch: bytes for a block of so many elements.
    calls: `(problem, operands of a block, dx of its images, rows of windows, scratch) -> calls`.
    """

    scratch: Callable[[Spread], tuple[int, ...]]
    calls: Callable[..., Calls]


def _divided(p: Spread, parts: int) -> list[tuple[Spread, slice, slice]]:
    """Each worker's problem, its images and its channels."""
    every = slice(None)
    if p.images >= parts or p.channels < parts:
        cut = [slice(*span) for span in spans(p.images, parts)]
        return [(replace(p, images=one.stop - one.start), one, every) for one in cut]
    cut = [slice(*span) for span in spans(p.channels, parts)]
    return [(replace(p, channels=one.stop - one.start), every, one) for one in cut]


def _tasks(way: Way, p: Spread, operands: Sequence[Array], dx: Array, workspace: Array, parts: int) -> list[Calls]:
    """Calls of each worker. operands: dy last."""
    if not dx.size:
        return []
    tail = (p.channels,) if p.last else ()
    images = [
        a.reshape(p.images, *(p.geometry.dims if a is operands[-1] else p.geometry.spatial), *tail) for a in operands
    ]
    target = dx.reshape(p.images, *p.geometry.spatial, *tail)
    memory = iter(_carved(workspace, [size for own, _, _ in _divided(p, parts) for size in way.scratch(own)]))
    tasks: list[Calls] = []
    for own, some, channels in _divided(p, parts):
        place: Index = (some, ..., channels) if p.last else (some,)
        scratch = [next(memory) for _ in way.scratch(own)]
        mine, calls = target[place], Calls()
        for block, start, stop in own.blocks:
            if start == 0 and not own.covers:
                calls.append(partial(mine[block].fill, 0))
            rows = [a[place][block] for a in images]
            rows[-1] = rows[-1][:, start:stop]
            calls += way.calls(own, rows, mine[block], slice(start, stop), scratch)
        if not own.blocks:
            calls.append(partial(mine.fill, 0))
        tasks.append(calls)
    return tasks


def _carved(workspace: Array, sizes: Sequence[int]) -> list[Array]:
    """Bytes for each use, one after another."""
    found, start = [], 0
    for size in sizes:
        found.append(workspace[start : start + size])
        start += carved_bytes(size)
    return found


def _of_source(tap: Tap) -> Index:
    return (slice(None), *tap.source[1:])


def _of_target(tap: Tap) -> Index:
    return (slice(None), *tap.target[1:])


def _like(memory: Array, dtype: Any, array: Array) -> Array:
    """Scratch of the array's shape."""
    kind = np.dtype(dtype)
    found: Array = memory[: array.size * kind.itemsize].view(kind).reshape(array.shape)
    return found


def _max_scratch(p: Spread) -> tuple[int, ...]:
    """Maxima, which windows still wait for theirs, who is it, the same twice, as integers, and shares of dy."""
    size = p.scratch
    return size * p.itemsize, size, size, size, size * p.itemsize, size * p.itemsize


def _max_calls(p: Spread, operands: Sequence[Array], dx: Array, rows: slice, scratch: Sequence[Array]) -> Calls:
    """The maxima of all windows are found again; then each offset takes those windows in which it is the first."""
    x, dy = operands
    found = taps(p.geometry, rows.start, rows.stop)
    largest, waiting = _like(scratch[0], x.dtype, dy), _like(scratch[1], bool, dy)
    complete = all(tap.whole for tap in found)
    plain: Calls = [] if complete else [partial(waiting.fill, True)]
    careful: Calls = [partial(waiting.fill, True)]
    for i, tap in enumerate(found):
        elements, maxima = x[_of_source(tap)], largest[_of_target(tap)]
        chosen, unequal = (_like(memory, bool, maxima) for memory in scratch[2:4])
        mine = waiting[_of_target(tap)]
        equal = partial(np.equal, elements, maxima, out=chosen)
        first = [partial(np.logical_and, chosen, mine, out=chosen), partial(np.logical_xor, mine, chosen, out=mine)]
        taken = partial(_taken, p, dy[_of_target(tap)], dx[_of_source(tap)], scratch[4:])
        unlike = partial(np.not_equal, elements, elements, out=unequal)
        careful += [equal, unlike, partial(np.logical_or, chosen, unequal, out=chosen), *first, *taken(chosen)]
        if complete and i == 0:
            plain += [equal, partial(np.logical_not, chosen, out=waiting), *taken(chosen)]
        elif complete and i == len(found) - 1:  # it has what all others left
            plain += taken(waiting)
        else:
            plain += [equal, *first, *taken(chosen)]
    return [partial(_choose, tuple(_maxima(x, largest, found)), largest, tuple(plain), tuple(careful))]


def _maxima(x: Array, largest: Array, found: Sequence[Tap]) -> Calls:
    if len(found) < 2 or not (found[0].whole and found[1].whole):
        calls: Calls = [partial(largest.fill, -np.inf)]
    else:
        calls = [partial(np.maximum, x[_of_source(found[0])], x[_of_source(found[1])], out=largest)]
        found = found[2:]
    for tap in found:
        maxima = largest[_of_target(tap)]
        calls.append(partial(np.maximum, maxima, x[_of_source(tap)], out=maxima))
    return calls


def _taken(p: Spread, dy: Array, dx: Array, scratch: Sequence[Array], chosen: Array) -> Calls:
    """What the chosen windows give to the elements of dx that one offset meets.

    A product of bits with 0 or 1 is a choice, where one of numbers would make NaN of an infinite gradient.
    """
    bits = np.dtype(f"u{p.itemsize}")
    factors, share = _like(scratch[0], bits, dy), _like(scratch[1], dy.dtype, dy)
    target = share if p.overlaps else dx
    calls: Calls = [
        partial(np.copyto, factors, chosen),
        partial(np.multiply, dy.view(bits), factors, out=target.view(bits)),
    ]
    return [*calls, partial(np.add, dx, share, out=dx)] if p.overlaps else calls


def _choose(forward: tuple[Call, ...], largest: Array, plain: tuple[Call, ...], careful: tuple[Call, ...]) -> None:
    """NaN is not equal to itself, which takes more to find, and is rare."""
    run_all(forward)
    run_all(careful if np.isnan(np.min(largest)) else plain)


def _average_scratch(p: Spread) -> tuple[int, ...]:
    return (p.scratch * p.itemsize,)


def _average_calls(
    counts: Array, p: Spread, operands: Sequence[Array], dx: Array, rows: slice, scratch: Sequence[Array]
) -> Calls:
    """counts: elements of each window, or of every one."""
    (dy,) = operands
    share = _like(scratch[0], dy.dtype, dy)
    calls: Calls = [partial(np.divide, dy, counts if counts.ndim == 0 else counts[rows], out=share)]
    for tap in taps(p.geometry, rows.start, rows.stop):
        place, part = dx[_of_source(tap)], share[_of_target(tap)]
        calls.append(partial(np.add, place, part, out=place) if p.overlaps else partial(np.copyto, place, part))
    return calls


_MAX = Way(_max_scratch, _max_calls)


def _way(op: Op, dtype: str) -> Way:
    inner: Any = op.inner if isinstance(op, ChannelsLast) else op
    if isinstance(inner, MaxPoolGrad):
        return _MAX
    fields = {name: getattr(inner, name) for name in AveragePool.field_defaults}
    counts = divisors(AveragePool(**fields), inner.shape, dtype)
    if isinstance(op, ChannelsLast) and counts.ndim:
        counts = counts[..., None]
    return Way(_average_scratch, partial(_average_calls, counts))


def _supports(op: Op, *types: TensorType | None) -> str | None:
    inner: Any = op.inner if isinstance(op, ChannelsLast) else op
    if isinstance(inner, AveragePoolGrad) and inner.shape is None:
        return "needs the shape of the input as a field"
    return None if all(t is None or t.is_static for t in types) else "needs shapes that are known in numbers"


def _seconds(op: Op, *types: TensorType) -> float:
    inner = op.inner if isinstance(op, ChannelsLast) else op
    return spread(op, *types).seconds * (1.0 if isinstance(inner, MaxPoolGrad) else _SHARE)


def _estimate(op: Op, *types: TensorType) -> float:
    seconds = _seconds(op, *types)
    return shared(seconds, parts_of(seconds))


def _workspace(op: Op, *types: TensorType) -> int:
    p, way = spread(op, *types), _way(op, types[0].dtype)
    divided = _divided(p, parts_of(_seconds(op, *types)))
    return sum(carved_bytes(size) for own, _, _ in divided for size in way.scratch(own))


def _bind(op: Op, types: Sequence[Any], constants: Sequence[Array | None]) -> Placing:
    p, way, parts = spread(op, *types), _way(op, types[0].dtype), parts_of(_seconds(op, *types))

    def place(*operands: Array, out: Array, workspace: Array) -> Call:
        return side_by_side(_tasks(way, p, operands, out, workspace, parts))

    return Placing(place)


def _make(op: type[Op], wraps: type[Op] | None, variant: str) -> Kernel:
    @kernel(
        op,
        wraps=wraps,
        device="cpu",
        variant=variant,
        dtypes=FLOATS,
        supports=_supports,
        workspace=_workspace,
        estimate=_estimate,
        bind=_bind,
    )
    def gradient(op: Op, *operands: Array, out: Array, workspace: Array) -> None:
        types = [TensorType(a.dtype.name, a.shape) for a in operands]
        _bind(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)

    return gradient


KERNELS: tuple[Kernel, ...] = (
    _make(MaxPoolGrad, None, "strided"),
    _make(AveragePoolGrad, None, "strided"),
    _make(ChannelsLast, MaxPoolGrad, "rows"),
    _make(ChannelsLast, AveragePoolGrad, "rows"),
)
