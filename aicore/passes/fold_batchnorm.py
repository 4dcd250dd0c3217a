"""BatchNormalization and per-channel arithmetic move into the weights of the layer before them.

The rules compute the new weights themselves: built as nodes and folded later, each would cost a hundred times the sum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from aicore.ir import Graph, Value, numpy_dtype
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.matmul import Gemm
from aicore.ops.normalization import BatchNormalization
from aicore.pages import empty
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import Context, Rule, require, rule

Array = np.ndarray[Any, Any]
Linear = Conv | ConvTranspose | Gemm


@rule(lambda op, x, scale, shift, mean, var, c, bn: op.Mul(op.apply(bn, x, scale, shift, mean, var), c))
def mul_into_batchnorm(
    op: Any, bn: BatchNormalization, x: Value, scale: Value, shift: Value, mean: Value, var: Value, c: Value
) -> Value:
    """bn(x) * c -> bn(x) with scale * c and shift * c, for a constant per channel"""
    _need_constant(bn, x, scale, shift, mean, var)
    factor = _vector(c, x, _count(scale, 0))
    scaled = (_constant(op, _wide(v) * factor, v) for v in (scale, shift))
    found: Value = op.apply(bn, x, *scaled, mean, var)
    return found


@rule(lambda op, x, scale, shift, mean, var, c, bn: op.Add(op.apply(bn, x, scale, shift, mean, var), c))
def add_into_batchnorm(
    op: Any, bn: BatchNormalization, x: Value, scale: Value, shift: Value, mean: Value, var: Value, c: Value
) -> Value:
    """bn(x) + c -> bn(x) with shift + c, for a constant per channel"""
    _need_constant(bn, x, scale, shift, mean, var)
    moved = _wide(shift) + _vector(c, x, _count(scale, 0))
    found: Value = op.apply(bn, x, scale, _constant(op, moved, shift), mean, var)
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
    factor, bias = _factor(bn, scale, var), _bias(linear, w, b)
    offset = -_wide(mean) if bias is None else bias - _wide(mean)
    moved = _constant(op, offset * factor + _wide(shift), w)
    found: Value = op.apply(_without_beta(linear), x, _scaled(op, linear, w, factor), moved)
    return found


@rule(lambda op, x, w, c, linear, b=None: op.Mul(op.apply(linear, x, w, b), c))
def mul_into_linear(op: Any, linear: Linear, x: Value, w: Value, b: Value | None, c: Value) -> Value:
    """linear(x, w, b) * c -> linear(x, w * c, b * c), for a constant per channel"""
    require(w.constant is not None, "the weight is not constant", w)
    factor = _vector(c, w, _channels(linear, w))
    bias = _bias(linear, w, b)
    scaled = None if bias is None else _constant(op, bias * factor, w)
    found: Value = op.apply(_without_beta(linear), x, _scaled(op, linear, w, factor), scaled)
    return found


@rule(lambda op, x, w, c, linear, b=None: op.Add(op.apply(linear, x, w, b), c))
def add_into_linear(op: Any, linear: Linear, x: Value, w: Value, b: Value | None, c: Value) -> Value:
    """linear(x, w, b) + c -> linear(x, w, b + c), for a constant per channel"""
    addend = _vector(c, w, _channels(linear, w))
    bias = _bias(linear, w, b)
    joined = _constant(op, addend if bias is None else bias + addend, w)
    found: Value = op.apply(_without_beta(linear), x, w, joined)
    return found


@rule(lambda op, x, scale, shift, mean, var, bn: op.apply(bn, x, scale, shift, mean, var))
def batchnorm_to_scale(
    op: Any, bn: BatchNormalization, x: Value, scale: Value, shift: Value, mean: Value, var: Value
) -> Value:
    """bn(x) -> x * k + (shift - mean * k), k = scale / sqrt(var + epsilon), where no layer takes it up"""
    _need_constant(bn, x, scale, shift, mean, var)
    factor, shape = _factor(bn, scale, var), (-1,) + (1,) * ((x.rank or 0) - 2)
    offset = _wide(shift) - _wide(mean) * factor
    k, c = (_constant(op, array.reshape(shape), x) for array in (factor, offset))
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

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        with np.errstate(all="ignore"):  # weights may overflow and be NaN, as in the model
            return super().apply(graph, ctx)


def _factor(bn: BatchNormalization, scale: Value, var: Value) -> Array:
    wide = _wide(var)
    factor: Array = _wide(scale) / np.sqrt(wide + np.asarray(bn.epsilon, wide.dtype))
    return factor


def _wide(value: Value) -> Array:
    """The numbers in float32 at least: a half-precision variance plus epsilon loses most of its digits."""
    require(value.constant is not None, "a parameter is not constant", value)
    assert value.constant is not None  # by the guard
    array = value.constant.array
    return array.astype(np.float32) if value.dtype in {"float16", "bfloat16"} else array


def _constant(op: Any, array: Array, like: Value) -> Value:
    found: Value = op.constant(np.ascontiguousarray(array, numpy_dtype(like.dtype)), like.name)
    return found


def _need_constant(bn: BatchNormalization, like: Value, *constants: Value) -> None:
    require(not bn.training_mode, "the BatchNormalization is in training mode")
    require(like.rank is not None and like.rank >= 2, "the operand has no channel axis", like)
    for value in constants:
        require(value.constant is not None, "a parameter is not constant", value)
        require(value.dtype == like.dtype, "a parameter has another dtype than the operand", value)


def _count(value: Value, axis: int) -> int:
    dim = None if value.shape is None else value.shape[axis]
    require(isinstance(dim, int), "the number of channels is unknown", value)
    return dim if isinstance(dim, int) else 0


def _channels(linear: Linear, w: Value) -> int:
    if isinstance(linear, ConvTranspose):
        return _count(w, 1) * linear.group
    return _count(w, 0 if isinstance(linear, Conv) or linear.transB else 1)


def _vector(c: Value, like: Value, channels: int) -> Array:
    """A constant as a vector with an element for each channel; it must be 1 along all other axes."""
    require(c.constant is not None, "the other operand is not constant", c)
    require(c.dtype == like.dtype, "the other operand has another dtype", c)
    require(c.shape is not None and like.rank is not None and len(c.shape) <= like.rank, "it has too many axes", c)
    lead = (like.rank or 0) - len(c.shape or ())
    for axis, dim in enumerate(c.shape or (), start=lead):
        allowed = (1, channels) if axis == 1 else (1,)
        require(dim in allowed, "the other operand is not one number per channel", c)
    return np.broadcast_to(_wide(c).ravel(), (channels,))


def _bias(linear: Linear, w: Value, b: Value | None) -> Array | None:
    """The bias as a vector, with Gemm's beta in it; that of Gemm may be a matrix, which does not fold."""
    if b is None:
        return None
    require(b.constant is not None, "the bias is not constant", b)
    if not isinstance(linear, Gemm):
        return _wide(b)
    vector = _vector(b, w, _channels(linear, w))
    return vector if linear.beta == 1 else vector * np.asarray(linear.beta, vector.dtype)


def _without_beta(linear: Linear) -> Linear:
    return replace(linear, beta=1.0) if isinstance(linear, Gemm) else linear


def _scaled(op: Any, linear: Linear, w: Value, factor: Array) -> Value:
    """The weight with each output channel multiplied by its factor."""
    wide = _wide(w)
    if isinstance(linear, ConvTranspose):
        # Input channels of all groups run along axis 0, one group's output channels along axis 1.
        inputs, outputs, *kernel = wide.shape
        apart = wide.reshape(linear.group, inputs // linear.group, outputs, *kernel)
        scaled = apart * factor.reshape(linear.group, 1, outputs, *(1 for _ in kernel))
        return _constant(op, scaled.reshape(wide.shape), w)
    axis = 1 if isinstance(linear, Gemm) and not linear.transB else 0
    shape = tuple(-1 if i == axis else 1 for i in range(wide.ndim))
    return _constant(op, np.multiply(wide, factor.reshape(shape), out=empty(wide.shape, wide.dtype)), w)
