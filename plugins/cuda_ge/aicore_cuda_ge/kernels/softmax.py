"""Softmax and LogSoftmax along one axis, by graph_executor/softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.softmax import LogSoftmax, Softmax
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._memory_bound import (
    FLOATS,
    along,
    dtype_of,
    need_axes,
    row_seconds,
    run_from_plan,
    shape_of,
)

_NAMES: dict[type[Op], str] = {Softmax: "softmax", LogSoftmax: "log_softmax"}


def _bind(op: Any, types: Sequence[TensorType | None], constants: Sequence[Any]) -> Call:
    return compiled(f"{_NAMES[type(op)]}_{dtype_of(types)}", along(shape_of(types[0]), op.axis))


KERNELS: tuple[Kernel, ...] = tuple(
    kernel(op, device="cuda", variant="rows", dtypes=FLOATS, supports=need_axes, bind=_bind, estimate=row_seconds)(
        run_from_plan
    )
    for op in _NAMES
)
