"""BatchNormalization and per-channel arithmetic move into the weights of the layer before them.

All that these rules build from weights is constant, and fold-weights computes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from aicore.ir import Value
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.matmul import Gemm
from aicore.ops.normalization import BatchNormalization
from aicore.passes.base import RulePass
from aicore.rewrite import Rule, require, rule

Linear = Conv | ConvTranspose | Gemm


@rule(lambda op, x, scale, shift, mean, var, c, bn: op.Mul(op.apply(bn, x, scale, shift, mean, var), c))
def mul_into_batchnorm(
    op: Any, bn: BatchNormalization, x: Value, scale: Value, shift: Value, mean: Value, var: Value, c: Value
) -> Value:
    """bn(x) * c -> bn(x) with scale * c and shift * c, for a constant per channel"""
    _need_constant(bn, x, scale, shift, mean, var)
    factor = _vector(op, c, x, _count(scale, 0))
    found: Value = op.apply(bn, x, op.Mul(scale, factor), op.Mul(shift, factor), mean, var)
    return found


@rule(lambda op, x, scale, shift, mean, var, c, bn: op.Add(op.apply(bn, x, scale, shift, mean, var), c))
def add_into_batchnorm(
    op: Any, bn: BatchNormalization, x: Value, scale: Value, shift: Value, mean: Value, var: Value, c: Value
) -> Value:
    """bn(x) + c -> bn(x) with shift + c, for a constant per channel"""
    _need_constant(bn, x, scale, shift, mean, var)
    found: Value = op.apply(bn, x, scale, op.Add(shift, _vector(op, c, x, _count(scale, 0))), mean, var)
    return found


@rule(
    lambda op, x, w, scale, shift, mean, var, linear, bn, b=None: op.apply(
        bn, op.apply(linear, x, w, b), scale, shift, mean, var
    )
)
def fold_batchnorm(
    op: Any,
    linear: Linear,
    bn: BatchNormalization,
    x: Value,
    w: Value,
    b: Value | None,
    scale: Value,
    shift: Value,
    mean: Value,
    var: Value,
) -> Value:
    """bn(linear(x, w, b)) -> linear(x, w * k, (b - mean) * k + shift), k = scale / sqrt(var + epsilon)"""
    _need_constant(bn, w, w, scale, shift, mean, var)
    factor, mean, shift = _factor(op, bn, scale, shift, mean, var)
    bias = _bias(op, linear, w, b)
    offset = op.Neg(mean) if bias is None else op.Sub(_as(op, bias, mean.dtype), mean)
    bias = _as(op, op.Add(op.Mul(offset, factor), shift), w.dtype)
    found: Value = op.apply(_without_beta(linear), x, _scaled(op, linear, w, factor), bias)
    return found


@rule(lambda op, x, w, c, linear, b=None: op.Mul(op.apply(linear, x, w, b), c))
def mul_into_linear(op: Any, linear: Linear, x: Value, w: Value, b: Value | None, c: Value) -> Value:
    """linear(x, w, b) * c -> linear(x, w * c, b * c), for a constant per channel"""
    require(w.fixed, "the weight is not constant", w)
    factor = _vector(op, c, w, _channels(linear, w))
    bias = _bias(op, linear, w, b)
    scaled = None if bias is None else op.Mul(bias, factor)
    found: Value = op.apply(_without_beta(linear), x, _scaled(op, linear, w, factor), scaled)
    return found


@rule(lambda op, x, w, c, linear, b=None: op.Add(op.apply(linear, x, w, b), c))
def add_into_linear(op: Any, linear: Linear, x: Value, w: Value, b: Value | None, c: Value) -> Value:
    """linear(x, w, b) + c -> linear(x, w, b + c), for a constant per channel"""
    addend = _vector(op, c, w, _channels(linear, w))
    bias = _bias(op, linear, w, b)
    found: Value = op.apply(_without_beta(linear), x, w, addend if bias is None else op.Add(bias, addend))
    return found


@rule(lambda op, x, scale, shift, mean, var, bn: op.apply(bn, x, scale, shift, mean, var))
def batchnorm_to_scale(
    op: Any, bn: BatchNormalization, x: Value, scale: Value, shift: Value, mean: Value, var: Value
) -> Value:
    """bn(x) -> x * k + (shift - mean * k), k = scale / sqrt(var + epsilon), where no layer takes it up"""
    _need_constant(bn, x, scale, shift, mean, var)
    factor, mean, shift = _factor(op, bn, scale, shift, mean, var)
    shape = (-1,) + (1,) * ((x.rank or 0) - 2)
    offset = op.Sub(shift, op.Mul(mean, factor))
    k, c = (op.Reshape(_as(op, v, x.dtype), shape=shape) for v in (factor, offset))
    found: Value = op.Add(op.Mul(x, k), c)
    return found


@dataclass(frozen=True)
class FoldBatchnorm(RulePass):
    """BatchNormalization of constant statistics, and constants per channel, vanish into Conv, ConvTranspose and Gemm.

    Where there is none before it, a BatchNormalization becomes one multiplication and one addition.
    """

    name: ClassVar[str] = "fold-batchnorm"
    phase: ClassVar[str] = "fuse"
    rules: ClassVar[tuple[Rule, ...]] = (
        mul_into_batchnorm,
        add_into_batchnorm,
        mul_into_linear,
        add_into_linear,
        fold_batchnorm,
        batchnorm_to_scale,
    )


def _need_constant(bn: BatchNormalization, like: Value, *constants: Value) -> None:
    require(not bn.training_mode, "the BatchNormalization is in training mode")
    require(like.rank is not None and like.rank >= 2, "the operand has no channel axis", like)
    for value in constants:
        require(value.fixed, "a parameter is not constant", value)
        require(value.dtype == like.dtype, "a parameter has another dtype than the operand", value)


def _count(value: Value, axis: int) -> int:
    dim = None if value.shape is None else value.shape[axis]
    require(isinstance(dim, int), "the number of channels is unknown", value)
    return dim if isinstance(dim, int) else 0


def _channels(linear: Linear, w: Value) -> int:
    if isinstance(linear, ConvTranspose):
        return _count(w, 1) * linear.group
    return _count(w, 0 if isinstance(linear, Conv) or linear.transB else 1)


def _vector(op: Any, c: Value, like: Value, channels: int) -> Value:
    """A constant as a vector with an element for each channel; it must be 1 along all other axes."""
    require(c.fixed, "the other operand is not constant", c)
    require(c.dtype == like.dtype, "the other operand has another dtype", c)
    require(c.shape is not None and like.rank is not None and len(c.shape) <= like.rank, "it has too many axes", c)
    lead = (like.rank or 0) - len(c.shape or ())
    for axis, dim in enumerate(c.shape or (), start=lead):
        allowed = (1, channels) if axis == 1 else (1,)
        require(dim in allowed, "the other operand is not one number per channel", c)
    flat: Value = op.Reshape(c, shape=(-1,))
    if flat.shape == (channels,):
        return flat
    expanded: Value = op.Expand(flat, shape=(channels,))
    return expanded


def _bias(op: Any, linear: Linear, w: Value, b: Value | None) -> Value | None:
    """The bias as a vector, with Gemm's beta in it; that of Gemm may be a matrix, which does not fold."""
    if b is None:
        return None
    require(b.fixed, "the bias is not constant", b)
    if not isinstance(linear, Gemm):
        return b
    vector = _vector(op, b, w, _channels(linear, w))
    scaled: Value = vector if linear.beta == 1 else op.Mul(vector, op.scalar(linear.beta, vector))
    return scaled


def _without_beta(linear: Linear) -> Linear:
    return replace(linear, beta=1.0) if isinstance(linear, Gemm) else linear


def _as(op: Any, value: Value, dtype: str) -> Value:
    found: Value = value if value.dtype == dtype else op.Cast(value, to=dtype)
    return found


def _factor(
    op: Any, bn: BatchNormalization, scale: Value, shift: Value, mean: Value, var: Value
) -> tuple[Value, Value, Value]:
    """(k, mean, shift), in float32 at least: a half-precision variance plus epsilon loses most of its digits."""
    dtype = "float32" if var.dtype in {"float16", "bfloat16"} else var.dtype
    scale, shift, mean, var = (_as(op, value, dtype) for value in (scale, shift, mean, var))
    return op.Div(scale, op.Sqrt(op.Add(var, op.scalar(bn.epsilon, var)))), mean, shift


def _scaled(op: Any, linear: Linear, w: Value, factor: Value) -> Value:
    """The weight with each output channel multiplied by its factor."""
    wide = _as(op, w, factor.dtype)
    rank = w.rank or 0
    if isinstance(linear, ConvTranspose) and linear.group > 1:
        return _as(op, _scaled_groups(op, linear.group, wide, factor), w.dtype)
    axis = _channel_axis(linear)
    shape = tuple(-1 if i == axis else 1 for i in range(rank))
    return _as(op, op.Mul(wide, op.Reshape(factor, shape=shape)), w.dtype)


def _channel_axis(linear: Linear) -> int:
    """The axis of the weight that output channels run along."""
    if isinstance(linear, Gemm):
        return 0 if linear.transB else 1
    return 1 if isinstance(linear, ConvTranspose) else 0


def _scaled_groups(op: Any, group: int, w: Value, factor: Value) -> Value:
    """ConvTranspose has the input channels of all groups along axis 0, and one group's output channels along axis 1."""
    require(w.type.is_static, "the weight's shape is not known in numbers", w)
    inputs, outputs, *kernel = w.type.static_shape
    apart = op.Reshape(w, shape=(group, inputs // group, outputs, *kernel))
    factors = op.Reshape(factor, shape=(group, 1, outputs, *(1 for _ in kernel)))
    found: Value = op.Reshape(op.Mul(apart, factors), shape=w.type.static_shape)
    return found
