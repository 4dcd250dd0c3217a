"""Gradients of layer and RMS normalisation, by graph_executor/kernels/norm_gradient.cu.

rows: float32 and narrower types, which are computed as float32. That of batch normalisation: `batch_normalization.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.normalization_grad import LayerNormalizationGrad, RMSNormalizationGrad
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._machine import machine
from aicore_cuda_ge.kernels._memory_bound import (
    NARROW,
    dtype_of,
    need_static,
    run_from_plan,
    seconds_of,
    shape_of,
)

Types = Sequence["TensorType | None"]
_LANES, _PARTS = 32, 8
"""Of a block of columns: columns, and rows at a time."""
_MOST_SPLITS = 64
_ROWS_EACH = 4 * _PARTS
"""Rows that are worth a split."""

seconds = seconds_of(bytes_per_second=1.8e12, launch_seconds=5e-6)


def _sizes(op: Any, x: TensorType | None) -> tuple[int, int]:
    """Rows, and their length."""
    shape = shape_of(x)
    axis = op.axis % len(shape)
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def _splits(rows: int, length: int) -> int:
    across = max(1, -(-length // _LANES))
    return max(1, min(4 * machine().multiprocessors // across, rows // _ROWS_EACH, _MOST_SPLITS))


def supports(op: Op, *types: TensorType | None) -> str | None:
    if reason := need_static(*types):
        return reason
    operands = (types[0], types[1], types[-1])  # x, scale and dy; statistics are float32
    return "takes x, scale and dy of one type" if len({t.dtype for t in operands if t is not None}) > 1 else None


def workspace(op: Op, x: TensorType, *others: TensorType | None) -> int:
    rows, length = _sizes(op, x)
    return 4 * (rows + 2 * _splits(rows, length) * length)


def bind(op: Op, types: Types, constants: Sequence[Any]) -> Call:
    rows, length = _sizes(op, types[0])
    is_layer = isinstance(op, LayerNormalizationGrad)
    pick = (0, 1, 2, 3, 4, 5, 6, 7, 8) if is_layer else (0, 1, -1, -1, 2, 3, 4, -1, 5)
    epsilon = float(getattr(op, "epsilon", 0.0))
    params = (rows, length, _splits(rows, length), int(is_layer), epsilon)
    return compiled(f"norm_gradient_{dtype_of(types)}", params, pick=pick)


KERNELS: tuple[Kernel, ...] = tuple(
    kernel(
        op,
        device="cuda",
        variant="rows",
        dtypes=NARROW,
        supports=supports,
        workspace=workspace,
        estimate=seconds,
        bind=bind,
    )(run_from_plan)
    for op in (LayerNormalizationGrad, RMSNormalizationGrad)
)
