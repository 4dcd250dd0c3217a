"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.ir import Op
from aicore.kernels import Kernel, kernel
from aicore.ops import reduction as ops
from aicore_cpu_numpy.reference._precision import Array, widen

Axes = tuple[int, ...]
Formula = Callable[[Array, Axes], Any]


def reduction(cls: type[Op], formula: Formula) -> Kernel:
    """Make a kernel of a formula that keeps the reduced dims."""

    def compute(op: Any, data: Array, axes: Array | None = None) -> Any:
        chosen = reduced_axes(op, data.ndim, axes)
        result = formula(widen(data), chosen).astype(data.dtype, copy=False)
        return result if op.keepdims else result.reshape([d for i, d in enumerate(data.shape) if i not in chosen])

    return kernel(cls, device="cpu")(compute)


def reduced_axes(op: Any, rank: int, axes: Array | None = None) -> Axes:
    """The axes to reduce, counted from the front; the operand `axes` if there is one, else the op's."""
    given = (op.axes or ()) if axes is None else axes.tolist()
    if not given and not op.noop_with_empty_axes:
        return tuple(range(rank))
    wrong = [axis for axis in given if not -rank <= axis < rank]
    if wrong:
        raise ValueError(f"axis {wrong[0]} is out of range for rank {rank}")
    return tuple(sorted(axis % rank for axis in given))


def reduce_sum(x: Array, axes: Axes) -> Any:
    return np.sum(x, axis=axes, keepdims=True, dtype=x.dtype)


def reduce_mean(x: Array, axes: Axes) -> Any:
    count = np.prod([x.shape[i] for i in axes], dtype=np.int64)
    if x.dtype.kind == "f":
        return reduce_sum(x, axes) / x.dtype.type(count)
    total = np.sum(x, axis=axes, keepdims=True, dtype=np.uint64 if x.dtype.kind == "u" else np.int64)
    divisor = total.dtype.type(count)
    return np.floor_divide(total - np.fmod(total, divisor), divisor)


def reduce_prod(x: Array, axes: Axes) -> Any:
    return np.prod(x, axis=axes, keepdims=True, dtype=x.dtype)


def reduce_max(x: Array, axes: Axes) -> Any:
    return np.max(x, axis=axes, keepdims=True, initial=smallest(x.dtype))


def reduce_min(x: Array, axes: Axes) -> Any:
    return np.min(x, axis=axes, keepdims=True, initial=largest(x.dtype))


def reduce_l1(x: Array, axes: Axes) -> Any:
    return reduce_sum(np.abs(x), axes)


def reduce_l2(x: Array, axes: Axes) -> Any:
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    return np.sqrt(reduce_sum_square(wide, axes))


def reduce_sum_square(x: Array, axes: Axes) -> Any:
    return reduce_sum(np.square(x), axes)


def reduce_log_sum(x: Array, axes: Axes) -> Any:
    return np.log(reduce_sum(x, axes))


def reduce_log_sum_exp(x: Array, axes: Axes) -> Any:
    peak = reduce_max(x, axes)
    shift = np.where(np.isfinite(peak), peak, 0)  # an infinite peak must not meet itself: inf - inf is NaN
    return np.log(reduce_sum(np.exp(x - shift), axes)) + shift


def smallest(dtype: np.dtype[Any]) -> Any:
    """What is below every number of the type: the largest element of nothing."""
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def largest(dtype: np.dtype[Any]) -> Any:
    """What is above every number of the type: the smallest element of nothing."""
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


@kernel(ops.SumTo, device="cpu")
def sum_to(op: ops.SumTo, x: Array, shape: Array | None = None) -> Any:
    wanted = tuple(op.shape or ()) if shape is None else tuple(shape.tolist())
    leading = x.ndim - len(wanted)
    padded = (1,) * leading + wanted
    if leading < 0 or any(want not in (1, dim) for want, dim in zip(padded, x.shape, strict=True)):
        raise ValueError(f"the shape {wanted} does not broadcast to {x.shape}")
    axes = tuple(i for i, want in enumerate(padded) if i < leading or want == 1)
    return reduce_sum(widen(x), axes).astype(x.dtype, copy=False).reshape(wanted)


FORMULAS: dict[type[Op], Formula] = {
    ops.ReduceSum: reduce_sum,
    ops.ReduceMean: reduce_mean,
    ops.ReduceProd: reduce_prod,
    ops.ReduceMax: reduce_max,
    ops.ReduceMin: reduce_min,
    ops.ReduceL1: reduce_l1,
    ops.ReduceL2: reduce_l2,
    ops.ReduceSumSquare: reduce_sum_square,
    ops.ReduceLogSum: reduce_log_sum,
    ops.ReduceLogSumExp: reduce_log_sum_exp,
}
KERNELS: tuple[Kernel, ...] = (*(reduction(cls, formula) for cls, formula in FORMULAS.items()), sum_to)
