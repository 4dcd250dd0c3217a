"""Reductions, the largest element's index and running sums, written to `out` by NumPy's own loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.ir import INTEGERS, Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.cumulative import CumProd, CumSum
from aicore.ops.ordering import ArgMax, ArgMin
from aicore.ops.reduction import (
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
)
from aicore_cpu_numpy.fast._rows import Array, carve, carved_bytes
from aicore_cpu_numpy.reference.reduction import largest, reduced_axes, smallest

FLOATS = frozenset({"float32", "float64"})
NUMBERS = FLOATS | INTEGERS | {"bool"}


def _constant_axes(op: Op, data: TensorType, axes: TensorType | None = None) -> str | None:
    return None if axes is None else "wants axes that are known before the run"


def _whole(op: Op, data: TensorType, axes: TensorType | None = None) -> int:
    """Workspace for a tensor like the operand."""
    return math.prod(data.static_shape) * numpy_dtype(data.dtype).itemsize


def direct(cls: type[Op], ufunc: np.ufunc, initial: Callable[[np.dtype[Any]], Any]) -> Kernel:
    """The kernel of a reduction that is a ufunc's own, beginning with `initial` of the element type."""

    def compute(op: Any, data: Array, axes: Array | None = None, *, out: Array) -> None:
        chosen, start = reduced_axes(op, data.ndim), initial(data.dtype)
        ufunc.reduce(data, axis=chosen, dtype=data.dtype, out=out, keepdims=bool(op.keepdims), initial=start)

    return kernel(cls, device="cpu", variant="ufunc", dtypes=NUMBERS, supports=_constant_axes)(compute)


def _sum(op: Any, data: Array, out: Array) -> None:
    np.add.reduce(data, axis=reduced_axes(op, data.ndim), dtype=data.dtype, out=out, keepdims=bool(op.keepdims))


@kernel(ReduceMean, device="cpu", variant="ufunc", dtypes=FLOATS, supports=_constant_axes)
def reduce_mean(op: ReduceMean, data: Array, axes: Array | None = None, *, out: Array) -> None:
    _sum(op, data, out)
    count = math.prod(data.shape[axis] for axis in reduced_axes(op, data.ndim))
    np.divide(out, data.dtype.type(count), out=out)


@kernel(ReduceLogSum, device="cpu", variant="ufunc", dtypes=FLOATS, supports=_constant_axes)
def reduce_log_sum(op: ReduceLogSum, data: Array, axes: Array | None = None, *, out: Array) -> None:
    _sum(op, data, out)
    np.log(out, out=out)


@kernel(ReduceL1, device="cpu", variant="ufunc", dtypes=NUMBERS - {"bool"}, supports=_constant_axes, workspace=_whole)
def reduce_l1(op: ReduceL1, data: Array, axes: Array | None = None, *, out: Array, workspace: Array) -> None:
    _sum(op, np.abs(data, out=_like(workspace, data)), out)


@kernel(
    ReduceSumSquare, device="cpu", variant="ufunc", dtypes=NUMBERS - {"bool"}, supports=_constant_axes, workspace=_whole
)
def reduce_sum_square(
    op: ReduceSumSquare, data: Array, axes: Array | None = None, *, out: Array, workspace: Array
) -> None:
    _sum(op, np.square(data, out=_like(workspace, data)), out)


@kernel(ReduceL2, device="cpu", variant="ufunc", dtypes=FLOATS, supports=_constant_axes, workspace=_whole)
def reduce_l2(op: ReduceL2, data: Array, axes: Array | None = None, *, out: Array, workspace: Array) -> None:
    _sum(op, np.square(data, out=_like(workspace, data)), out)
    np.sqrt(out, out=out)


def _log_sum_exp_bytes(op: ReduceLogSumExp, data: TensorType, axes: TensorType | None = None) -> int:
    """Workspace for the exponentials, the largest elements, and whether those are infinite."""
    reduced, itemsize = math.prod(_kept(op, data.static_shape)), numpy_dtype(data.dtype).itemsize
    return carved_bytes(_whole(op, data), reduced * itemsize, reduced)


def _kept(op: ReduceLogSumExp, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with 1 for each reduced dim."""
    chosen = reduced_axes(op, len(shape))
    return tuple(1 if axis in chosen else dim for axis, dim in enumerate(shape))


@kernel(
    ReduceLogSumExp, device="cpu", variant="ufunc", dtypes=FLOATS, supports=_constant_axes, workspace=_log_sum_exp_bytes
)
def reduce_log_sum_exp(
    op: ReduceLogSumExp, data: Array, axes: Array | None = None, *, out: Array, workspace: Array
) -> None:
    chosen = reduced_axes(op, data.ndim)
    kept = _kept(op, data.shape)
    exponentials, shift = carve(workspace, data.dtype, data.shape, kept)
    infinite = workspace[workspace.size - shift.size :].view(bool).reshape(kept)
    np.maximum.reduce(data, axis=chosen, out=shift, keepdims=True, initial=-np.inf)
    np.copyto(shift, 0, where=np.isinf(shift, out=infinite))  # an infinite peak must not meet itself: inf - inf is NaN
    np.exp(np.subtract(data, shift, out=exponentials), out=exponentials)
    _sum(op, exponentials, out)
    np.log(out, out=out)
    np.add(out, shift.reshape(out.shape), out=out)


def _like(workspace: Array, data: Array) -> Array:
    return workspace[: data.nbytes].view(data.dtype).reshape(data.shape)


def arg_extreme(cls: type[Op], function: Callable[..., Any]) -> Kernel:
    """The kernel of ArgMax or ArgMin; the last of equals is left to the reference."""

    def compute(op: Any, data: Array, *, out: Array) -> None:
        function(data, axis=op.axis, out=out, keepdims=bool(op.keepdims))

    return kernel(cls, device="cpu", variant="first", dtypes=NUMBERS, supports=_first_of_equals)(compute)


def _first_of_equals(op: Any, data: TensorType) -> str | None:
    return "finds the first of equals only" if op.select_last_index else None


def cumulative(cls: type[Op], ufunc: np.ufunc, neutral: int) -> Kernel:
    """The kernel of CumSum or CumProd: a running ufunc between views, mirrored to reverse, shifted to exclude."""

    def compute(op: Any, x: Array, axis: Array | None = None, *, out: Array) -> None:
        source, target = np.moveaxis(x, op.axis, 0), np.moveaxis(out, op.axis, 0)
        if op.reverse:
            source, target = source[::-1], target[::-1]
        if op.exclusive:
            target[:1] = neutral
            source, target = source[:-1], target[1:]
        ufunc.accumulate(source, axis=0, dtype=x.dtype, out=target)

    return kernel(cls, device="cpu", variant="ufunc", dtypes=NUMBERS - {"bool"}, supports=_constant_axes)(compute)


KERNELS: tuple[Kernel, ...] = (
    direct(ReduceSum, np.add, lambda _: 0),
    direct(ReduceProd, np.multiply, lambda _: 1),
    direct(ReduceMax, np.maximum, smallest),
    direct(ReduceMin, np.minimum, largest),
    reduce_mean,
    reduce_log_sum,
    reduce_l1,
    reduce_l2,
    reduce_sum_square,
    reduce_log_sum_exp,
    arg_extreme(ArgMax, np.argmax),
    arg_extreme(ArgMin, np.argmin),
    cumulative(CumSum, np.add, 0),
    cumulative(CumProd, np.multiply, 1),
)
