"""Reductions, and the place of the extreme, by graph_executor/reduce.

rows: over one group of neighbouring axes. pair: over two such groups, the second one first.
apart: over others, which are brought side by side before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.ordering import ArgMax, ArgMin
from aicore.ops.reduction import (
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
)
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.codegen.copying import Copy, dense
from aicore_cuda_ge.kernels._machine import machine
from aicore_cuda_ge.kernels._memory_bound import (
    FLOATS,
    along,
    dtype_of,
    need_axes,
    row_seconds,
    run_from_plan,
    seconds_of,
    shape_of,
)
from aicore_cuda_ge.kernels._windows import ELEMENTS
from aicore_cuda_ge.kernels.movement import launch_copy

Types = Sequence["TensorType | None"]

_PLAIN, _MEAN, _ROOT, _LOGARITHM = 0, 1, 2, 3
"""What follows: `After` of graph_executor/reduce/reduce.cu."""

_HOW: dict[type[Op], tuple[str, int]] = {
    ReduceSum: ("reduce_sum", _PLAIN),
    ReduceMean: ("reduce_sum", _MEAN),
    ReduceProd: ("reduce_product", _PLAIN),
    ReduceMax: ("reduce_largest", _PLAIN),
    ReduceMin: ("reduce_smallest", _PLAIN),
    ReduceL1: ("reduce_magnitudes", _PLAIN),
    ReduceL2: ("reduce_squares", _ROOT),
    ReduceSumSquare: ("reduce_squares", _PLAIN),
    ReduceLogSum: ("reduce_sum", _LOGARITHM),
}

apart_seconds = seconds_of(bytes_per_second=1.2e12, launch_seconds=2.6e-6)
_LEFT_BYTES_EACH_SECOND = 1e12
"""Of what the first of two groups leaves, which few blocks read."""

_BLOCKS_EACH_MULTIPROCESSOR = 8
_MOST_SPLITS = 256
_LEAST_BYTES = 1 << 14
"""Of the part of a row, or of 32 columns, that is worth a block."""
_SMALLEST_CUT = 1 << 20
"""Bytes below which a second launch costs more than idle multiprocessors."""


def middle(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int] | None:
    """The shape as (outer, reduced, inner); None when axes that stay lie between those that are reduced."""
    wide = sorted(axis for axis in axes if shape[axis] != 1)
    if not wide:
        return math.prod(shape), 1, 1
    first, last = wide[0], wide[-1]
    between = [axis for axis in range(first, last + 1) if axis not in axes and shape[axis] != 1]
    if between:
        return None
    return math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])


def pair(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int, int] | None:
    """The shape as (outer, kept, length, inner), of which outer and length are reduced; None for other patterns."""
    sizes: list[int] = []
    was_reduced = None
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if (axis in axes) == was_reduced:
            sizes[-1] *= size
        else:
            sizes.append(size)
            was_reduced = axis in axes
    leading = next((axis for axis, size in enumerate(shape) if size != 1), 0)
    kept_first = leading not in axes
    if kept_first or len(sizes) not in (3, 4):
        return None
    outer, kept, length, *inner = sizes
    return outer, kept, length, math.prod(inner)


def splits_of(sizes: tuple[int, int, int], itemsize: int) -> int:
    """Into how many parts the length is cut, so that all multiprocessors have work; 1 where they have enough."""
    outer, length, inner = sizes
    columns = min(inner * itemsize, 512)  # bytes that the lanes of a block read of one row
    blocks = outer * max(1, inner * itemsize // 512)
    if outer * length * inner * itemsize < _SMALLEST_CUT:
        return 1
    wanted = -(-_BLOCKS_EACH_MULTIPROCESSOR * machine().multiprocessors // blocks)
    return max(1, min(wanted, length * columns // _LEAST_BYTES, _MOST_SPLITS))


def _reduced(op: Any, shape: Sequence[int]) -> tuple[int, ...]:
    axes = op.axes or (() if op.noop_with_empty_axes else range(len(shape)))
    return tuple(axis % len(shape) for axis in axes)


def _sizes(op: Any, x: TensorType | None) -> tuple[int, int, int]:
    shape = shape_of(x)
    sizes = middle(shape, _reduced(op, shape))
    assert sizes is not None  # supports saw to it
    return sizes


def _supports(op: Any, x: TensorType, axes: TensorType | None = None) -> str | None:
    if axes is not None:
        return "needs axes that are known before the run"
    if not x.is_static:
        return "needs shapes that are known in numbers"
    if middle(x.static_shape, _reduced(op, x.static_shape)) is None:
        return "reduces one group of neighbouring axes"
    return None


def _itemsize(dtype: str) -> int:
    return {"float16": 2, "bfloat16": 2, "float64": 8}.get(dtype, 4)


def _splits(op: Any, x: TensorType) -> int:
    return splits_of(_sizes(op, x), _itemsize(x.dtype))


def _workspace(op: Any, x: TensorType, axes: TensorType | None = None) -> int:
    outer, _, inner = _sizes(op, x)
    splits = _splits(op, x)
    return splits * outer * inner * max(4, _itemsize(x.dtype)) if splits > 1 else 0


def _bind(op: Any, types: Types, constants: Sequence[Any]) -> Call:
    x, out = types[0], len(types)
    assert x is not None
    name, after = _HOW[type(op)]
    return compiled(f"{name}_{x.dtype}", (*_sizes(op, x), _splits(op, x), after), pick=(0, out, out + 1))


@dataclass(frozen=True)
class _Pair:
    """The struct PairParams without `after`."""

    outer: int
    kept: int
    length: int
    inner: int
    splits: int
    later_splits: int

    @classmethod
    def of(cls, op: Any, x: TensorType) -> _Pair:
        found = pair(x.static_shape, _reduced(op, x.static_shape))
        assert found is not None  # supports saw to it
        outer, kept, length, inner = found
        splits = splits_of((outer * kept, length, inner), _itemsize(x.dtype))
        later = splits_of((1, splits * outer, kept * inner), max(4, _itemsize(x.dtype)))
        return cls(*found, splits, later)

    @property
    def partial(self) -> int:
        """Numbers in the workspace."""
        left = self.splits * self.outer + (self.later_splits if self.later_splits > 1 else 0)
        return left * self.kept * self.inner


def _pair_supports(op: Any, x: TensorType, axes: TensorType | None = None) -> str | None:
    if axes is not None:
        return "needs axes that are known before the run"
    if not x.is_static:
        return "needs shapes that are known in numbers"
    found = pair(x.static_shape, _reduced(op, x.static_shape))
    return "reduces two groups of axes, the first one in front" if found is None else None


def _pair_workspace(op: Any, x: TensorType, axes: TensorType | None = None) -> int:
    return _Pair.of(op, x).partial * max(4, _itemsize(x.dtype))


def _pair_bind(op: Any, types: Types, constants: Sequence[Any]) -> Call:
    x, out = types[0], len(types)
    assert x is not None  # it is required
    name, after = _HOW[type(op)]
    params = (*astuple(_Pair.of(op, x)), after)
    return compiled(f"{name.replace('reduce', 'reduce_pair')}_{x.dtype}", params, pick=(0, out, out + 1))


def _pair_estimate(op: Any, x: TensorType, axes: TensorType | None = None) -> float:
    """As `rows`, and another launch or two on what is left."""
    found = _Pair.of(op, x)
    left = 2 * found.partial * max(4, _itemsize(x.dtype)) / _LEFT_BYTES_EACH_SECOND
    return row_seconds(op, x) + (2 if found.later_splits > 1 else 1) * 1.3e-6 + left


def _apart_supports(op: Any, x: TensorType, axes: TensorType | None = None) -> str | None:
    if axes is not None:
        return "needs axes that are known before the run"
    if not x.is_static:
        return "needs shapes that are known in numbers"
    neighbours = middle(x.static_shape, _reduced(op, x.static_shape)) is not None
    return "reduces axes that are no neighbours" if neighbours else None


def _apart_workspace(op: Any, x: TensorType, axes: TensorType | None = None) -> int:
    return math.prod(x.static_shape) * _itemsize(x.dtype)


def _apart_bind(op: Any, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """A copy with the reduced axes last, and their reduction."""
    x, out = types[0], len(types)
    assert x is not None  # it is required
    shape, reduced = x.static_shape, sorted(_reduced(op, x.static_shape))
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    order = (*kept, *reduced)
    dims = tuple(shape[axis] for axis in order)
    copy = Copy(dims, tuple(dense(shape)[axis] for axis in order), dense(dims))
    name, after = _HOW[type(op)]
    sizes = (math.prod(shape[axis] for axis in kept), math.prod(shape[axis] for axis in reduced), 1)
    reduce = compiled(f"{name}_{x.dtype}", (*sizes, 1, after), pick=(out + 1, out, -1))
    return (*launch_copy(copy, x.dtype, 0, out + 1), reduce)


def _arg_bind(op: Any, types: Types, constants: Sequence[Any]) -> Call:
    largest = int(isinstance(op, ArgMax))
    params = (*along(shape_of(types[0]), op.axis), largest, op.select_last_index)
    return compiled(f"arg_extreme_{dtype_of(types)}", params)


KERNELS: tuple[Kernel, ...] = (
    *(
        kernel(
            op,
            device="cuda",
            variant="rows",
            dtypes=FLOATS,
            supports=_supports,
            workspace=_workspace,
            bind=_bind,
            estimate=row_seconds,
        )(run_from_plan)
        for op in _HOW
    ),
    *(
        kernel(
            op,
            device="cuda",
            variant="pair",
            dtypes=FLOATS,
            supports=_pair_supports,
            workspace=_pair_workspace,
            bind=_pair_bind,
            estimate=_pair_estimate,
        )(run_from_plan)
        for op in _HOW
    ),
    *(
        kernel(
            op,
            device="cuda",
            variant="apart",
            dtypes=FLOATS,
            supports=_apart_supports,
            workspace=_apart_workspace,
            bind=_apart_bind,
            estimate=apart_seconds,
        )(run_from_plan)
        for op in _HOW
    ),
    *(
        kernel(
            op,
            device="cuda",
            variant="rows",
            dtypes=frozenset(ELEMENTS),
            supports=need_axes,
            bind=_arg_bind,
            estimate=row_seconds,
        )(run_from_plan)
        for op in (ArgMax, ArgMin)
    ),
)
