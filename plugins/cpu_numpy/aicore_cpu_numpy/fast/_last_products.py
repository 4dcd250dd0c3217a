"""A 1x1 convolution of channels-last images: a matrix product, cut into blocks that what follows finds in the cache."""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np

from aicore.pages import dense_copy
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_epilogue import Array, Call, Calls, finish, with_channels
from aicore_cpu_numpy.fast._last_problem import Arrays, Problem, as_rows, even_spans
from aicore_cpu_numpy.fast._last_rates import CALL, gemm_seconds, packing_seconds, pass_seconds, shared
from aicore_cpu_numpy.fast._parallel import PARALLEL, shares
from aicore_cpu_numpy.fast._rows import carve, carved_bytes

_BEFORE = 4
"""Passes over the input for its scaling, of the cost of an addition: a product, a sum and two bounds."""


def needs_windows(p: Problem) -> bool:
    """Whether the input is not, as it is, the rows of a matrix product."""
    g = p.geometry
    return g.offsets != 1 or g.spatial != g.dims or any(g.begins) or set(g.strides) != {1}


def reason_against(p: Problem) -> str | None:
    """Why it is no plain product, or None."""
    return "needs a 1x1 kernel without stride or padding" if needs_windows(p) else None


@dataclass(frozen=True)
class Products:
    """(positions, channels) @ (channels, maps), as a batch if there are groups.

    block: elements of the output in one block.
    split: what each worker has a part of, `rows` (positions) or `maps` (output channels, for few positions).
    """

    problem: Problem
    block: int = 1 << 16
    split: str = "rows"

    @cached_property
    def seconds(self) -> float:
        """Expected time; a split by maps that changes nothing comes second."""
        if self._by_maps:
            p = self.problem
            alike = packing_seconds(p.positions, p.depth) + self._before(p.positions)
            return shared(self._alone, self._parts, p.maps, alike)
        return shared(self._alone, self._parts, self.problem.positions) * (1.01 if self.split == "maps" else 1.0)

    @property
    def _parts(self) -> int:
        return self.problem.workers if self._alone > PARALLEL else 1

    @cached_property
    def _alone(self) -> float:
        """Seconds of one worker for all."""
        p = self.problem
        rows = p.positions if self._by_maps else -(-p.positions // p.workers)
        calls = p.workers * -(-rows // self._most)
        packs = calls / p.workers if self._by_maps else calls
        tail = pass_seconds(p.size, p.passes, min(self._most, rows) * p.outputs) + CALL * calls * (1 + p.passes)
        return p.group * gemm_seconds(p.positions, p.depth, p.maps, packs) + tail + self._before(rows)

    def _before(self, rows: int) -> float:
        """Seconds of one worker for scaling all of the input, in blocks of such rows."""
        p = self.problem
        if p.before is None:
            return 0.0
        most = min(self._most, rows)
        size = p.positions * p.inputs
        return pass_seconds(size, _BEFORE, most * p.inputs) + CALL * _BEFORE * (p.positions / max(most, 1))

    @property
    def _by_maps(self) -> bool:
        return self.split == "maps" and self.problem.group == 1 and self.problem.workers > 1

    @property
    def _most(self) -> int:
        """Positions of a block."""
        p = self.problem
        widest = p.outputs if p.before is None else max(p.outputs, p.inputs)
        return max(self.block // max(widest, 1), 16)

    @property
    def _bounds(self) -> list[tuple[slice, slice]]:
        """(positions, maps) of each worker."""
        p = self.problem
        if p.size == 0:
            return []
        if self._by_maps:
            return [(slice(0, p.positions), slice(*span)) for span in shares(p.maps, self._parts, self._alone)]
        return [(slice(*span), slice(0, p.outputs)) for span in shares(p.positions, self._parts, self._alone)]

    @property
    def _apart(self) -> bool:
        """Whether products go to memory of their own before they go to the output."""
        return self._by_maps or self.problem.apart

    @cached_property
    def workspace(self) -> int:
        return carved_bytes(*(_volume(shape) * self.problem.itemsize for shape in self._shapes))

    @cached_property
    def _shapes(self) -> list[tuple[int, int]]:
        """Memory of each worker: for a block's products if they are apart, and for its scaled input if there is one."""
        bounds, p = self._bounds, self.problem
        most = [min(self._most, rows.stop - rows.start) for rows, _ in bounds]
        outputs = [maps.stop - maps.start if self._apart else 0 for _, maps in bounds]
        inputs = 0 if p.before is None else p.inputs
        return [shape for rows, maps in zip(most, outputs, strict=True) for shape in ((rows, maps), (rows, inputs))]

    def packed(self, w: Array) -> Array:
        """The weights as they are used."""
        return dense_copy(self.plain(w))

    def plain(self, w: Array) -> Array:
        """(group, channels, maps), a view of (M, C / group, 1...)."""
        p = self.problem
        return w.reshape(p.group, p.maps, p.channels).transpose(0, 2, 1)

    def tasks(self, arrays: Arrays, weights: Array, workspace: Array) -> list[Calls]:
        """Calls of each worker."""
        bounds = self._bounds
        memory = carve(workspace, arrays.out.dtype, *self._shapes)
        scratch = zip(memory[::2], memory[1::2], strict=True)
        return [self._task(arrays, weights, *bound, *own) for bound, own in zip(bounds, scratch, strict=True)]

    def _task(self, arrays: Arrays, weights: Array, rows: slice, maps: slice, products: Array, scaled: Array) -> Calls:
        """Calls of one worker. products, scaled: its own memory, as `_shapes` has it."""
        p = self.problem
        x = as_rows(arrays.x)
        out = as_rows(arrays.out)[:, maps]
        residual = None if arrays.residual is None else as_rows(arrays.residual)[:, maps]
        bias = None if arrays.bias is None else arrays.bias.part(maps)
        own = weights if p.group > 1 else weights[:, :, maps]
        calls: Calls = []
        for start, stop in even_spans(rows.start, rows.stop, self._most):
            target = out[start:stop]
            source = products[: stop - start] if self._apart else target
            block = x[start:stop]
            if arrays.scale is not None:
                block = scaled[: stop - start]
                calls += with_channels(np.multiply, x[start:stop], arrays.scale, block)
                calls += finish(block, block, arrays.shift, None, p.before)
            calls.append(multiply(block.reshape(len(block), p.group, p.channels).transpose(1, 0, 2), own, source))
            calls += finish(source, target, bias, None if residual is None else residual[start:stop], p.activation)
        return calls


def multiply(x: Array, weights: Array, out: Array) -> Call:
    """The call of out = x @ weights: x (group, rows, depth), weights (group, depth, maps), out (rows, group * maps)."""
    group, _, maps = weights.shape
    if group == 1:
        return partial(np.matmul, x[0], weights[0], out=out)
    return partial(np.matmul, x, weights, out=out.reshape(len(out), group, maps).transpose(1, 0, 2))


def _volume(shape: tuple[int, int]) -> int:
    return shape[0] * shape[1]
