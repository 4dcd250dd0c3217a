"""Dropout in training, with the same elements kept as everywhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.random import Dropout
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._memory_bound import need_static, run_from_plan, seconds_of
from aicore_cuda_ge.kernels._windows import ELEMENTS

_MOST = 1 << 34
"""Elements that counters of 32 bits number, four each."""
_KEY = 3

seconds = seconds_of(bytes_per_second=2.5e12, launch_seconds=1.1e-6)


def supports(op: Dropout, *types: TensorType | None) -> str | None:
    """Takes a ratio and a mode that are known before the run."""
    if reason := need_static(*types):
        return reason
    x, *settings = types[:_KEY]
    if not op.training_mode or any(t is not None for t in settings):
        return "takes a ratio that is known before the run, and training mode"
    return f"numbers at most {_MOST} elements" if x is not None and math.prod(x.static_shape) > _MOST else None


def bind(op: Dropout, types: Sequence[TensorType | None], constants: Sequence[DeviceArray | None]) -> Call:
    x, out = types[0], len(types)
    assert x is not None  # it is required
    ratio = 0.5 if op.ratio is None else op.ratio
    params = (ELEMENTS[x.dtype], math.prod(x.static_shape), op.stream & 0xFFFFFFFF, int(ratio * 2**32), 1.0 - ratio)
    return compiled("dropout", params, pick=(0, _KEY, out, out + 1 if op.mask else -1))


_decorate = kernel(
    Dropout,
    device="cuda",
    variant="drawn",
    dtypes={"float32", "float16", "bfloat16"},
    supports=supports,
    bind=bind,
    estimate=seconds,
)
KERNELS: tuple[Kernel, ...] = (_decorate(run_from_plan),)
