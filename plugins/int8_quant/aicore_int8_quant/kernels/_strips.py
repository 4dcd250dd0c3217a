"""The sums of a convolution of bytes with channels last, strip by strip, by the methods for float32.

A strip is some rows of the output. What its windows reach becomes float32, with the zero point where the padding is,
so that the methods of the CPU plugin find an image without padding: products, windows, shifted products or depthwise
sums, whichever is expected to be the fastest. The zero point times the weights is taken off with the bias. float32
holds every sum whose magnitudes add up to no more than 2^24; longer sums are cut along the channels, and the parts are
added in int32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from aicore.ops.convolution import Conv
from aicore_cpu_numpy.integer_sums import EXACT, last

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]

STRIP = 1 << 17
"""Elements of a strip, in and out, which share the second-level cache."""
CONVERTED, FINISHED, CALL = 0.3e-9, 1.0e-9, 4e-6
"""For estimates: seconds to make a float of a byte, to finish a sum, and of a NumPy call."""


@dataclass(frozen=True)
class Strips:
    """A convolution of known shapes, and how it is cut.

    problem: all of it, in float32. parts: into how many its channels are cut.
    """

    problem: last.Problem
    parts: int = 1

    @property
    def inputs(self) -> int:
        """Channels of an image."""
        return self.problem.group * self.problem.channels

    @cached_property
    def cut(self) -> list[slice]:
        """The channels of each part; with groups there is one."""
        return [slice(*span) for span in last.spans(self.inputs, self.parts)]

    @cached_property
    def rows(self) -> int:
        """Rows of the output in a strip."""
        p, g = self.problem, self.problem.geometry
        reached = math.prod(g.spatial[1:]) * self.inputs * g.strides[0]
        row = max(reached + p.width * p.outputs, 1)
        return max(STRIP // row, 1)

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """(first row, end row) of each worker."""
        p = self.problem
        workers = p.workers if self.alone > last.PARALLEL else 1
        found: list[tuple[int, int]] = last.shares(p.height, workers, self.alone) if p.size else []
        return found

    @cached_property
    def alone(self) -> float:
        """Seconds of one worker for all of it."""
        p = self.problem
        cut = last.blocks(p, 0, p.height, self.rows) if p.size else []
        moved = sum(math.prod(self.dims(block, part)) for block in cut for part in self.cut)
        sums = sum(self.method(block, part).seconds for block in cut for part in self.cut)
        return sums + moved * CONVERTED + p.size * FINISHED + CALL * 8 * len(cut)

    @cached_property
    def seconds(self) -> float:
        """Expected time."""
        return last.shared(self.alone, len(self.bounds), self.problem.height) if self.bounds else CALL

    def cuts(self, start: int, stop: int) -> list[last.Block]:
        """The strips of a worker."""
        found: list[last.Block] = last.blocks(self.problem, start, stop, self.rows)
        return found

    def dims(self, block: last.Block, part: slice) -> tuple[int, ...]:
        """(images, spatial..., channels) that the windows of a strip reach, padding included."""
        lows, highs = last.reach(self.problem.geometry, block.rows.start, block.rows.stop)
        images = block.images.stop - block.images.start
        return (images, *last.sizes(lows, highs), part.stop - part.start)

    def method(self, block: last.Block, part: slice) -> last.Method:
        """The fastest way for a strip, and for a part of its channels."""
        p = self.problem
        rows = block.rows.stop - block.rows.start
        geometry = replace(
            p.geometry,
            spatial=self.dims(block, part)[1:-1],
            dims=(rows, *p.geometry.dims[1:]),
            begins=(0,) * len(p.geometry.dims),
        )
        images = block.images.stop - block.images.start
        channels = (part.stop - part.start) // p.group
        strip = replace(p, geometry=geometry, images=images, channels=channels, workers=1)
        return _fastest(strip)

    @cached_property
    def workspace(self) -> list[tuple[int, int, int, int]]:
        """For each worker: elements of a strip's input, of its sums, of these in int32, and bytes of the method."""
        found = []
        for start, stop in self.bounds:
            cut = self.cuts(start, stop)
            sums = max(block.height for block in cut) * self.problem.width * self.problem.outputs
            reached = max(math.prod(self.dims(block, part)) for block in cut for part in self.cut)
            method = max(self.method(block, part).workspace for block in cut for part in self.cut)
            found.append((reached, sums, sums, method))
        return found

    @property
    def bytes(self) -> int:
        """Of workspace, for all workers."""
        return sum(last.carved_bytes(*(4 * size for size in sizes), method) for *sizes, method in self.workspace)

    def calls(
        self, x: Array, zero_point: float, weights: Weights, wide: bool, workspace: Array, finish: Any
    ) -> list[list[Call]]:
        """The calls of each worker.

        zero_point: what the padding holds. weights: as floats, of each part. wide: the sums are to be int32.
        finish: (block, sums, work) -> calls.
        """
        found: list[list[Call]] = []
        begin, p = 0, self.problem
        x = x.reshape(p.images, *p.geometry.spatial, self.inputs)
        for (start, stop), (*sizes, method) in zip(self.bounds, self.workspace, strict=True):
            end = begin + last.carved_bytes(*(4 * size for size in sizes), method)
            own = _Own(self, x, zero_point, weights, workspace[begin:end], tuple(sizes))
            found.append([call for block in self.cuts(start, stop) for call in own.strip(block, wide, finish)])
            begin = end
        return found


class Weights:
    """Weights in float32, (maps, channels, kernel...), cut along the channels, in the orders that methods want."""

    def __init__(self, parts: list[Array]) -> None:
        self._parts = parts
        self._packed: dict[Any, Array] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def of(self, part: int, method: last.Method) -> Array:
        """A part as the method wants it; packed once."""
        key = part, type(method), getattr(method, "_columns", None)  # depthwise weights repeat for some positions
        if key not in self._packed:
            self._packed[key] = method.packed(self._parts[part])
        return self._packed[key]


class _Own:
    """What one worker has: memory, and the strips that it is to compute."""

    def __init__(
        self,
        strips: Strips,
        x: Array,
        zero_point: float,
        weights: Weights,
        memory: Array,
        sizes: tuple[int, ...],
    ) -> None:
        self._strips, self._x, self._zero_point = strips, x, zero_point
        self._weights = weights
        self._input, self._sums = last.carve(memory, np.dtype(np.float32), *((size,) for size in sizes[:2]))
        offset = last.carved_bytes(*(4 * size for size in sizes[:2]))
        (self._total,) = last.carve(memory[offset:], np.dtype(np.int32), (sizes[2],))
        self._method = memory[last.carved_bytes(*(4 * size for size in sizes)) :]

    def strip(self, block: last.Block, wide: bool, finish: Any) -> Iterator[Call]:
        s, p = self._strips, self._strips.problem
        shape = (block.height * p.width, p.outputs)
        work, total = (a[: math.prod(shape)].reshape(shape) for a in (self._sums, self._total))
        images, rows = block.images.stop - block.images.start, block.rows.stop - block.rows.start
        result = work.reshape(images, rows, *p.geometry.dims[1:], p.outputs)
        for number, part in enumerate(s.cut):
            dims, method = s.dims(block, part), s.method(block, part)
            image = self._input[: math.prod(dims)].reshape(dims)
            yield from self._converted(block, part, image)
            arrays = last.Arrays(image, result, None, None, True)
            (calls,) = method.tasks(arrays, self._weights.of(number, method), self._method)
            yield from calls
            if wide:
                yield partial(_add_up, work, total, number == 0)
        yield from finish(block, total if wide else work, work)

    def _converted(self, block: last.Block, part: slice, image: Array) -> Iterator[Call]:
        """Calls that make floats of what the strip reaches, and the zero point of the padding around it."""
        x = self._x[block.images][..., part]
        lows, highs = last.reach(self._strips.problem.geometry, block.rows.start, block.rows.stop)
        spatial = x.shape[1:-1]
        spans = list(zip(lows, highs, spatial, strict=True))
        source = x[(slice(None), *(slice(max(low, 0), max(min(high, n), 0)) for low, high, n in spans))]
        places = [slice(max(-low, 0), max(-low, 0) + n) for low, n in zip(lows, source.shape[1:-1], strict=True)]
        target = image[(slice(None), *places)]
        if target.shape != image.shape:
            yield partial(image.fill, self._zero_point)
        if source.size:
            yield partial(np.copyto, target, source)


def exact_parts(weight: Array, largest: int, groups: int) -> list[Array] | None:
    """A weight in float32, (maps, channels, kernel...), cut along the channels so that float32 holds all sums.

    largest: the largest magnitude of an input. None where no cut is fine enough.
    """
    for parts in cuts(weight.shape[1], groups):
        cut = [weight[:, start:stop] for start, stop in last.spans(weight.shape[1], parts)]
        magnitudes = max(float(np.abs(w).sum(tuple(range(1, w.ndim)), dtype=np.float64).max(initial=0)) for w in cut)
        if magnitudes * largest <= EXACT:
            return [np.ascontiguousarray(w) for w in cut]
    return None


def cuts(channels: int, groups: int) -> list[int]:
    """Into how many parts channels may be cut: powers of two, and as many as there are; with groups, none."""
    if groups > 1:
        return [1]
    return [*(1 << i for i in range(channels.bit_length()) if 1 << i < channels), channels]


@lru_cache(maxsize=4096)
def strips_of(conv: Conv, x: tuple[int, ...], w: tuple[int, ...], workers: int, parts: int = 1) -> Strips:
    """x: (N, spatial..., C). w: (M, C / group, kernel...)."""
    problem = last.Problem.of(conv, x, w, 4, workers=workers)
    if not last.needs_windows(problem):  # a product: all positions are rows of one image
        flat = (1, math.prod(x[:-1]), 1, x[-1])
        plain = Conv(group=conv.group, kernel_shape=(1, 1), strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0))
        problem = last.Problem.of(plain, flat, (*w[:2], 1, 1), 4, workers=workers)
    return Strips(problem, parts)


@lru_cache(maxsize=1 << 14)
def _fastest(problem: last.Problem) -> last.Method:
    methods = [make(problem) for make, reason in last.METHODS if reason(problem) is None]
    return min(methods, key=lambda method: method.seconds)


def _add_up(work: Array, total: Array, first: bool) -> None:
    if first:
        np.copyto(total, work, casting="unsafe")
    else:
        np.add(total, work, out=total, dtype=np.int32, casting="unsafe")
