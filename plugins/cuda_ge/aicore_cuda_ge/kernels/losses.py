"""The loss of classes and its gradient, by graph_executor/loss/cross_entropy.cu."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.losses import INDICES, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._memory_bound import (
    FLOATS,
    along,
    dtype_of,
    need_static,
    row_seconds,
    run_from_plan,
    shape_of,
)

Types = Sequence["TensorType | None"]

_OUTSIDE = "the target has class {value}, which there is not"


def _supports(op: Any, *types: TensorType | None) -> str | None:
    if reason := need_static(*types):
        return reason
    shape = shape_of(types[0])
    is_odd = math.prod(shape) == 0 and math.prod(along(shape, op.axis)[::2]) > 0
    return "rows have no classes" if is_odd else None


def _bind(op: Any, types: Types, constants: Sequence[Any]) -> tuple[Call, ...]:
    shape, target = shape_of(types[0]), types[1]
    if not math.prod(shape):
        return ()
    assert target is not None
    has_indices = target.dtype in INDICES
    ignored = 0 if op.ignore_index is None else op.ignore_index
    params = (
        *along(shape, op.axis),
        int(target.dtype == "int64"),
        int(op.ignore_index is not None),
        ignored,
        *struct.unpack("<q", struct.pack("<d", op.label_smoothing)),  # its bits: the struct has a double there
    )
    kind = "_indices" if has_indices else ""
    grad = "_grad" if isinstance(op, SoftmaxCrossEntropyGrad) else ""
    name = f"cross_entropy{kind}{grad}_{dtype_of(types)}"
    return (compiled(name, params, reports=_OUTSIDE if has_indices else ""),)


KERNELS: tuple[Kernel, ...] = (
    kernel(
        SoftmaxCrossEntropy,
        device="cuda",
        variant="rows",
        dtypes=FLOATS,
        supports=_supports,
        bind=_bind,
        estimate=row_seconds,
    )(run_from_plan),
    kernel(
        SoftmaxCrossEntropyGrad,
        device="cuda",
        variant="rows",
        dtypes=FLOATS,
        supports=_supports,
        bind=_bind,
        estimate=row_seconds,
        inplace=True,
    )(run_from_plan),
)
