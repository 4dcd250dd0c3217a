"""Pools of channels-last images: shifted slices of whole rows, on blocks that stay in the cache.

Windows are mostly computed axis by axis: the extremes (or sums) of their columns first, which neighbouring windows
share and which whole rows of the image have in long loops, then those of their rows. Each worker takes rows of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_problem import blocks_of, shares_of_rows
from aicore_cpu_numpy.fast._parallel import PASS, Array, Call, Placing, parts_of, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carve, carved_bytes
from aicore_cpu_numpy.fast._taps import Geometry, Index, Tap, taps
from aicore_cpu_numpy.fast.pooling import FLOATS, ORDERED, divisors, geometry_of

BLOCK_BYTES = 512 << 10
"""Of the results of a block. Calls on smaller ones are so short that threads wait for each other at the interpreter's
lock, and an image may be small, so that a block has several.
"""
GROUP = 256
"""Positions that are added up before their sum joins those of others."""
CALL, LOOP, READ = 0.7e-6, 8e-9, 0.06e-9
"""Seconds of one NumPy call, of one of its inner loops, and for a byte that a product reads."""


@dataclass(frozen=True)
class Pooling:
    """A pool of known shapes. Work is shared by rows of all images.

    width: elements of a row of results.
    """

    geometry: Geometry
    images: int
    channels: int
    itemsize: int

    @property
    def width(self) -> int:
        return math.prod(self.geometry.dims[1:]) * self.channels

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return max(1, min(self.images * self.geometry.dims[0], BLOCK_BYTES // max(self.width * self.itemsize, 1)))

    @cached_property
    def by_axis(self) -> bool:
        """Whether the columns of windows are worth passes of their own."""
        return self._by_axis < self._at_once

    @cached_property
    def _at_once(self) -> float:
        """Seconds of a row of results, without calls."""
        return max(self.geometry.offsets - 1, 1) * self._along

    @cached_property
    def _by_axis(self) -> float:
        """The same with the columns of windows first: in long loops over whole rows."""
        g = self.geometry
        if len(g.kernel) != 2:
            return math.inf
        high, wide = (max(k - 1, 1) for k in g.kernel)
        return high * g.spatial[1] * self.channels * PASS + wide * self._along

    @property
    def _along(self) -> float:
        """Seconds to join one more column to those of all windows: each has a loop of its own if windows jump."""
        g = self.geometry
        return math.prod(g.dims[1:]) * (self.channels * PASS + (LOOP if g.strides[-1] > 1 else 0))

    @property
    def scratch(self) -> int:
        """Elements that one worker needs besides the results."""
        return self.rows * self.geometry.spatial[1] * self.channels if self.by_axis else 0

    @property
    def seconds(self) -> float:
        """Of one thread."""
        rows = self.images * self.geometry.dims[0]
        calls = sum(self.geometry.kernel) if self.by_axis else self.geometry.offsets
        return rows * min(self._at_once, self._by_axis) + calls * -(-rows // self.rows) * CALL


@lru_cache(maxsize=4096)
def pooling(op: ChannelsLast, x: TensorType) -> Pooling:
    shape, inner = x.static_shape, op.inner
    assert isinstance(inner, MaxPool | AveragePool)  # the kernels below are for nothing else
    return Pooling(geometry_of(inner, shape[1:-1]), shape[0], shape[-1], numpy_dtype(x.dtype).itemsize)


@dataclass(frozen=True)
class Accumulation:
    """How windows are summed up: a ufunc of two, and what it leaves alone."""

    ufunc: Any
    neutral: Any

    def calls(self, found: Sequence[Tap], source: Array, target: Array) -> list[Call]:
        """Calls that write to `target` what the taps' sources come to; channels are the last axis of both."""
        pairs = [(source[_of_all(tap.source)], target[_of_all(tap.target)]) for tap in found]
        whole = [i for i, tap in enumerate(found) if tap.whole]
        if not whole:
            first: list[Call] = [partial(target.fill, self.neutral)]
            done = set[int]()
        elif len(whole) == 1:
            first, done = [partial(np.copyto, target, pairs[whole[0]][0])], {whole[0]}
        else:
            one, two = whole[:2]
            first, done = [partial(self.ufunc, pairs[one][0], pairs[two][0], out=target)], {one, two}
        return first + [partial(self.ufunc, y, x, out=y) for i, (x, y) in enumerate(pairs) if i not in done]


def _of_all(index: Index) -> Index:
    """The index of a tap, for all images and channels."""
    return slice(None), *index[1:]


def _block_calls(p: Pooling, how: Accumulation, images: Array, out: Array, rows: slice, scratch: Array) -> list[Call]:
    """Calls for a block of rows of some images."""
    g, (start, stop) = p.geometry, (rows.start, rows.stop)
    if not p.by_axis:
        return how.calls(taps(g, start, stop), images, out)
    (high, wide), count, width = g.kernel, stop - start, g.spatial[1]
    shape = (len(images), count, width, p.channels)
    between = scratch[: math.prod(shape)].reshape(shape)
    lines = Geometry(
        (g.spatial[0], width),
        (g.dims[0], width),
        (high, 1),
        (g.strides[0], 1),
        (g.dilations[0], 1),
        (g.begins[0], 0),
    )
    columns = Geometry(
        (count, width),
        (count, g.dims[1]),
        (1, wide),
        (1, g.strides[1]),
        (1, g.dilations[1]),
        (0, g.begins[1]),
    )
    return [*how.calls(taps(lines, start, stop), images, between), *how.calls(taps(columns, 0, count), between, out)]


def _tasks(
    p: Pooling, how: Accumulation, x: Array, out: Array, counts: Array | None, workspace: Array, parts: int
) -> list[list[Call]]:
    """Calls of each worker; `counts` divide the results."""
    if not out.size:
        return []
    rows = shares_of_rows(p.images, p.geometry.dims[0], parts, p.seconds)
    memory = carve(workspace, x.dtype, *((p.scratch,),) * len(rows))
    tasks: list[list[Call]] = []
    for (start, stop), scratch in zip(rows, memory, strict=True):
        calls: list[Call] = []
        for block in blocks_of(p.geometry.dims[0], start, stop, p.rows):
            target = out[block.images, block.rows]
            calls += _block_calls(p, how, x[block.images], target, block.rows, scratch)
            if counts is not None:
                calls.append(partial(np.divide, target, counts if counts.ndim == 0 else counts[block.rows], out=target))
        tasks.append(calls)
    return tasks


def _workspace(op: ChannelsLast, x: TensorType, pitched: bool = False) -> int:
    p = pooling(op, x)
    return carved_bytes(*(p.scratch * p.itemsize,) * parts_of(p.seconds))


def _estimate(op: ChannelsLast, x: TensorType) -> float:
    seconds = pooling(op, x).seconds
    return seconds / parts_of(seconds)


def _bind(op: ChannelsLast, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
    x_type, inner = types[0], op.inner
    assert x_type is not None  # infer() refused the op otherwise
    p, counts, dtype = pooling(op, x_type), None, numpy_dtype(x_type.dtype)
    if isinstance(inner, AveragePool):
        how = Accumulation(np.add, 0)
        counts = divisors(inner, x_type.static_shape[1:-1], x_type.dtype)
        counts = counts if counts.ndim == 0 else counts[..., None]
    else:
        how = Accumulation(np.maximum, -np.inf if dtype.kind == "f" else np.iinfo(dtype).min)
    parts = parts_of(p.seconds)

    def place(x: Array, *, out: Array, workspace: Array) -> Call:
        return side_by_side(_tasks(p, how, x, out, counts, workspace, parts))

    return Placing(place)


def _supports(op: ChannelsLast, x: TensorType) -> str | None:
    if getattr(op.inner, "indices", False):
        return "does not find indices"
    return None if x.is_static else "needs a shape that is known in numbers"


def _pool(wraps: type[Op], dtypes: frozenset[str]) -> Kernel:
    @kernel(
        ChannelsLast,
        wraps=wraps,
        device="cpu",
        variant="rows",
        dtypes=dtypes,
        supports=_supports,
        workspace=_workspace,
        estimate=_estimate,
        bind=_bind,
        pitched=True,
    )
    def pool(op: ChannelsLast, x: Array, *, out: Array, workspace: Array) -> None:
        _bind(op, [TensorType(x.dtype.name, x.shape)], [None])(x, out=out, workspace=workspace)

    return pool


def _global_seconds(x: TensorType) -> float:
    return math.prod(x.static_shape) * numpy_dtype(x.dtype).itemsize * READ + 2 * CALL


def _global_estimate(op: ChannelsLast, x: TensorType) -> float:
    return _global_seconds(x) / parts_of(_global_seconds(x))


def _groups(positions: int) -> int:
    """How many groups of positions have a sum of their own: one long sum in float32 would lose digits."""
    return -(-positions // GROUP) if positions > 4 * GROUP else 0


def _mean_calls(x: Array, y: Array, sums: Array) -> list[Call]:
    """x: (images, positions, channels). Sums are products with ones, which read each element once.

    sums: (images, groups, channels), or no groups.
    """
    count, groups = x.shape[1], sums.shape[1]
    calls: list[Call] = []
    if groups:
        whole = count // GROUP
        parts = x[:, : whole * GROUP].reshape(len(x), whole, GROUP, x.shape[2])
        calls.append(partial(np.matmul, _ones(GROUP, x), parts, out=sums[:, :whole, None]))
        if whole < groups:
            rest = x[:, whole * GROUP :]
            calls.append(partial(np.matmul, _ones(rest.shape[1], x), rest, out=sums[:, whole:]))
        x = sums
    return [
        *calls,
        partial(np.matmul, _ones(x.shape[1], x), x, out=y[:, None]),
        partial(np.divide, y, y.dtype.type(count), out=y),
    ]


def _ones(count: int, like: Array) -> Array:
    return np.ones((1, count), like.dtype)


def _max_calls(x: Array, y: Array, sums: Array) -> list[Call]:
    return [partial(np.maximum.reduce, x, axis=1, out=y, initial=-np.inf)]


def _sums_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    return shape[0], _groups(math.prod(shape[1:-1])), shape[-1]


def _global_workspace(op: ChannelsLast, x: TensorType) -> int:
    return math.prod(_sums_shape(x.static_shape)) * numpy_dtype(x.dtype).itemsize


def _global(wraps: type[Op], calls: Callable[[Array, Array, Array], list[Call]], variant: str) -> Kernel:
    def bind(op: ChannelsLast, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
        parts = parts_of(_global_seconds(types[0])) if types[0] is not None else 1

        def place(x: Array, *, out: Array, workspace: Array) -> Call:
            images, channels = x.shape[0], x.shape[-1]
            pixels, y = x.reshape(images, math.prod(x.shape[1:-1]), channels), out.reshape(images, channels)
            (sums,) = carve(workspace, x.dtype, _sums_shape(x.shape))
            tasks = [calls(pixels[..., a:b], y[:, a:b], sums[..., a:b]) for a, b in spans(channels, parts)]
            return side_by_side(tasks)

        return Placing(place)

    @kernel(
        ChannelsLast,
        wraps=wraps,
        device="cpu",
        variant=variant,
        dtypes=FLOATS,
        supports=_supports,
        workspace=_global_workspace,
        estimate=_global_estimate,
        bind=bind,
    )
    def pool(op: ChannelsLast, x: Array, *, out: Array, workspace: Array) -> None:
        bind(op, [TensorType(x.dtype.name, x.shape)], [None])(x, out=out, workspace=workspace)

    return pool


KERNELS: tuple[Kernel, ...] = (
    _pool(MaxPool, ORDERED),
    _pool(AveragePool, FLOATS),
    _global(GlobalAveragePool, _mean_calls, "product"),
    _global(GlobalMaxPool, _max_calls, "max"),
)
