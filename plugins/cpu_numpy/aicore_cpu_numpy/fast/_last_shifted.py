"""A convolution of channels-last images without windows: the image times each offset's weights, added up shifted.

It does as many products as windows do, and copies nothing; sums take a pass over the output for each offset. That
pays where channels are many and maps are few, or rows are few.
"""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any

import numpy as np

from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_epilogue import Array, Calls, finish
from aicore_cpu_numpy.fast._last_padding import reach
from aicore_cpu_numpy.fast._last_problem import Arrays, Block, Problem, as_rows, blocks, bounds_of
from aicore_cpu_numpy.fast._last_rates import CALL, gemm_seconds, packing_seconds, pass_seconds, shared
from aicore_cpu_numpy.fast._parallel import PARALLEL
from aicore_cpu_numpy.fast._rows import carve, carved_bytes
from aicore_cpu_numpy.fast._taps import Geometry, Index, Tap, taps

_MOST = 64
"""Offsets of the kernel; with more, sums take longer than copies of windows."""


def reason_against(p: Problem) -> str | None:
    """Why it cannot be done, or is of no use, or None."""
    g = p.geometry
    if p.group > 1 or set(g.strides) != {1}:
        return "needs one group and no stride"
    if not 1 < g.offsets <= _MOST:
        return f"needs a kernel of 2 to {_MOST} offsets"
    return None if p.size == 0 or _first(g, 0, g.dims[0]) is not None else "needs an offset that no window has outside"


def _first(g: Geometry, start: int, stop: int) -> Tap | None:
    """The offset to begin with: one that meets an element in every window, and the widest rows."""
    return max((tap for tap in taps(g, start, stop) if tap.whole), key=_begins, default=None)


def _begins(tap: Tap) -> tuple[int, ...]:
    return tuple(-s.start for s in tap.source[2:])


@dataclass(frozen=True)
class Shifted:
    """Sums of products for each offset, block by block.

    block: elements of the products of all offsets in one block, if those for one row have no more.
    split: what each worker has a part of, `rows` or `maps` (output channels).
    """

    problem: Problem
    block: int = 1 << 18
    split: str = "rows"

    @property
    def seconds(self) -> float:
        """Expected time; a split by maps that changes nothing comes second."""
        p = self.problem
        if self.split == "maps" and p.workers > 1:
            rows = p.geometry.offsets * math.prod(p.geometry.spatial) * p.images
            return shared(self._alone, self._parts, p.maps, packing_seconds(rows, p.channels))
        return shared(self._alone, self._parts, p.height) * (1.01 if self.split == "maps" else 1.0)

    @cached_property
    def _alone(self) -> float:
        """Seconds of one worker for all."""
        p = self.problem
        copies = p.workers if self.split == "maps" else 1
        count = -(-p.height // self._most)
        halo = (p.geometry.kernel[0] - 1) * p.geometry.dilations[0] / max(min(self._most, p.geometry.dims[0]), 1)
        whole = self._most >= p.geometry.dims[0] and copies == p.workers
        rows = math.prod(p.geometry.spatial) * p.images * (1.0 if whole else 1 + halo)
        offsets = p.geometry.offsets
        products = offsets * gemm_seconds(rows, p.channels, p.maps, count)
        block = min(self._most, p.height) * p.width * p.outputs * offsets
        sums = pass_seconds(p.size, 1.5 * (offsets - 1), block // 4) + pass_seconds(p.size, p.passes)
        return products + sums + CALL * count * copies * (offsets + p.passes)

    @property
    def _parts(self) -> int:
        return self.problem.workers if self._alone > PARALLEL else 1

    @property
    def _most(self) -> int:
        """Rows of a block."""
        p = self.problem
        return max(self.block // max(p.geometry.offsets * p.width * p.outputs, 1), 1)

    @property
    def workspace(self) -> int:
        return carved_bytes(*(math.prod(shape) * self.problem.itemsize for shape in self._shapes()))

    def _shapes(self) -> list[tuple[int, ...]]:
        """Of each worker: the products of a block."""
        p, found = self.problem, list[tuple[int, ...]]()
        for start, stop, maps in bounds_of(p, self._parts, self.split, self._alone):
            cut = blocks(p, start, stop, self._most)
            positions = max(math.prod(self._dims(block)) for block in cut)
            found.append((p.geometry.offsets * positions * (maps.stop - maps.start),))
        return found

    def _rows(self, block: Block) -> slice:
        """Rows of the images that a block reaches."""
        g = self.problem.geometry
        lows, highs = reach(g, block.rows.start, block.rows.stop)
        low = min(max(lows[0], 0), g.spatial[0])
        return slice(low, max(min(highs[0], g.spatial[0]), low))

    def _dims(self, block: Block) -> tuple[int, ...]:
        """(images, rows, ...) of the images that a block reaches."""
        rows = self._rows(block)
        return (block.images.stop - block.images.start, rows.stop - rows.start, *self.problem.geometry.spatial[1:])

    def packed(self, w: Array) -> Array:
        """The weights as they are used."""
        return np.ascontiguousarray(self.plain(w))

    @property
    def form(self) -> tuple[int, ...]:
        """Shape of packed weights."""
        return self.problem.geometry.offsets, self.problem.channels, self.problem.maps

    def plain(self, w: Array) -> Array:
        """(offsets, channels, maps), a view of (M, C, kernel...)."""
        p = self.problem
        return w.reshape(p.maps, p.channels, p.geometry.offsets).transpose(2, 1, 0)

    def tasks(self, arrays: Arrays, weights: Array, workspace: Array) -> list[Calls]:
        """Calls of each worker."""
        memory = carve(workspace, arrays.out.dtype, *self._shapes())
        bounds = bounds_of(self.problem, self._parts, self.split, self._alone)
        return [self._task(arrays, weights, span, own) for span, own in zip(bounds, memory, strict=True)]

    def _task(self, arrays: Arrays, weights: Array, bounds: tuple[int, int, slice], memory: Array) -> Calls:
        p = self.problem
        start, stop, maps = bounds
        bias = None if arrays.bias is None else arrays.bias.part(maps)
        calls: Calls = []
        for block in blocks(p, start, stop, self._most):
            rows, dims = self._rows(block), self._dims(block)
            shape = (p.geometry.offsets, math.prod(dims), maps.stop - maps.start)
            products = memory[: math.prod(shape)].reshape(shape)
            image = as_rows(arrays.x[block.images, rows])
            calls.append(partial(np.matmul, image, weights[:, :, maps], out=products))
            planes = products.reshape(p.geometry.offsets, *dims, shape[-1])
            source, sums = _add_up(p.geometry, block, planes, rows.start)
            target = arrays.out[block.images, block.rows][..., maps]
            residual = None if arrays.residual is None else arrays.residual[block.images, block.rows][..., maps]
            calls += [*sums, *finish(source, target, bias, residual, p.activation)]
        return calls


def _add_up(g: Geometry, block: Block, planes: Array, start: int) -> tuple[Array, Calls]:
    """Where the sums of a block are, and the calls that add them up there.

    planes: (offsets, images, rows..., maps), with image row `start` first.
    """
    first = _first(g, block.rows.start, block.rows.stop)
    assert first is not None  # `reason_against` saw to it
    total = planes[first.index][_placed(first.source, start)]
    calls: Calls = []
    for tap in taps(g, block.rows.start, block.rows.stop):
        if tap.index != first.index:
            target = total[(*tap.target, slice(None))]
            calls.append(partial(np.add, target, planes[tap.index][_placed(tap.source, start)], out=target))
    return total, calls


def _placed(source: Index, start: int) -> Index:
    """The index of what an offset meets, where image row `start` is the first one."""
    rows: Any = source[1]
    return (..., slice(rows.start - start, rows.stop - start), *source[2:], slice(None))
