"""Normalisation layers and their gradients, in float32 at least, and rounded once to the type of the output."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from aicore.ops.normalization_grad import BatchNormalizationGrad, LayerNormalizationGrad, RMSNormalizationGrad
from aicore_cpu_numpy.reference._precision import Array, widen
from aicore_cpu_numpy.reference.reduction import reduce_mean


@kernel(BatchNormalization, device="cpu")
def batch_normalization(op: BatchNormalization, x: Array, scale: Array, bias: Array, mean: Array, var: Array) -> Any:
    wide = widen(x)
    if not op.training_mode:
        return _affine(wide, widen(mean), widen(var), op.epsilon, scale, bias).astype(x.dtype, copy=False)
    others = tuple(i for i in range(x.ndim) if i != 1) if x.ndim > 1 else (0,)
    kept_mean = reduce_mean(wide, others)
    batch_mean = kept_mean.reshape(mean.shape)
    batch_var = reduce_mean(np.square(wide - kept_mean), others).reshape(var.shape)
    y = _affine(wide, batch_mean, batch_var, op.epsilon, scale, bias).astype(x.dtype, copy=False)
    next_mean = widen(mean) * op.momentum + batch_mean * (1 - op.momentum)
    next_var = widen(var) * op.momentum + batch_var * (1 - op.momentum)
    moved = y, next_mean.astype(mean.dtype), next_var.astype(var.dtype)
    if not op.statistics:
        return moved
    inverse = 1 / np.sqrt(batch_var + batch_var.dtype.type(op.epsilon))
    return *moved, batch_mean.astype(wide.dtype, copy=False), inverse.astype(wide.dtype, copy=False)


def _affine(x: Array, mean: Array, var: Array, epsilon: float, scale: Array, bias: Array) -> Any:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, with the parameters along axis 1."""
    mean, var, scale, bias = (per_channel(p, x.ndim) for p in (mean, var, widen(scale), widen(bias)))
    return (x - mean) / np.sqrt(var + epsilon) * scale + bias


def per_channel(parameter: Array, rank: int) -> Array:
    """A vector of one number for each channel, shaped to broadcast along axis 1 (of a vector: along its only one)."""
    return parameter.reshape((-1,) + (1,) * max(rank - 2, 0))


@kernel(LayerNormalization, device="cpu")
def layer_normalization(op: LayerNormalization, x: Array, scale: Array, bias: Array | None = None) -> Any:
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    wide = widen(x)
    mean = reduce_mean(wide, axes)
    centered = wide - mean
    inverse = 1 / np.sqrt(reduce_mean(np.square(centered), axes) + wide.dtype.type(op.epsilon))
    y = centered * inverse * widen(scale)
    y = (y if bias is None else y + widen(bias)).astype(x.dtype, copy=False)
    if not op.statistics:
        return y
    stash = numpy_dtype(op.stash_type)
    return y, mean.astype(stash), inverse.astype(stash)


@kernel(BatchNormalizationGrad, device="cpu")
def batch_normalization_grad(
    op: BatchNormalizationGrad, x: Array, scale: Array, mean: Array, inverse_deviation: Array, dy: Array
) -> Any:
    others = tuple(i for i in range(x.ndim) if i != 1) if x.ndim > 1 else (0,)
    factor, mean, inverse = (per_channel(p, x.ndim) for p in (widen(scale), mean, inverse_deviation))
    normal, gradient = (widen(x) - mean) * inverse, widen(dy)
    dx = _through_statistics(normal, gradient * factor, inverse, others).astype(x.dtype, copy=False)
    dscale, dbias = (np.sum(g, others).reshape(scale.shape) for g in (gradient * normal, gradient))
    return dx, dscale.astype(scale.dtype, copy=False), dbias.astype(scale.dtype, copy=False)


@kernel(LayerNormalizationGrad, device="cpu")
def layer_normalization_grad(
    op: LayerNormalizationGrad, x: Array, scale: Array, mean: Array, inverse_deviation: Array, dy: Array
) -> Any:
    axis = op.axis % x.ndim
    normal, gradient = (widen(x) - mean) * inverse_deviation, widen(dy)
    axes, leading = tuple(range(axis, x.ndim)), tuple(range(axis))
    dx = _through_statistics(normal, gradient * widen(scale), inverse_deviation, axes).astype(x.dtype, copy=False)
    dscale, dbias = (np.sum(g, leading) for g in (gradient * normal, gradient))
    return dx, dscale.astype(scale.dtype, copy=False), dbias.astype(scale.dtype, copy=False)


@kernel(RMSNormalizationGrad, device="cpu")
def rms_normalization_grad(op: RMSNormalizationGrad, x: Array, scale: Array, dy: Array) -> Any:
    axis = op.axis % x.ndim
    axes, wide, gradient = tuple(range(axis, x.ndim)), widen(x), widen(dy)
    inverse = 1 / np.sqrt(reduce_mean(np.square(wide), axes) + op.epsilon)
    normal, scaled = wide * inverse, gradient * widen(scale)
    dx = inverse * (scaled - normal * reduce_mean(scaled * normal, axes))
    dscale = np.sum(gradient * normal, tuple(range(axis)))
    return dx.astype(x.dtype, copy=False), dscale.astype(scale.dtype, copy=False)


def _through_statistics(normal: Array, gradient: Array, inverse: Array, axes: tuple[int, ...]) -> Any:
    """The gradient of x, given that of h = (x - mean) * inverse, and h; mean and inverse are over these axes."""
    return inverse * (gradient - reduce_mean(gradient, axes) - normal * reduce_mean(gradient * normal, axes))


@kernel(RMSNormalization, device="cpu")
def rms_normalization(op: RMSNormalization, x: Array, scale: Array) -> Any:
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    wide = widen(x)
    root = np.sqrt(reduce_mean(np.square(wide), axes) + op.epsilon)
    return (wide / root * widen(scale)).astype(scale.dtype, copy=False)


@kernel(InstanceNormalization, device="cpu")
def instance_normalization(op: InstanceNormalization, x: Array, scale: Array, bias: Array) -> Any:
    y = standardized(widen(x), tuple(range(2, x.ndim)), op.epsilon)
    return (y * per_channel(widen(scale), x.ndim) + per_channel(widen(bias), x.ndim)).astype(x.dtype, copy=False)


@kernel(GroupNormalization, device="cpu")
def group_normalization(op: GroupNormalization, x: Array, scale: Array, bias: Array) -> Any:
    members = x.shape[1] // op.num_groups
    grouped = widen(x).reshape(x.shape[0], op.num_groups, members, *x.shape[2:])
    y = standardized(grouped, tuple(range(2, grouped.ndim)), op.epsilon).reshape(x.shape)
    return (y * per_channel(widen(scale), x.ndim) + per_channel(widen(bias), x.ndim)).astype(x.dtype, copy=False)


def standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> Any:
    """(x - mean) / sqrt(variance + epsilon), with the statistics of the given axes."""
    centered = x - reduce_mean(x, axes)
    return centered / np.sqrt(reduce_mean(np.square(centered), axes) + epsilon)


@kernel(LpNormalization, device="cpu")
def lp_normalization(op: LpNormalization, x: Array) -> Any:
    wide = widen(x)
    if op.p == 1:
        norm = np.sum(np.abs(wide), axis=op.axis, keepdims=True)
    else:
        norm = np.sqrt(np.sum(np.square(wide), axis=op.axis, keepdims=True))
    return np.where(norm == 0, 0, wide / norm).astype(x.dtype, copy=False)


@kernel(LRN, device="cpu")
def lrn(op: LRN, x: Array) -> Any:
    wide = widen(x)
    squares = np.square(wide)
    channels = x.shape[1]
    square_sum = np.zeros_like(wide)
    for channel in range(channels):
        first = max(0, channel - (op.size - 1) // 2)
        last = min(channels - 1, channel + op.size // 2)
        square_sum[:, channel] = np.sum(squares[:, first : last + 1], axis=1)
    return (wide / (op.bias + op.alpha / op.size * square_sum) ** op.beta).astype(x.dtype, copy=False)


@kernel(MeanVarianceNormalization, device="cpu")
def mean_variance_normalization(op: MeanVarianceNormalization, x: Array) -> Any:
    wide = widen(x)
    centered = wide - reduce_mean(wide, op.axes)
    deviation = np.sqrt(reduce_mean(np.square(centered), op.axes))
    return (centered / (deviation + 1e-9)).astype(x.dtype, copy=False)


KERNELS: tuple[Kernel, ...] = (
    batch_normalization,
    batch_normalization_grad,
    layer_normalization_grad,
    rms_normalization_grad,
    layer_normalization,
    rms_normalization,
    instance_normalization,
    group_normalization,
    lp_normalization,
    lrn,
    mean_variance_normalization,
)
