"""Resize to sizes that are known before the run, by the tables of `_resampling.py`.

What only repeats elements is a copy, too: `movement.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.resize import Resize
from aicore_cuda_ge.calls import Call
from aicore_cuda_ge.kernels import _tables as tables
from aicore_cuda_ge.kernels._memory_bound import (
    FLOATS,
    dtype_of,
    need_static,
    results_of,
    run_from_plan,
    seconds_of,
    shape_of,
)
from aicore_cuda_ge.kernels._resampling import sampled_axes

Types = Sequence["TensorType | None"]

seconds = seconds_of(bytes_per_second=1.5e12, launch_seconds=1.5e-6)


def supports(op: Resize, *types: TensorType | None) -> str | None:
    if any(t is not None for t in types[1:]) or (op.scales is None and op.sizes is None):
        return "needs sizes that are known before the run"
    if reason := need_static(*types):
        return reason
    dtype = dtype_of(types)
    if op.mode != "nearest" and dtype not in FLOATS:
        return f"does not mix numbers of {dtype}"
    x, y = shape_of(types[0]), results_of(op, types)[0].static_shape
    axes = [None] * len(x) if 0 in y else sampled_axes(op, x)
    return tables.reason_against(dtype, x, y, axes)


def bind(op: Resize, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """One launch; none when there are no elements."""
    x, y = types[0], results_of(op, types)[0].static_shape
    assert x is not None  # it is required
    if 0 in y:
        return ()
    axes = sampled_axes(op, x.static_shape)
    return (tables.launch(x, y, axes, op.extrapolation_value, len(types), mixes=op.mode != "nearest"),)


KERNELS: tuple[Kernel, ...] = (
    kernel(Resize, device="cuda", variant="tables", supports=supports, bind=bind, estimate=seconds)(run_from_plan),
)
