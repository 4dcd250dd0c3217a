"""Gradients of pools, and of a Relu in front of a maximum, by the kernels of graph_executor/pooling/gradient.cuh.

rows: four channels of channels-last images a thread. direct: one thread for each element, for everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.fused_gradients import MaxPoolReluGrad
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import AveragePool, MaxPool
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore_cuda_ge.calls import Compiled, compiled
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, LAUNCH_SECONDS
from aicore_cuda_ge.kernels._memory_bound import run_from_plan
from aicore_cuda_ge.kernels.pooling import Problem, problem_of

Types = Sequence["TensorType | None"]
_FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})
_FAST = frozenset({"float32", "float16", "bfloat16"})
_LARGEST = 2**31 - 1
_AXES = 3
_DIRECT_TAPS = 2e11
"""Elements that the direct kernel compares each second, in all."""


def _pool(op: Op) -> Op:
    """The gradient of a pool without what is around it."""
    inner = op.inner if isinstance(op, ChannelsLast) else op
    return inner.pool if isinstance(inner, MaxPoolReluGrad) else inner


@lru_cache(maxsize=4096)
def gradient_of(op: Op, first: TensorType) -> Problem:
    """The pool whose gradient it is. first: of the operand, x of MaxPoolGrad and dy of AveragePoolGrad."""
    last, inner = isinstance(op, ChannelsLast), _pool(op)
    shared: dict[str, Any] = {
        name: getattr(inner, name) for name in ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    }
    pool: Op = MaxPool(**shared)
    x = first
    if isinstance(inner, AveragePoolGrad):
        assert inner.shape is not None  # reason_against saw to it
        pool = AveragePool(**shared, count_include_pad=inner.count_include_pad)
        dims = first.static_shape
        x = TensorType(first.dtype, (dims[0], *inner.shape, dims[-1]) if last else (*dims[:2], *inner.shape))
    return problem_of(ChannelsLast(pool, len(x.static_shape)) if last else pool, x)


def reason_against(op: Op, first: TensorType, second: TensorType | None = None) -> str | None:
    if not first.is_static or (second is not None and not second.is_static):
        return "takes operands of known sizes"
    inner = _pool(op)
    if isinstance(inner, AveragePoolGrad) and inner.shape is None:
        return "takes a shape that is known before the run"
    if len(first.static_shape) - 2 > _AXES:
        return f"takes at most {_AXES} spatial axes, here {len(first.static_shape) - 2}"
    return None


def rows_reason(op: Op, first: TensorType, second: TensorType | None = None) -> str | None:
    if reason := reason_against(op, first, second):
        return reason
    problem = gradient_of(op, first)
    if (problem.window.size[0], problem.window.kernel[0]) != (1, 1):
        return "takes images of at most two spatial axes"
    if problem.channels % 4 or not problem.channels:
        return f"takes channels in fours, here {problem.channels}"
    reach = sum(problem.window.kernel) * sum(problem.window.dilation) * problem.channels
    too_large = max(problem.elements, problem.results) + reach * (problem.window.size[2] + reach) > _LARGEST
    return "takes fewer than 2**31 elements" if too_large else None


def bind_rows(op: Op, types: Types, constants: Sequence[Any]) -> Compiled:
    return _bind("pool_gradient_rows", op, types)


def bind_direct(op: Op, types: Types, constants: Sequence[Any]) -> Compiled:
    return _bind("pool_gradient_direct", op, types)


def _bind(name: str, op: Op, types: Types) -> Compiled:
    first = types[0]
    assert first is not None  # infer() refused the op otherwise
    inner = op.inner if isinstance(op, ChannelsLast) else op
    pick = (-1, 0, len(types)) if isinstance(inner, AveragePoolGrad) else (0, 1, 2)
    return compiled(name, (*gradient_of(op, first).params, isinstance(inner, MaxPoolReluGrad)), pick=pick)


def direct_estimate(op: Op, first: TensorType, second: TensorType | None = None) -> float:
    problem = gradient_of(op, first)
    return 3 * LAUNCH_SECONDS + problem.results * problem.window.taps**2 / _DIRECT_TAPS + _moved(problem)


def rows_estimate(op: Op, first: TensorType, second: TensorType | None = None) -> float:
    return 2 * LAUNCH_SECONDS + 1.5 * _moved(gradient_of(op, first))


def _moved(problem: Problem) -> float:
    """Seconds for x and dx, dy and what they were pooled to."""
    return 2 * problem.nbytes / BYTES_EACH_SECOND


def _made(op: type[Op], wraps: type[Op] | None, is_fast: bool) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant="rows" if is_fast else "direct",
        dtypes=_FAST if is_fast else _FLOATS,
        supports=rows_reason if is_fast else reason_against,
        estimate=rows_estimate if is_fast else direct_estimate,
        bind=bind_rows if is_fast else bind_direct,
        wraps=wraps,
    )
    return made(run_from_plan)


_OPS: tuple[type[Op], ...] = (MaxPoolGrad, MaxPoolReluGrad, AveragePoolGrad)
KERNELS: tuple[Kernel, ...] = (
    *(_made(op, None, is_fast=False) for op in _OPS),
    *(_made(ChannelsLast, op, is_fast) for op in _OPS for is_fast in (False, True)),
)
