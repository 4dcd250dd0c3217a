"""Any convolution of channels-last images: windows of some rows are copied side by side, then it is a matrix product.

With channels last, a window is a few long runs of memory: one for each row of the kernel.
"""

from __future__ import annotations

import itertools
import math
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from aicore.pages import dense_copy
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_epilogue import Array, Calls, finish
from aicore_cpu_numpy.fast._last_padding import clear, copy_region, copy_runs, is_inside, reach, sizes, view_of
from aicore_cpu_numpy.fast._last_problem import Arrays, Block, Problem, blocks, bounds_of
from aicore_cpu_numpy.fast._last_products import multiply, needs_windows
from aicore_cpu_numpy.fast._last_rates import (
    CALL,
    IN_CACHE,
    copy_seconds,
    gemm_seconds,
    packing_seconds,
    pass_seconds,
    shared,
)
from aicore_cpu_numpy.fast._parallel import PARALLEL
from aicore_cpu_numpy.fast._rows import carve, carved_bytes


def reason_against(p: Problem) -> str | None:
    """Why it is of no use, or None."""
    return None if needs_windows(p) else "copies for nothing what is a matrix product as it is"


@dataclass(frozen=True)
class Windows:
    """Windows @ weights, block by block.

    block: elements of the windows in one block, if one row of the output has no more.
    split: what each worker has a part of, `rows` or `maps` (output channels, which copies windows once for each).
    """

    problem: Problem
    block: int = 1 << 17
    split: str = "rows"

    @cached_property
    def seconds(self) -> float:
        """Expected time; a split by maps that changes nothing comes second."""
        parts = self._parts
        if not self._by_maps:
            return shared(self._alone, parts, self.problem.height) * (1.01 if self.split == "maps" else 1.0)
        p = self.problem
        alike = self._window_seconds() + packing_seconds(p.positions, p.depth)
        return shared(self._alone, parts, p.maps, alike)

    @cached_property
    def _alone(self) -> float:
        """Seconds of one worker for all."""
        p = self.problem
        count = p.workers * -(-p.height // (p.workers * self._most))
        packs = 1 if self.split == "maps" else count
        products = p.group * gemm_seconds(p.positions, p.depth, p.maps, packs)
        tail = pass_seconds(p.size, p.passes, min(self._most, p.height) * p.width * p.outputs)
        return products + self._window_seconds() + tail + CALL * count * (4 + p.passes)

    def _window_seconds(self) -> float:
        p = self.problem
        padded = p.images * p.group * p.channels * math.prod(p.geometry.spatial) if self.problem.pads else 0
        copied = p.group * p.depth * p.positions
        block = self._most * p.width * p.group * p.depth
        spilled = copied if block > IN_CACHE else 0
        return copy_seconds(copied, run_of(p)) + copy_seconds(padded, 1 << 10) + pass_seconds(spilled, 0.5)

    @property
    def _parts(self) -> int:
        return self.problem.workers if self._alone > PARALLEL else 1

    @property
    def _by_maps(self) -> bool:
        return self.split == "maps" and self.problem.group == 1 and self._parts > 1

    @property
    def _most(self) -> int:
        """Rows of a block."""
        p = self.problem
        return max(self.block // max(p.group * p.depth * p.width, 1), 1)

    @cached_property
    def workspace(self) -> int:
        return carved_bytes(*(math.prod(shape) * self.problem.itemsize for shape in self._shapes))

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of each worker: windows, products that are not made in place, and rows with their padding."""
        p, found = self.problem, list[tuple[int, ...]]()
        for start, stop, maps in bounds_of(p, self._parts, self.split, self._alone):
            cut = blocks(p, start, stop, self._most)
            positions = max(block.height for block in cut) * p.width
            apart = self._by_maps or p.apart
            found.append((positions * p.group * p.depth,))
            found.append((positions * (maps.stop - maps.start) if apart else 0,))
            found.append((max(reached_elements(p, block) for block in cut) if self.problem.pads else 0,))
        return found

    def packed(self, w: Array) -> Array:
        """The weights as they are used: (group, depth, maps), where the depth is kernel dims and then channels."""
        p, rank = self.problem, len(self.problem.geometry.dims) + 3
        grouped = w.reshape(p.group, p.maps, p.channels, *p.geometry.kernel)
        matrix = dense_copy(grouped.transpose(0, *range(3, rank), 2, 1))
        return matrix.reshape(p.group, p.depth, p.maps)

    @property
    def form(self) -> tuple[int, ...]:
        """Shape of packed weights."""
        return self.problem.group, self.problem.depth, self.problem.maps

    def plain(self, w: Array) -> Array:
        """(group, depth, maps), where the depth is channels and then kernel dims: a view of the weights."""
        p = self.problem
        return w.reshape(p.group, p.maps, p.depth).transpose(0, 2, 1)

    def tasks(self, arrays: Arrays, weights: Array, workspace: Array) -> list[Calls]:
        """Calls of each worker."""
        memory = iter(carve(workspace, arrays.out.dtype, *self._shapes))
        bounds = bounds_of(self.problem, self._parts, self.split, self._alone)
        return [self._task(arrays, weights, span, next(memory), next(memory), next(memory)) for span in bounds]

    def _task(
        self,
        arrays: Arrays,
        weights: Array,
        bounds: tuple[int, int, slice],
        windows: Array,
        products: Array,
        padded: Array,
    ) -> Calls:
        p = self.problem
        start, stop, maps = bounds
        bias = None if arrays.bias is None else arrays.bias.part(maps)
        own = weights[:, :, maps] if p.group == 1 else weights
        calls = clear_padding(p, arrays.x, padded)
        for block in blocks(p, start, stop, self._most):
            copies, found = windows_of(p, arrays.x, arrays.packed, block, windows, padded)
            target = block.of(arrays.out)[:, maps]
            source = products[: target.size].reshape(target.shape) if products.size else target
            residual = None if arrays.residual is None else block.of(arrays.residual)[:, maps]
            calls += [*copies, multiply(found, own, source)]
            calls += finish(source, target, bias, residual, p.activation)
        return calls


def run_of(p: Problem) -> int:
    """Elements of windows that are copied as one piece."""
    g = p.geometry
    if lies_across(p):
        return g.dims[-1]
    return p.channels * (g.kernel[-1] if p.group == 1 and g.dilations[-1] == 1 else 1)


def lies_across(p: Problem) -> bool:
    """Whether windows are copied offset by offset: of one channel, neighbouring positions are the longer runs."""
    return p.inputs == 1 and p.geometry.strides[-1] == 1 and p.geometry.dims[-1] > p.geometry.kernel[-1]


def reached_elements(p: Problem, block: Block) -> int:
    """Elements of the input, padding included, that a block reaches."""
    dims = sizes(*reach(p.geometry, block.rows.start, block.rows.stop))
    images: int = block.images.stop - block.images.start
    return images * math.prod(dims) * p.group * p.channels


def windows_of(p: Problem, x: Array, packed: bool, block: Block, windows: Array, padded: Array) -> tuple[Calls, Array]:
    """Calls that copy the windows of a block, and where they are: (group, positions, depth).

    packed: the depth is kernel dims and then channels, as memory has them; else channels come first.
    """
    calls, reached = _reached_by(p, x, block, padded)
    g = p.geometry
    steps, element = reached.strides[1:-1], reached.strides[-1]
    places = _Axes(
        (len(reached), block.rows.stop - block.rows.start, *g.dims[1:]),
        (reached.strides[0], *(step * stride for step, stride in zip(steps, g.strides, strict=True))),
    )
    offsets = _Axes(g.kernel, tuple(step * dilation for step, dilation in zip(steps, g.dilations, strict=True)))
    count = math.prod(places.dims)
    if lies_across(p):
        view = _view(reached, offsets, places)
        target = windows[: view.size]
        calls.append(copy_runs(view, target.reshape(view.shape)))
        return calls, target.reshape(1, p.depth, count).swapaxes(1, 2)
    group, channels = _Axes((p.group,), (p.channels * element,)), _Axes((p.channels,), (element,))
    view = _view(reached, group, places, offsets, channels)
    target = windows[: view.size]
    if packed:
        calls.append(copy_runs(view, target.reshape(view.shape)))
    else:  # the order of weights as they come: slow to copy, but such weights are rare
        found = target.reshape(p.group, *places.dims, p.channels, *g.kernel)
        calls.append(partial(np.copyto, np.moveaxis(found, len(places.dims) + 1, -1), view))
    return calls, target.reshape(p.group, count, p.depth)


class _Axes(NamedTuple):
    dims: tuple[int, ...]
    strides: tuple[int, ...]


def _view(array: Array, *axes: _Axes) -> Array:
    """The array's memory with axes of these kinds, in their order."""
    shape, strides = (tuple(itertools.chain(*parts)) for parts in zip(*axes, strict=True))
    return np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)


def _reached_by(p: Problem, x: Array, block: Block, padded: Array) -> tuple[Calls, Array]:
    """Calls that bring what a block reaches together, and where it is: (images, spatial..., channels)."""
    lows, highs = reach(p.geometry, block.rows.start, block.rows.stop)
    images = x[block.images]
    if is_inside(p.geometry.spatial, lows, highs):
        return [], view_of(images, lows, highs)
    shape = (len(images), *sizes(lows, highs), x.shape[-1])
    buffer = padded[: math.prod(shape)].reshape(shape)
    return copy_region(images, lows, highs, buffer), buffer


def clear_padding(p: Problem, x: Array, padded: Array) -> Calls:
    """Calls that put zeros where padding is in every block: whatever a block has, its rows are alike."""
    if not padded.size:
        return []
    lows, highs = reach(p.geometry, 0, 1)
    dims = (*sizes(lows, highs)[1:], x.shape[-1])
    return clear(padded.reshape(1, padded.size // math.prod(dims), *dims), x, lows, highs)
