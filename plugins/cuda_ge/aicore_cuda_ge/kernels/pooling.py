"""Pools by the kernels of graph_executor/pooling.

rows: four channels of channels-last images a thread. channels: a mean or maximum of whole channels, by many
threads each. direct: one thread for each result, for everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.ir.dtypes import INTEGERS
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.pooling import (
    AveragePool,
    GlobalAveragePool,
    GlobalLpPool,
    GlobalMaxPool,
    LpPool,
    MaxPool,
    settle_pool,
)
from aicore.ops.window import numbers, output_dims
from aicore_cuda_ge.calls import Compiled, compiled
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, LAUNCH_SECONDS
from aicore_cuda_ge.kernels._memory_bound import run_from_plan
from aicore_cuda_ge.kernels._windows import AXES, ELEMENTS, Window, distances, extended

Types = Sequence["TensorType | None"]

_FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})
_NUMBERS = _FLOATS | INTEGERS
_FAST = frozenset({"float32", "float16", "bfloat16"})
_MAX, _AVERAGE, _LP = 0, 1, 2
_KINDS: dict[type[Op], int] = {
    MaxPool: _MAX,
    GlobalMaxPool: _MAX,
    AveragePool: _AVERAGE,
    GlobalAveragePool: _AVERAGE,
    LpPool: _LP,
    GlobalLpPool: _LP,
}
"""The enum PoolKind."""
_GLOBAL: tuple[type[Op], ...] = (GlobalAveragePool, GlobalMaxPool)
_LARGEST = 2**31 - 1
_MOST_IMAGES = 65535
"""Rows of a grid of blocks."""
_DIRECT_TAPS = 4e11
"""Elements that direct kernels visit each second, in all."""


@dataclass(frozen=True)
class Problem:
    """A pool of known shapes; end: padding after the last element."""

    kind: int
    dtype: str
    images: int
    channels: int
    window: Window
    end: tuple[int, ...]
    channels_last: bool
    counts_padding: bool
    power: int
    indices: bool
    by_columns: bool

    @property
    def results(self) -> int:
        return self.images * self.channels * self.window.positions

    @property
    def elements(self) -> int:
        """Of the operand."""
        return self.images * self.channels * math.prod(self.window.size)

    @property
    def nbytes(self) -> int:
        return (self.elements + self.results) * numpy_dtype(self.dtype).itemsize

    @property
    def params(self) -> tuple[int, ...]:
        """The struct PoolParams."""
        w = self.window
        return (
            *(self.kind, ELEMENTS[self.dtype], self.images, self.channels),
            *w.params,
            *self.end,
            *distances(self.channels, math.prod(w.size), self.channels_last),
            *distances(self.channels, w.positions, self.channels_last),
            *(self.counts_padding, self.power, self.indices, self.by_columns),
        )


@lru_cache(maxsize=4096)
def problem_of(op: Op, x: TensorType) -> Problem:
    """The pool that the op is for an operand that reason_against has nothing against."""
    last, inner = isinstance(op, ChannelsLast), op.inner if isinstance(op, ChannelsLast) else op
    shape = x.static_shape
    size = shape[1:-1] if last else shape[2:]
    window, end = _window(inner, size)
    return Problem(
        kind=_KINDS[type(inner)],
        dtype=x.dtype,
        images=shape[0],
        channels=shape[-1 if last else 1],
        window=window,
        end=end,
        channels_last=last,
        counts_padding=bool(getattr(inner, "count_include_pad", 0)),
        power=getattr(inner, "p", 1),
        indices=getattr(inner, "indices", False),
        by_columns=bool(getattr(inner, "storage_order", 0)),
    )


def _window(inner: Any, size: Sequence[int]) -> tuple[Window, tuple[int, ...]]:
    """The window, which is the whole image for a global pool, and the padding at the end."""
    if not hasattr(inner, "kernel_shape"):
        ones, zeros = (1,) * AXES, (0,) * AXES
        return Window(extended(size), ones, extended(size), ones, ones, zeros), zeros
    op = settle_pool(inner, size)
    out = numbers(output_dims(op, size, op.kernel_shape, bool(getattr(op, "ceil_mode", 0))))
    return Window.of(op, size, out), extended(op.pads[len(size) :], 0)


def reason_against(op: Op, x: TensorType) -> str | None:
    if not x.is_static:
        return "takes an operand of known sizes"
    if len(x.static_shape) - 2 > AXES:
        return f"takes at most {AXES} spatial axes, here {len(x.static_shape) - 2}"
    return None


def image_reason(op: Op, x: TensorType) -> str | None:
    """What kernels that index with 32 bits do not take."""
    if reason := reason_against(op, x):
        return reason
    problem = problem_of(op, x)
    if problem.indices:
        return "finds no indices"
    reach = sum(problem.window.kernel) * sum(problem.window.dilation)
    margin = reach * problem.channels * (problem.window.size[2] + reach)
    return "takes fewer than 2**31 elements" if problem.elements + margin > _LARGEST else None


def rows_reason(op: Op, x: TensorType) -> str | None:
    if reason := image_reason(op, x):
        return reason
    problem = problem_of(op, x)
    if (problem.window.size[0], problem.window.kernel[0]) != (1, 1):
        return "takes images of at most two spatial axes"
    return None if problem.channels % 4 == 0 else f"takes channels in fours, here {problem.channels}"


def channels_reason(op: Op, x: TensorType) -> str | None:
    if reason := image_reason(op, x):
        return reason
    images = problem_of(op, x).images
    return None if images <= _MOST_IMAGES else f"takes at most {_MOST_IMAGES} images, here {images}"


def bind_direct(op: Op, types: Types, constants: Sequence[Any]) -> Compiled:
    return _bind("pool_direct", op, types)


def bind_rows(op: Op, types: Types, constants: Sequence[Any]) -> Compiled:
    return _bind("pool_rows", op, types)


def bind_channels(op: Op, types: Types, constants: Sequence[Any]) -> Compiled:
    return _bind("pool_channels", op, types)


def _bind(name: str, op: Op, types: Types) -> Compiled:
    x = types[0]
    assert x is not None  # infer() refused the op otherwise
    return compiled(name, problem_of(op, x).params)


def direct_estimate(op: Op, x: TensorType) -> float:
    problem = problem_of(op, x)
    serial = problem.window.taps * 5e-9  # one thread, if there are too few to hide what each waits for
    return 2 * LAUNCH_SECONDS + max(problem.results * problem.window.taps / _DIRECT_TAPS, serial) + _moved(problem)


def fast_estimate(op: Op, x: TensorType) -> float:
    return 2 * LAUNCH_SECONDS + 1.3 * _moved(problem_of(op, x))


def _moved(problem: Problem) -> float:
    return problem.nbytes / BYTES_EACH_SECOND


def _direct(op: type[Op], wraps: type[Op] | None = None) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant="direct",
        dtypes=_NUMBERS if (wraps or op) is MaxPool else _FLOATS,
        supports=reason_against,
        estimate=direct_estimate,
        bind=bind_direct,
        wraps=wraps,
    )
    return made(run_from_plan)


def _rows(wraps: type[Op]) -> Kernel:
    made = kernel(
        ChannelsLast,
        device="cuda",
        variant="rows",
        dtypes=_FAST,
        supports=rows_reason,
        estimate=fast_estimate,
        bind=bind_rows,
        wraps=wraps,
    )
    return made(run_from_plan)


def _channels(op: type[Op], wraps: type[Op] | None = None) -> Kernel:
    made = kernel(
        op,
        device="cuda",
        variant="channels",
        dtypes=_FAST,
        supports=channels_reason,
        estimate=fast_estimate,
        bind=bind_channels,
        wraps=wraps,
    )
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = (
    *(_direct(op) for op in _KINDS),
    *(_direct(ChannelsLast, op) for op in _KINDS if op is not GlobalLpPool),
    *(_rows(op) for op in (MaxPool, AveragePool)),
    *(_channels(op) for op in _GLOBAL),
    *(_channels(ChannelsLast, op) for op in _GLOBAL),
)
