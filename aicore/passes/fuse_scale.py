"""Scale, shift and bounds per channel join the convolution that follows them."""

from __future__ import annotations

from typing import Any, ClassVar

from aicore.ir import Value
from aicore.ops.activation import Clip, Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ScaleActConv
from aicore.ops.layout import ChannelsLast
from aicore.passes.base import RulePass
from aicore.records import dataclass
from aicore.rewrite import NoMatch, Rule, require, rule


@rule(
    lambda op, x, scale, shift, w, activation, last, b=None: op.apply(
        last, op.apply(activation, op.Add(op.Mul(x, scale), shift)), w, b
    )
)
def scale_into_convolution(
    op: Any,
    activation: Relu | Clip,
    last: ChannelsLast,
    x: Value,
    scale: Value,
    shift: Value,
    w: Value,
    b: Value | None,
) -> Value:
    """conv(activation(x * scale + shift), w, b) -> ScaleActConv(x, scale, shift, w, b), with channels last"""
    inner = last.inner
    if not isinstance(inner, Conv | ConvAct):
        raise NoMatch(f"{type(inner).__name__} does not take it")
    fused = ChannelsLast(ScaleActConv(activation, inner), last.rank)
    operands = x, _per_channel(op, scale, x), _per_channel(op, shift, x), w, b
    reason = op.supports(fused, *operands)
    require(reason is None, f"no kernel for ScaleActConv: {reason}", kind="kernel")
    found: Value = op.apply(fused, *operands)
    return found


@dataclass(frozen=True)
class FuseScale(RulePass):
    """What is left of a BatchNormalization in front of a convolution, where the target has a kernel for both.

    Such kernels take channels last, so it looks for nothing else: where images stay in the order of ONNX, a Region
    computes the scaling.
    """

    name: ClassVar[str] = "fuse-scale"
    phase: ClassVar[str] = "fuse"
    after: ClassVar[tuple[str, ...]] = ("place-channels-last",)
    before: ClassVar[tuple[str, ...]] = ("fuse-pointwise",)
    rules: ClassVar[tuple[Rule, ...]] = (scale_into_convolution,)


def _per_channel(op: Any, c: Value, x: Value) -> Value:
    """The constant as (C, 1, ...), which is how it stands beside an image in the order of ONNX."""
    if c.constant is None:
        raise NoMatch(f"the other operand is not constant ({c})")
    array, shape = c.constant.array, x.shape or ()
    one_per_channel = array.shape[-1:] == shape[-1:] and array.size == array.shape[-1]
    require(one_per_channel, "the other operand is not one number per channel", c)
    found: Value = op.constant(array.reshape(-1, *(1,) * (len(shape) - 2)), c.name)
    return found
