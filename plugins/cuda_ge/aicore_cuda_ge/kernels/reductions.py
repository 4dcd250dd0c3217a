"""Reductions, the place of the extreme, Softmax: over one group of neighbouring axes of float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from aicore.ops.softmax import LogSoftmax, Softmax
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._memory_bound import run_from_plan, seconds_of, shape_of

Types = Sequence["TensorType | None"]
FLOAT = frozenset({"float32"})
seconds = seconds_of(bytes_per_second=3e12, launch_seconds=1.5e-6)

_NAMES: dict[type[Op], str] = {
    ReduceSum: "reduce_sum",
    ReduceMean: "reduce_mean",
    ReduceProd: "reduce_prod",
    ReduceMax: "reduce_max",
    ReduceMin: "reduce_min",
    ReduceL1: "reduce_l1",
    ReduceL2: "reduce_l2",
    ReduceSumSquare: "reduce_sum_square",
    ReduceLogSum: "reduce_log_sum",
}


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


def _reduced(op: Any, shape: Sequence[int]) -> tuple[int, ...]:
    axes = op.axes or (() if op.noop_with_empty_axes else range(len(shape)))
    return tuple(axis % len(shape) for axis in axes)


def _reduce_supports(op: Any, x: TensorType, axes: TensorType | None = None) -> str | None:
    if axes is not None:
        return "needs axes that are known before the run"
    if not x.is_static:
        return "needs shapes that are known in numbers"
    if middle(x.static_shape, _reduced(op, x.static_shape)) is None:
        return "reduces one group of neighbouring axes"
    return None


def _reduce_bind(op: Any, types: Types, constants: Sequence[Any]) -> Call:
    shape = shape_of(types[0])
    sizes = middle(shape, _reduced(op, shape))
    assert sizes is not None  # supports saw to it
    return compiled(_NAMES[type(op)], sizes, pick=(0, len(types)))


def _along(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    axis %= len(shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _softmax_bind(op: Any, types: Types, constants: Sequence[Any]) -> Call:
    name = "log_softmax_f32" if isinstance(op, LogSoftmax) else "softmax_f32"
    return compiled(name, _along(shape_of(types[0]), op.axis))


def _arg_bind(op: Any, types: Types, constants: Sequence[Any]) -> Call:
    largest = int(isinstance(op, ArgMax))
    return compiled("arg_extreme_f32", (*_along(shape_of(types[0]), op.axis), largest, op.select_last_index))


def _static(op: Op, *types: TensorType | None) -> str | None:
    known = all(t is None or (t.is_static and t.static_shape) for t in types)
    return None if known else "needs shapes that are known in numbers, and at least one axis"


KERNELS: tuple[Kernel, ...] = (
    *(
        kernel(
            op,
            device="cuda",
            variant="rows",
            dtypes=FLOAT,
            supports=_reduce_supports,
            bind=_reduce_bind,
            estimate=seconds,
        )(run_from_plan)
        for op in _NAMES
    ),
    *(
        kernel(op, device="cuda", variant="rows", dtypes=FLOAT, supports=_static, bind=_softmax_bind, estimate=seconds)(
            run_from_plan
        )
        for op in (Softmax, LogSoftmax)
    ),
    *(
        kernel(op, device="cuda", variant="walk", dtypes=FLOAT, supports=_static, bind=_arg_bind, estimate=seconds)(
            run_from_plan
        )
        for op in (ArgMax, ArgMin)
    ),
)
