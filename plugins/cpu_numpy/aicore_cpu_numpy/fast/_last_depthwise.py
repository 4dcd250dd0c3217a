"""A depthwise convolution of channels-last images: products of long runs of neighbouring values, summed over offsets.

In rows that are padded and channels-last, one offset of the kernel is a shift of memory, and the weights repeat after
each position. So the inner loop runs over several positions at once. Along the last axis with a stride, the positions
that one offset meets are gathered first, so that they are neighbours too.
"""

from __future__ import annotations

import inspect
import math
import string
from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np

from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_epilogue import Array, Calls
from aicore_cpu_numpy.fast._last_padding import Bounds, clear, copy_region, reach, sizes
from aicore_cpu_numpy.fast._last_problem import Arrays, Block, Problem, blocks, tail
from aicore_cpu_numpy.fast._last_rates import (
    CALL,
    copy_seconds,
    pass_seconds,
    shared,
    shifted_seconds,
)
from aicore_cpu_numpy.fast._parallel import PARALLEL, shares
from aicore_cpu_numpy.fast._rows import carve, carved_bytes

_EINSUM = inspect.unwrap(np.einsum)
"""Without NumPy's search for operands that override it, which takes longer than the sums of a small block."""


def reason_against(p: Problem) -> str | None:
    """Why it is not depthwise, or None."""
    return None if p.channels == p.maps == 1 and p.group > 1 else "needs one channel and one map in each group"


@dataclass(frozen=True)
class _Comb:
    """Offsets along the last axis that meet the same gathered columns, `step` of them apart.

    offsets: of the kernel. first: column of the padded rows that the first offset meets first.
    """

    offsets: slice
    count: int
    first: int
    step: int


@dataclass(frozen=True)
class Depthwise:
    """Sums of products over the kernel's offsets, block by block.

    block: elements of the output in one block, if one row has no more.
    length: elements of the inner loop, if one position has no more.
    """

    problem: Problem
    block: int = 1 << 17
    length: int = 1024

    @cached_property
    def seconds(self) -> float:
        """Expected time."""
        return shared(self._alone, self._parts, self.problem.height)

    @cached_property
    def _alone(self) -> float:
        """Seconds of one worker for all."""
        p = self.problem
        count, kinds = -(-p.height // self._most), len(self._combs)
        products = shifted_seconds(p.size * p.geometry.offsets, self._columns * p.group)
        moved = p.images * math.prod(p.geometry.spatial) * p.group * self._halo
        copied = copy_seconds(moved, p.group if kinds > 1 else 1 << 10) + pass_seconds(moved, 1)
        passes = p.passes + 2 * (kinds - 1)
        return products + copied + pass_seconds(p.size, passes) + CALL * count * (6 * kinds + p.passes)

    @property
    def _halo(self) -> float:
        """How often blocks copy each row of the input."""
        g = self.problem.geometry
        extent, rows = (g.kernel[0] - 1) * g.dilations[0] + 1, min(self._most, g.dims[0])
        return 1 + max(extent - g.strides[0], 0) / max(rows * g.strides[0], 1)

    @property
    def _parts(self) -> int:
        return self.problem.workers if self._alone > PARALLEL else 1

    @property
    def _most(self) -> int:
        """Rows of a block."""
        return max(self.block // max(self.problem.width * self.problem.group, 1), 1)

    @property
    def _width(self) -> int:
        """Positions along the last axis, if that is not the axis that is cut into blocks."""
        dims = self.problem.geometry.dims
        return dims[-1] if len(dims) > 1 else 1

    @property
    def _columns(self) -> int:
        """Positions of the inner loop: about as many in each of the fewest runs."""
        runs = -(-self._width * self.problem.group // self.length)
        return max(-(-self._width // max(runs, 1)), 1)

    @cached_property
    def _combs(self) -> list[_Comb]:
        g = self.problem.geometry
        if len(g.dims) == 1:
            return [_Comb(slice(None), g.kernel[0], 0, 1)]
        stride, dilation, kernel = g.strides[-1], g.dilations[-1], g.kernel[-1]
        common = math.gcd(stride, dilation)
        apart = stride // common
        return [
            _Comb(slice(first, None, apart), len(range(first, kernel, apart)), first * dilation, dilation // common)
            for first in range(min(apart, kernel))
        ]

    @property
    def _bounds(self) -> list[tuple[int, int]]:
        """(first row, end row) of each worker."""
        p = self.problem
        return shares(p.height, self._parts, self._alone) if p.size else []

    @cached_property
    def workspace(self) -> int:
        return carved_bytes(*(math.prod(shape) * self.problem.itemsize for shape in self._shapes))

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Of each worker: sums not made in place, those of further combs, and gathered rows of each comb."""
        p, found = self.problem, list[tuple[int, ...]]()
        for start, stop in self._bounds:
            cut = blocks(p, start, stop, self._most)
            size = max(block.height for block in cut) * p.width * p.group
            found.append((size if p.apart or p.pitched else 0,))
            found.append((size if len(self._combs) > 1 else 0,))
            for comb in self._combs:
                found.append((max(self._gathered(block, comb)[2] for block in cut),))
        return found

    def _gathered(self, block: Block, comb: _Comb) -> tuple[Bounds, Bounds, int]:
        """(lows, highs) that a block reaches in the columns of a comb, and elements of them."""
        g, group = self.problem.geometry, self.problem.group
        lows, highs = reach(g, block.rows.start, block.rows.stop)
        if len(g.dims) > 1:
            low = (lows[-1] + comb.first) // g.strides[-1]
            lows = (*lows[:-1], low)
            highs = (*highs[:-1], low + g.dims[-1] + (comb.count - 1) * comb.step)
        return lows, highs, (block.images.stop - block.images.start) * math.prod(sizes(lows, highs)) * group

    def packed(self, w: Array) -> Array:
        """The weights as they are used, for all positions of the inner loop: (kernel..., columns * channels)."""
        plain = self.plain(w)
        return np.ascontiguousarray(np.tile(plain, self._columns))

    def plain(self, w: Array) -> Array:
        """(kernel..., channels), a view of (M, 1, kernel...)."""
        return np.moveaxis(w[:, 0], 0, -1)

    def tasks(self, arrays: Arrays, weights: Array, workspace: Array) -> list[Calls]:
        """Calls of each worker."""
        memory = iter(carve(workspace, arrays.out.dtype, *self._shapes))
        found = []
        for start, stop in self._bounds:
            own = [next(memory) for _ in range(2 + len(self._combs))]
            found.append(self._task(arrays, weights, blocks(self.problem, start, stop, self._most), own))
        return found

    def _task(self, arrays: Arrays, weights: Array, cut: list[Block], memory: list[Array]) -> Calls:
        p = self.problem
        sums, others, *buffers = memory
        calls: Calls = []
        for comb, buffer in zip(self._combs, buffers, strict=True):
            calls += self._clear(arrays.x, comb, buffer)
        for block in cut:
            target = block.of(arrays.out)
            source = sums[: target.size].reshape(target.shape) if sums.size else target
            for i, (comb, buffer) in enumerate(zip(self._combs, buffers, strict=True)):
                result = source if i == 0 else others[: source.size].reshape(source.shape)
                copies, rows = self._gather(arrays.x, block, comb, buffer)
                calls += [*copies, *self._sum(rows, weights, block, comb, result)]
                if i:
                    calls.append(partial(np.add, source, result, out=source))
            calls += tail(p, arrays, block, source, target)
        return calls

    def _clear(self, x: Array, comb: _Comb, buffer: Array) -> Calls:
        """Calls that put zeros where padding is in every block: whatever a block has, its rows are alike."""
        lows, highs, _ = self._gathered(Block(slice(0, 1), slice(0, 1)), comb)
        dims = (*sizes(lows, highs)[1:], x.shape[-1])
        rows = buffer.reshape(1, buffer.size // math.prod(dims), *dims)
        return clear(rows, self._columns_of(x, comb), lows, highs)

    def _columns_of(self, images: Array, comb: _Comb) -> Array:
        """The columns of images that a comb meets."""
        g = self.problem.geometry
        if len(g.dims) == 1:
            return images
        return images[..., (comb.first - g.begins[-1]) % g.strides[-1] :: g.strides[-1], :]

    def _gather(self, x: Array, block: Block, comb: _Comb, buffer: Array) -> tuple[Calls, Array]:
        """Calls that copy the padded rows that a block reaches, and where they are: (images, spatial..., channels)."""
        lows, highs, size = self._gathered(block, comb)
        images = self._columns_of(x[block.images], comb)
        rows = buffer[:size].reshape(len(images), *sizes(lows, highs), x.shape[-1])
        return copy_region(images, lows, highs, rows), rows

    def _sum(self, rows: Array, weights: Array, block: Block, comb: _Comb, result: Array) -> Iterator[partial[Array]]:
        """Calls that sum the products of a comb: one for the runs of equal length, one for a shorter last run."""
        p, g = self.problem, self.problem.geometry
        columns, channels = weights.shape[-1] // p.group, p.group
        outer = (len(rows), block.rows.stop - block.rows.start, *g.dims[1:-1])
        factors = weights[..., comb.offsets, :]
        results = result.reshape(*outer, self._width, channels)
        whole = self._width // columns
        for first, runs, length in ((0, whole, columns), (whole * columns, 1, self._width - whole * columns)):
            if length and runs:
                view = self._shifted(rows, outer, comb, first, runs, length)
                target = results[..., first : first + runs * length, :].reshape(*outer, runs, length * channels)
                yield _einsum(view, factors[..., : length * channels], target)

    def _shifted(self, rows: Array, outer: tuple[int, ...], comb: _Comb, first: int, runs: int, length: int) -> Array:
        """(kernel..., images, rows, middle axes..., runs, length * channels): what each offset meets."""
        g, count, channels = self.problem.geometry, len(self.problem.geometry.dims), self.problem.group
        steps = rows.strides[1:-1]
        leading = count - 1 if count > 1 else 1
        offsets = [steps[i] * g.dilations[i] for i in range(leading)]
        moves = [steps[i] * g.strides[i] for i in range(leading)]
        kernel = list(g.kernel[:leading])
        if count > 1:
            kernel, offsets = [*kernel, comb.count], [*offsets, steps[-1] * comb.step]
        return np.lib.stride_tricks.as_strided(
            rows[..., first:, :] if count > 1 else rows,
            (*kernel, *outer, runs, length * channels),
            (*offsets, rows.strides[0], *moves, channels * length * rows.itemsize, rows.itemsize),
            writeable=False,
        )


def _einsum(view: Array, weights: Array, target: Array) -> partial[Array]:
    """The call of target[p, i] = sum over k of view[k, p, i] * weights[k, i], where k and p are several axes."""
    kernel, axes = weights.ndim - 1, string.ascii_lowercase[: view.ndim]
    return partial(_EINSUM, f"{axes},{axes[:kernel]}{axes[-1]}->{axes[kernel:]}", view, weights, out=target)
