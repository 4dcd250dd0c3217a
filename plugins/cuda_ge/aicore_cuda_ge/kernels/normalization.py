"""Layer, RMS, instance, group and batch normalisation, and local response normalisation.

Batch and local response normalisation take float32; the others narrower types, too, which are computed as float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aicore.ir import Op, TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.fused_normalization import AddNormalization, AddNormalizationSum
from aicore.ops.layout import ChannelsLast
from aicore.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from aicore_cuda_ge.calls import Call, compiled
from aicore_cuda_ge.kernels._memory_bound import NARROW, dtype_of, need_static, row_seconds, run_from_plan, shape_of

Types = Sequence["TensorType | None"]
FLOAT = frozenset({"float32"})
_ABSENT = -1


def _last_axes_supports(op: Any, x: TensorType, scale: TensorType, bias: TensorType | None = None) -> str | None:
    """Layer and RMS: one entry of scale and bias for each element of a row."""
    reason = need_static(x, scale, bias)
    if reason is not None:
        return reason
    row = x.static_shape[op.axis % len(x.static_shape) :]
    for parameter in (scale, bias):
        if parameter is not None and parameter.static_shape != row:
            return "wants scale and bias of the shape of the axes that are normalised"
    if scale.dtype != x.dtype:
        return "wants a scale of the type of x"
    return "computes statistics in float32" if op.stash_type != "float32" else None


def _rows(op: Any, shape: Sequence[int]) -> tuple[int | float, ...]:
    axis = op.axis % len(shape)
    rows, length = math.prod(shape[:axis]), math.prod(shape[axis:])
    centred = int(isinstance(op, LayerNormalization))
    return rows, length, 1, 0, 1, max(length, 1), centred, float(op.epsilon)


def _last_axes_bind(op: Any, types: Types, constants: Sequence[Any]) -> Call:
    bias = 2 if len(types) > 2 and types[2] is not None else _ABSENT
    out = len(types)
    statistics = (out + 1, out + 2) if op.n_outputs() > 1 else (_ABSENT, _ABSENT)
    pick = (0, _ABSENT, 1, bias, out, *statistics, _ABSENT)
    return compiled(f"normalize_{dtype_of(types)}", _rows(op, shape_of(types[0])), pick=pick)


def _sum_supports(
    op: AddNormalization | AddNormalizationSum,
    a: TensorType,
    b: TensorType,
    scale: TensorType,
    bias: TensorType | None = None,
) -> str | None:
    """The sum of two tensors of one shape, normalised over its last axes."""
    reason = need_static(a, b)
    if reason is not None:
        return reason
    if a.static_shape != b.static_shape:
        return "adds tensors of one shape"
    if op.normalization.n_outputs() > 1:
        return "keeps no statistics"
    return _last_axes_supports(op.normalization, a, scale, bias)


def _sum_bind(op: AddNormalization | AddNormalizationSum, types: Types, constants: Sequence[Any]) -> Call:
    bias = 3 if len(types) > 3 and types[3] is not None else _ABSENT
    total = len(types) + 1 if isinstance(op, AddNormalizationSum) else _ABSENT
    pick = (0, 1, 2, bias, len(types), _ABSENT, _ABSENT, total)
    return compiled(f"normalize_{dtype_of(types)}", _rows(op.normalization, shape_of(types[0])), pick=pick)


def _channels_supports(op: Any, *types: TensorType | None) -> str | None:
    stash = getattr(op, "stash_type", "float32")
    return need_static(*types) or ("computes statistics in float32" if stash != "float32" else None)


def _instance_bind(op: InstanceNormalization, types: Types, constants: Sequence[Any]) -> Call:
    images, channels, *space = shape_of(types[0])
    length = math.prod(space)
    params = (images * channels, length, max(channels, 1), 1, max(length, 1), 1, 1, float(op.epsilon))
    return _of_channels(params, types)


def _group_bind(op: GroupNormalization, types: Types, constants: Sequence[Any]) -> Call:
    images, channels, *space = shape_of(types[0])
    area, together = math.prod(space), channels // op.num_groups
    params = (
        images * op.num_groups,
        together * area,
        op.num_groups,
        together,
        max(area, 1),
        max(together, 1),
        1,
        float(op.epsilon),
    )
    return _of_channels(params, types)


def _of_channels(params: Sequence[int | float], types: Types) -> Call:
    return compiled(f"normalize_{dtype_of(types)}", params, pick=(0, _ABSENT, 1, 2, 3, _ABSENT, _ABSENT, _ABSENT))


def _batch_supports(op: BatchNormalization, *types: TensorType | None) -> str | None:
    if op.training_mode:
        return "normalises with given statistics only"
    dtypes = {t.dtype for t in types if t is not None}
    return need_static(*types) or ("takes one element type" if dtypes != {"float32"} else None)


def _batch_bind(op: BatchNormalization, types: Types, constants: Sequence[Any]) -> Call:
    shape = shape_of(types[0])
    channels = shape[1] if len(shape) > 1 else 1
    params = (math.prod(shape), max(channels, 1), max(math.prod(shape[2:]), 1), float(op.epsilon))
    return compiled("batch_normalize_f32", params)


def _lrn_supports(op: Any, x: TensorType) -> str | None:
    return need_static(x)


def _lrn_bind(op: Any, types: Types, constants: Sequence[Any]) -> Call:
    shape = shape_of(types[0])
    is_last = isinstance(op, ChannelsLast)
    held: LRN = op.inner if is_last else op
    channels, step = (shape[-1], 1) if is_last else (shape[1], math.prod(shape[2:]))
    numbers = (float(held.alpha) / held.size, float(held.beta), float(held.bias))
    return compiled("lrn_f32", (math.prod(shape), max(channels, 1), max(step, 1), held.size, *numbers))


def _made(op: type[Op], supports: Any, bind: Any, dtypes: frozenset[str] = NARROW) -> Kernel:
    made = kernel(op, device="cuda", variant="rows", dtypes=dtypes, supports=supports, bind=bind, estimate=row_seconds)
    return made(run_from_plan)


KERNELS: tuple[Kernel, ...] = (
    _made(LayerNormalization, _last_axes_supports, _last_axes_bind),
    _made(RMSNormalization, _last_axes_supports, _last_axes_bind),
    _made(AddNormalization, _sum_supports, _sum_bind),
    _made(AddNormalizationSum, _sum_supports, _sum_bind),
    _made(InstanceNormalization, _channels_supports, _instance_bind),
    _made(GroupNormalization, _channels_supports, _group_bind),
    _made(BatchNormalization, _batch_supports, _batch_bind, FLOAT),
    _made(LRN, _lrn_supports, _lrn_bind, FLOAT),
    kernel(
        ChannelsLast,
        wraps=LRN,
        device="cuda",
        variant="rows",
        dtypes=FLOAT,
        supports=_lrn_supports,
        bind=_lrn_bind,
        estimate=row_seconds,
    )(run_from_plan),
)
