"""Resize from tables that are made once: nearest as one take, the other modes axis by axis.

Interpolation works on blocks of leading dims that stay in the cache; scratch memory is one block, and what lies between
two axes. Axes that shrink go first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from aicore.ir import TensorType, dtype_name, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.resize import Resize
from aicore.records import dataclass
from aicore_cpu_numpy.fast._sized import DENSE, sized
from aicore_cpu_numpy.reference._grid import Resized, coordinates, grid, nearest_places, outside, taps

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

BLOCK_BYTES = 256 << 10
"""Of a block of results; with its operands it fits into a core's second-level cache."""


@dataclass(frozen=True, eq=False)
class Nearest:
    """Nearest as a table. The middle axes, from the first to the last that changes, are looked up as one."""

    outer: int
    inner: int
    places: Array

    @staticmethod
    def of(shape: Shape, tables: Sequence[Array]) -> Nearest:
        changed = [i for i, table in enumerate(tables) if not np.array_equal(table, np.arange(shape[i]))]
        first, end = (changed[0], changed[-1] + 1) if changed else (0, 0)
        places = np.zeros(1, np.int64)
        for table, dim in zip(tables[first:end], shape[first:end], strict=True):
            places = (places[:, None] * dim + table).reshape(-1)
        return Nearest(math.prod(shape[:first]), math.prod(shape[end:]), places)

    def __call__(self, x: Array, out: Array) -> None:
        source, target = (array.reshape(self.outer, -1, self.inner) for array in (x, out))
        np.take(source, self.places, 1, target, "clip")  # the places are in range; `raise` would copy through a buffer


@dataclass(frozen=True, eq=False)
class Pass:
    """Interpolation along one axis: for each tap, the places it reads and their weights, as a column."""

    outer: int
    old: int
    new: int
    inner: int
    places: tuple[Array, ...]
    weights: tuple[Array, ...]

    def rows(self, itemsize: int) -> int:
        """How many leading entries make a block."""
        return max(1, min(self.outer, BLOCK_BYTES // max(self.new * self.inner * itemsize, 1)))

    def __call__(self, x: Array, out: Array, scratch: Array) -> None:
        source, target = x.reshape(self.outer, self.old, self.inner), out.reshape(self.outer, self.new, self.inner)
        weights = [w.astype(x.dtype) for w in self.weights]
        rows = self.rows(x.itemsize)
        for start in range(0, self.outer, rows):
            block, sums = source[start : start + rows], target[start : start + rows]
            term = scratch[: sums.size].reshape(sums.shape)
            np.take(block, self.places[0], 1, sums, "clip")
            np.multiply(sums, weights[0], sums)
            for places, weight in zip(self.places[1:], weights[1:], strict=True):
                np.take(block, places, 1, term, "clip")
                np.multiply(term, weight, term)
                np.add(sums, term, sums)


def bind_nearest(
    op: Resize, types: Sequence[TensorType | None], constants: Sequence[Array | None]
) -> Callable[..., None]:
    shape = _shape(types)
    tables, missing = [np.arange(dim) for dim in shape], _missing(op, shape)
    for axis, new, scale, crop in _grid(op, shape):
        tables[axis] = nearest_places(op, coordinates(op, shape[axis], new, scale, crop), shape[axis])
    look_up = Nearest.of(shape, tables)

    def run(x: Array, *operands: Array | None, out: Array) -> None:
        if out.size:
            look_up(x, out)
            _extrapolate(op, out, missing)

    return run


def bind_separable(
    op: Resize, types: Sequence[TensorType | None], constants: Sequence[Array | None]
) -> Callable[..., None]:
    shape = _shape(types)
    steps, missing = passes(op, shape), _missing(op, shape)

    def run(x: Array, *operands: Array | None, out: Array, workspace: Array) -> None:
        if not out.size:
            return
        if not steps:
            np.copyto(out, x)
        room, between = workspace.view(x.dtype), x
        for i, step in enumerate(steps):
            size = step.outer * step.new * step.inner
            here = out if i == len(steps) - 1 else room[:size]
            room = room if here is out else room[size:]
            step(between, here, room)
            between = here
        _extrapolate(op, out, missing)

    return run


@lru_cache(maxsize=512)
def passes(op: Resize, shape: Shape) -> tuple[Pass, ...]:
    """One for each axis that changes, in the order in which they go."""
    found = [r for r in _grid(op, shape) if not _is_kept(op, shape[r[0]], r)]
    dims, made = list(shape), []
    for axis, new, scale, crop in sorted(found, key=lambda r: (r[1] / max(shape[r[0]], 1), -r[0])):
        old = shape[axis]
        places, weights = taps(op, coordinates(op, old, new, scale, crop), old, scale or new / max(old, 1))
        columns = tuple(np.ascontiguousarray(column) for column in places.T)
        scaled = tuple(np.ascontiguousarray(column)[:, None] for column in weights.T)
        made.append(Pass(math.prod(dims[:axis]), old, new, math.prod(dims[axis + 1 :]), columns, scaled))
        dims[axis] = new
    return tuple(made)


def scratch_bytes(op: Resize, x: TensorType, *others: TensorType | None) -> int:
    """All results but the last, and the largest block."""
    itemsize, steps = numpy_dtype(x.dtype).itemsize, passes(op, x.static_shape)
    blocks = [step.rows(itemsize) * step.new * step.inner for step in steps]
    between = [step.outer * step.new * step.inner for step in steps[:-1]]
    return itemsize * (sum(between) + max(blocks, default=0))


def _nearest_only(op: Resize, *types: TensorType | None) -> str | None:
    return _reason(op, *types) if op.mode == "nearest" else f"does not do {op.mode}"


def _interpolating(op: Resize, *types: TensorType | None) -> str | None:
    return _reason(op, *types) if op.mode != "nearest" else "does not do nearest"


@kernel(Resize, device="cpu", variant="nearest", dtypes=DENSE, supports=_nearest_only, bind=bind_nearest)
def resize_nearest(op: Resize, x: Array, *operands: Array | None, out: Array) -> None:
    bind_nearest(op, [_type(x)], [])(x, *operands, out=out)


@kernel(
    Resize,
    device="cpu",
    variant="separable",
    dtypes={"float32", "float64"},
    supports=_interpolating,
    bind=bind_separable,
    workspace=scratch_bytes,
)
def resize_separable(op: Resize, x: Array, *operands: Array | None, out: Array, workspace: Array) -> None:
    bind_separable(op, [_type(x)], [])(x, *operands, out=out, workspace=workspace)


def _reason(op: Resize, *types: TensorType | None) -> str | None:
    crops = op.coordinate_transformation_mode == "tf_crop_and_resize"
    return "the roi depends on data" if crops and op.roi is None else sized(op, *types)


def _grid(op: Resize, shape: Shape) -> list[Resized]:
    return grid(op, shape, op.roi, op.scales, op.sizes)


def _missing(op: Resize, shape: Shape) -> list[tuple[int, Array]]:
    """(axis, positions) that tf_crop_and_resize takes from outside the tensor."""
    if op.coordinate_transformation_mode != "tf_crop_and_resize":
        return []
    found = [(r[0], outside(coordinates(op, shape[r[0]], *r[1:]), shape[r[0]])) for r in _grid(op, shape)]
    return [(axis, np.flatnonzero(flags)) for axis, flags in found if flags.any()]


def _extrapolate(op: Resize, out: Array, missing: Sequence[tuple[int, Array]]) -> None:
    for axis, positions in missing:
        out[(slice(None),) * axis + (positions,)] = op.extrapolation_value


def _is_kept(op: Resize, old: int, resized: Resized) -> bool:
    _, new, scale, crop = resized
    return new == old and np.array_equal(coordinates(op, old, new, scale, crop), np.arange(old))


def _shape(types: Sequence[TensorType | None]) -> Shape:
    return types[0].static_shape if types[0] is not None else ()


def _type(x: Array) -> TensorType:
    return TensorType(dtype_name(x.dtype), x.shape)


KERNELS: tuple[Kernel, ...] = (resize_nearest, resize_separable)
