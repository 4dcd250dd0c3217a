"""A 1x1 convolution of channels-last images: a matrix product, cut into blocks that what follows finds in the cache."""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np

from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_epilogue import Array, Call, Calls, finish
from aicore_cpu_numpy.fast._last_problem import Arrays, Problem, as_rows, even_spans
from aicore_cpu_numpy.fast._last_rates import CALL, gemm_seconds, packing_seconds, pass_seconds, shared
from aicore_cpu_numpy.fast._parallel import PARALLEL, shares
from aicore_cpu_numpy.fast._rows import carve, carved_bytes


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
            return shared(self._alone, self._parts, p.maps, packing_seconds(p.positions, p.depth))
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
        return p.group * gemm_seconds(p.positions, p.depth, p.maps, packs) + tail

    @property
    def _by_maps(self) -> bool:
        return self.split == "maps" and self.problem.group == 1 and self.problem.workers > 1

    @property
    def _most(self) -> int:
        """Positions of a block."""
        return max(self.block // max(self.problem.outputs, 1), 16)

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
        if not self._apart:
            return []
        return [(min(self._most, rows.stop - rows.start), maps.stop - maps.start) for rows, maps in self._bounds]

    def packed(self, w: Array) -> Array:
        """The weights as they are used."""
        return np.ascontiguousarray(self.plain(w))

    def plain(self, w: Array) -> Array:
        """(group, channels, maps), a view of (M, C / group, 1...)."""
        p = self.problem
        return w.reshape(p.group, p.maps, p.channels).transpose(0, 2, 1)

    def tasks(self, arrays: Arrays, weights: Array, workspace: Array) -> list[Calls]:
        """Calls of each worker."""
        bounds = self._bounds
        scratch = carve(workspace, arrays.out.dtype, *self._shapes) if self._apart else [None] * len(bounds)
        return [self._task(arrays, weights, rows, maps, own) for (rows, maps), own in zip(bounds, scratch, strict=True)]

    def _task(self, arrays: Arrays, weights: Array, rows: slice, maps: slice, scratch: Array | None) -> Calls:
        p = self.problem
        x = as_rows(arrays.x).reshape(p.positions, p.group, p.channels).transpose(1, 0, 2)
        out = as_rows(arrays.out)[:, maps]
        residual = None if arrays.residual is None else as_rows(arrays.residual)[:, maps]
        bias = None if arrays.bias is None else arrays.bias.part(maps)
        own = weights if p.group > 1 else weights[:, :, maps]
        calls: Calls = []
        for start, stop in even_spans(rows.start, rows.stop, self._most):
            target = out[start:stop]
            source = target if scratch is None else scratch[: stop - start]
            calls.append(multiply(x[:, start:stop], own, source))
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
