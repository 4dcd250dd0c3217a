"""Pad with whatever there is to pad with, by tables of places. Zeros alone are quicker: `movement.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.slicing import Pad
from aicore_cuda_ge.calls import Call
from aicore_cuda_ge.kernels import _tables as tables
from aicore_cuda_ge.kernels._memory_bound import (
    dtype_of,
    need_static,
    results_of,
    run_from_plan,
    seconds_of,
    shape_of,
)
from aicore_cuda_ge.kernels._resampling import Sampled

Types = Sequence["TensorType | None"]

seconds = seconds_of(bytes_per_second=1.5e12, launch_seconds=1.5e-6)


def supports(op: Pad, *types: TensorType | None) -> str | None:
    if any(t is not None for t in types[1:]) or op.pads is None:
        return "needs pads and their value to be known before the run"
    if reason := need_static(*types):
        return reason
    x, y, dtype = shape_of(types[0]), results_of(op, types)[0].static_shape, dtype_of(types)
    if isinstance(op.constant_value, str) or (op.constant_value and numpy_dtype(dtype).kind == "V"):
        return f"does not pad {dtype} with {op.constant_value!r}"
    return tables.reason_against(dtype, x, y, [None] * len(x) if 0 in y else _axes(op, x))


def bind(op: Pad, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    """One launch; none when there are no elements."""
    x, y = types[0], results_of(op, types)[0].static_shape
    assert x is not None  # it is required
    if 0 in y:
        return ()
    value = op.constant_value
    filling = value if isinstance(value, int | float) else 0
    return (tables.launch(x, y, _axes(op, x.static_shape), filling, len(types)),)


def _axes(op: Pad, x: Sequence[int]) -> list[Sampled | None]:
    """Where the elements of each axis come from: NumPy pads their numbers as it would pad them."""
    axes = range(len(x)) if op.axes is None else [axis % len(x) for axis in op.axes]
    pads, found = op.pads or (), list[Sampled | None]([None] * len(x))
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        kept = np.arange(x[axis])[max(-begin, 0) : x[axis] - max(-end, 0)]
        added = (max(begin, 0), max(end, 0))
        if op.mode == "constant":
            places = np.pad(kept, added, constant_values=-1)
        else:
            places = np.pad(kept, added, op.mode)  # type: ignore[call-overload]  # the op knows the mode
        found[axis] = Sampled(places[:, None], np.ones((len(places), 1)))
    return found


KERNELS: tuple[Kernel, ...] = (
    kernel(Pad, device="cuda", variant="tables", supports=supports, bind=bind, estimate=seconds)(run_from_plan),
)
