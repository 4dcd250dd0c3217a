"""Normalisation layers, in place on the output, a few rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from aicore_cpu_numpy.fast._rows import Array, carve, carved_bytes, row_blocks, rows_of_block

FLOATS = frozenset({"float32", "float64"})


def _row_bytes(op: Any, x: TensorType, *parameters: TensorType | None) -> int:
    """Workspace for two numbers a row of a block, mean and inverse deviation."""
    rows, columns = _rows(op, x.static_shape)
    size = rows_of_block(rows, columns) * numpy_dtype(x.dtype).itemsize
    return carved_bytes(size, size)


def _rows(op: Any, shape: Sequence[int]) -> tuple[int, int]:
    """How many sets of statistics there are, and of how many elements each."""
    if isinstance(op, LayerNormalization | RMSNormalization):
        axis = op.axis % len(shape)
        return math.prod(shape[:axis]), math.prod(shape[axis:])
    groups = op.num_groups if isinstance(op, GroupNormalization) else shape[1]
    rows = shape[0] * groups
    return rows, math.prod(shape) // rows if rows else 0


def _standardize(x: Array, y: Array, mean: Array, inverse: Array, epsilon: float) -> None:
    """y = (x - mean) * inverse for each row, where inverse = 1 / sqrt(variance + epsilon)."""
    np.add.reduce(x, axis=1, out=mean, keepdims=True)
    np.divide(mean, x.shape[1], out=mean)
    np.subtract(x, mean, out=y)
    _inverse_root(y, inverse, epsilon)
    np.multiply(y, inverse, out=y)


def _inverse_root(x: Array, inverse: Array, epsilon: float) -> None:
    """inverse = 1 / sqrt(mean(x * x) + epsilon) for each row."""
    np.einsum("ij,ij->i", x, x, out=inverse[:, 0])
    np.divide(inverse, x.shape[1], out=inverse)
    np.add(inverse, epsilon, out=inverse)
    np.sqrt(inverse, out=inverse)
    np.reciprocal(inverse, out=inverse)


def _same_rows(op: Any, x: TensorType, *parameters: TensorType | None) -> str | None:
    """Why the parameters do not repeat with every row, or None."""
    if x.shape is None:
        return "wants an operand of known rank"
    tail = x.shape[op.axis % len(x.shape) :]
    for parameter in parameters:
        shape = None if parameter is None else parameter.shape
        if parameter is not None and shape != tail:
            return f"wants parameters of the normalised shape, not {parameter}"
    return None


def _layer_supports(op: LayerNormalization, x: TensorType, *parameters: TensorType | None) -> str | None:
    if op.statistics and op.stash_type not in ("float32", x.dtype):
        return f"gives no statistics in {op.stash_type}"
    return _same_rows(op, x, *parameters)


@kernel(
    LayerNormalization,
    device="cpu",
    variant="rows",
    dtypes=FLOATS,
    supports=_layer_supports,
    workspace=_row_bytes,
    inplace=True,
)
def layer_normalization_rows(
    op: LayerNormalization, x: Array, scale: Array, bias: Array | None = None, *, out: Any, workspace: Array
) -> None:
    rows, columns = _rows(op, x.shape)
    result, *statistics = out if op.statistics else (out,)
    source, target = x.reshape(rows, columns), result.reshape(rows, columns)
    mean, inverse = carve(workspace, x.dtype, *((rows_of_block(rows, columns), 1),) * 2)
    for block in row_blocks(rows, columns):
        count = block.stop - block.start
        y, m, i = target[block], mean[:count], inverse[:count]
        _standardize(source[block], y, m, i, op.epsilon)
        np.multiply(y, scale.reshape(columns), out=y)
        if bias is not None:
            np.add(y, bias.reshape(columns), out=y)
        for statistic, numbers in zip(statistics, (m, i), strict=False):
            np.copyto(statistic.reshape(rows, 1)[block], numbers, casting="same_kind")


def _rms_supports(op: RMSNormalization, x: TensorType, scale: TensorType) -> str | None:
    return _same_rows(op, x, scale) if scale.dtype == x.dtype else f"wants a scale of x's type, not {scale.dtype}"


@kernel(RMSNormalization, device="cpu", variant="rows", dtypes=FLOATS, supports=_rms_supports, workspace=_row_bytes)
def rms_normalization_rows(op: RMSNormalization, x: Array, scale: Array, *, out: Array, workspace: Array) -> None:
    rows, columns = _rows(op, x.shape)
    source, target = x.reshape(rows, columns), out.reshape(rows, columns)
    _, inverse = carve(workspace, x.dtype, *((rows_of_block(rows, columns), 1),) * 2)
    for block in row_blocks(rows, columns):
        y, i = target[block], inverse[: block.stop - block.start]
        _inverse_root(source[block], i, op.epsilon)
        np.multiply(source[block], i, out=y)
        np.multiply(y, scale.reshape(columns), out=y)


def per_channel_affine(cls: type[Op]) -> Kernel:
    """The kernel of InstanceNormalization or GroupNormalization."""

    def compute(op: Any, x: Array, scale: Array, bias: Array, *, out: Array, workspace: Array) -> None:
        rows, columns = _rows(op, x.shape)
        source, target = x.reshape(rows, columns), out.reshape(rows, columns)
        mean, inverse = carve(workspace, x.dtype, *((rows_of_block(rows, columns), 1),) * 2)
        for block in row_blocks(rows, columns):
            count = block.stop - block.start
            _standardize(source[block], target[block], mean[:count], inverse[:count], op.epsilon)
        channels = out.reshape(x.shape[0], x.shape[1], -1) if x.size else out.reshape(0, x.shape[1], 1)
        np.multiply(channels, scale[:, None], out=channels)
        np.add(channels, bias[:, None], out=channels)

    return kernel(cls, device="cpu", variant="rows", dtypes=FLOATS, workspace=_row_bytes)(compute)


def _inference(op: BatchNormalization, x: TensorType, *parameters: TensorType | None) -> str | None:
    if op.training_mode:
        return "does not train"
    wrong = {p.dtype for p in parameters if p is not None} - {x.dtype}
    return f"wants parameters of x's type, not {', '.join(sorted(wrong))}" if wrong else None


def _factor_bytes(op: BatchNormalization, x: TensorType, *parameters: TensorType) -> int:
    """Workspace for one number a channel."""
    return carved_bytes(math.prod(parameters[0].static_shape) * numpy_dtype(x.dtype).itemsize)


def _factor(op: BatchNormalization, scale: Array, variance: Array, out: Array) -> Array:
    """scale / sqrt(variance + epsilon)."""
    np.add(variance, op.epsilon, out=out)
    np.sqrt(out, out=out)
    return np.divide(scale, out, out=out)


def _bind_batch(
    op: BatchNormalization, types: Sequence[TensorType | None], constants: Sequence[Array | None]
) -> Callable[..., None]:
    """The factor of each channel is worked out here, once, when its operands are constant."""
    scale, variance = constants[1], constants[4]
    known = None if scale is None or variance is None else _factor(op, scale, variance, np.empty_like(scale))

    def run(x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, out: Array, workspace: Array) -> None:
        if known is None:
            (factor,) = carve(workspace, x.dtype, scale.shape)
            _normalize(x, mean, _factor(op, scale, variance, factor), bias, out)
        else:
            _normalize(x, mean, known, bias, out)

    return run


def _normalize(x: Array, mean: Array, factor: Array, bias: Array, out: Array) -> None:
    """out = (x - mean) * factor + bias, a few channels of one instance at a time."""
    channels = len(mean)
    instances = x.shape[0] if x.ndim > 1 else 1
    columns = x.size // (instances * channels) if instances * channels else 0
    source, target = x.reshape(instances, channels, columns), out.reshape(instances, channels, columns)
    for instance in range(instances):
        for block in row_blocks(channels, columns):
            y = target[instance, block]
            np.subtract(source[instance, block], mean[block, None], out=y)
            np.multiply(y, factor[block, None], out=y)
            np.add(y, bias[block, None], out=y)


@kernel(
    BatchNormalization,
    device="cpu",
    variant="channels",
    dtypes=FLOATS,
    supports=_inference,
    workspace=_factor_bytes,
    bind=_bind_batch,
    inplace=True,
)
def batch_normalization_channels(
    op: BatchNormalization,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    out: Array,
    workspace: Array,
) -> None:
    (factor,) = carve(workspace, x.dtype, scale.shape)
    _normalize(x, mean, _factor(op, scale, variance, factor), bias, out)


KERNELS: tuple[Kernel, ...] = (
    layer_normalization_rows,
    rms_normalization_rows,
    per_channel_affine(InstanceNormalization),
    per_channel_affine(GroupNormalization),
    batch_normalization_channels,
)
