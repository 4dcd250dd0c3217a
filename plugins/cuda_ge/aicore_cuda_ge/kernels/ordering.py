"""TopK of a few elements of each line: graph_executor/reduce/top.cu. ArgMax and ArgMin are reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.ordering import TopK
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._machine import LAUNCH_SECONDS
from aicore_cuda_ge.kernels._memory_bound import along, dtype_of, need_axes, run_from_plan, shape_of
from aicore_cuda_ge.kernels._windows import ELEMENTS

_MOST_VISITS = 1 << 26
"""Elements of a line that are looked at, once for each result."""
_VISITS_EACH_SECOND = 2e11
"""By all multiprocessors; one block makes 1e9 of them."""
_VISITS_OF_A_BLOCK = 1e9


def supports(op: TopK, *types: TensorType | None) -> str | None:
    if any(t is not None for t in types[1:]) or op.k is None:
        return "needs a k that is known before the run"
    if reason := need_axes(op, *types):
        return reason
    _, length, _ = along(shape_of(types[0]), op.axis)
    return None if op.k * length <= _MOST_VISITS else f"takes up to {_MOST_VISITS} for k times the length of the axis"


def bind(op: TopK, types: Sequence[TensorType | None], constants: Sequence[Any]) -> Call:
    params = (ELEMENTS[dtype_of(types)], *along(shape_of(types[0]), op.axis), op.k or 0, op.largest)
    return compiled("top", params, pick=(0, len(types), len(types) + 1))


def seconds(op: TopK, *types: TensorType | None) -> float:
    outer, length, inner = along(shape_of(types[0]), op.axis)
    visits = (op.k or 0) * length
    return LAUNCH_SECONDS + 1e-6 + max(visits / _VISITS_OF_A_BLOCK, outer * inner * visits / _VISITS_EACH_SECOND)


KERNELS: tuple[Kernel, ...] = (
    kernel(
        TopK,
        device="cuda",
        variant="few",
        dtypes=frozenset(ELEMENTS),
        supports=supports,
        bind=bind,
        estimate=seconds,
    )(run_from_plan),
)
