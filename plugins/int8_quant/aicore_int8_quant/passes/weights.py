"""Weights and biases as integers, and whether the sums of their products fit in 32 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aicore.ir import Graph
from aicore.ops.quantized_linear import MOST_TERMS
from aicore.rewrite import Context
from aicore_int8_quant.affine import Array, QParams, qparams_of, weight_format
from aicore_int8_quant.job import QuantizedWeight
from aicore_int8_quant.linear_nodes import LinearNode, channel_axis
from aicore_int8_quant.passes.base import JobPass
from aicore_int8_quant.passes.correction import correction
from aicore_int8_quant.specs import bias_params

INT32 = 2**31 - 1
"""The largest sum."""
MOST_WIDENING = 16.0
"""A weight scale that would have to grow by more keeps too few codes: the bias stays in floating point instead."""


@dataclass(frozen=True, eq=False)
class QuantizeWeights(JobPass):
    """Finds the codes of each weight, symmetric, for each output channel or for the whole tensor."""

    name: ClassVar[str] = "quantize-weights-int8"

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        for one in self.job.linear:
            if one.w.constant is None:
                continue
            weight = one.w.constant.array
            if not np.isfinite(weight).all():
                self.job.keep(one.node, "its weight is not finite")
                continue
            axis = channel_axis(one.node.op, weight.ndim) if self.job.options.per_channel else None
            params = weight_params(weight, axis)
            self.job.weights[one.node] = QuantizedWeight(params.quantize(weight), params)
        return graph


@dataclass(frozen=True, eq=False)
class CheckBiases(JobPass):
    """Gives each bias its int32 codes, and makes sure that bias and products together stay within 32 bits.

    A bias that is too large for the scale x_scale * w_scale makes its channel's weight scale wider; if that would cost
    the weight too much, or there is one scale for all channels, the bias stays in floating point. Products whose sums
    may not fit keep the node in floating point. Each case is reported.
    """

    name: ClassVar[str] = "check-biases-int8"

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        for one in self.job.linear:
            if one.node not in self.job.kept:
                self._check(one)
        return graph

    def _check(self, one: LinearNode) -> None:
        job, node = self.job, one.node
        weight = job.weights.get(node)
        terms = _terms(one)
        if terms is not None and terms > MOST_TERMS:
            job.keep(node, f"sums {terms} products; more than {MOST_TERMS} may not fit in 32 bits")
            return
        if weight is None:
            return
        x_params, room = job.params[one.x], INT32 - largest_sums(weight, job.params[one.x], one)
        if (room < 0).any():
            job.keep(node, f"sums of {terms} products may reach {INT32 - int(room.min())}, beyond 32 bits")
            return
        if one.bias is None or one.bias.constant is None:
            return
        bias = one.bias.constant.array.reshape(-1).astype(np.float64) + correction(one, weight, job)
        job.weights[node] = self._with_bias(one, weight, x_params, bias, room)

    def _with_bias(
        self, one: LinearNode, weight: QuantizedWeight, x_params: QParams, bias: Array, room: Array
    ) -> QuantizedWeight:
        params = bias_params(x_params, weight.params)
        codes = np.rint(bias / params.scale.astype(np.float64))
        too_large = ~(np.abs(codes) <= room)  # infinite where the scale is 0 in float32
        if not too_large.any():
            return QuantizedWeight(weight.codes, weight.params, codes.astype(np.int32), params)
        widened = self._widened(one, weight, x_params, bias, too_large)
        if widened is not None:
            self.job.note(one.node, f"wider weight scale for {int(too_large.sum())} channels, whose bias is large")
            return widened
        self.job.note(one.node, "its bias does not fit in int32 and stays in floating point")
        return QuantizedWeight(weight.codes, weight.params)

    def _widened(
        self, one: LinearNode, weight: QuantizedWeight, x_params: QParams, bias: Array, too_large: Array
    ) -> QuantizedWeight | None:
        """With larger weight scales for some channels; None where that costs too much."""
        assert one.w.constant is not None  # it has codes
        if weight.params.axis is None:
            return None
        room = INT32 - largest_sums(weight, x_params, one)
        wanted = np.abs(bias) / (0.5 * np.maximum(room, 1)) / float(x_params.scale)
        old = weight.params.scale.astype(np.float64)
        scale = np.where(too_large, np.maximum(wanted, old), old).astype(np.float32)
        if (scale > MOST_WIDENING * old).any() and not self._is_idle(weight, too_large & (scale > MOST_WIDENING * old)):
            return None
        params = QParams(scale, weight.params.zero_point, weight.params.axis)
        codes = params.quantize(one.w.constant.array)
        wide = QuantizedWeight(codes, params)
        derived = bias_params(x_params, params)
        biases = np.rint(bias / derived.scale.astype(np.float64))
        fits = np.abs(biases) <= INT32 - largest_sums(wide, x_params, one)
        return QuantizedWeight(codes, params, biases.astype(np.int32), derived) if fits.all() else None

    def _is_idle(self, weight: QuantizedWeight, channels: Array) -> bool:
        """Whether the weights of these channels are 0 throughout, so that no scale is too wide for them."""
        assert weight.params.axis is not None  # the caller saw to it
        return not np.moveaxis(weight.codes, weight.params.axis, 0)[channels].any()


def weight_params(weight: Array, axis: int | None) -> QParams:
    """Symmetric scales of a weight, by its largest magnitudes."""
    others = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    low = np.asarray(weight.min(axis=others, initial=0)).astype(np.float64)
    high = np.asarray(weight.max(axis=others, initial=0)).astype(np.float64)
    return qparams_of(low, high, weight_format(axis))


def largest_sums(weight: QuantizedWeight, x_params: QParams, one: LinearNode) -> Array:
    """The largest magnitude that a sum of products can have in each output channel, whatever codes x has. int64."""
    limits, zero_point = np.iinfo(x_params.zero_point.dtype), int(x_params.zero_point)
    most = max(limits.max - zero_point, zero_point - limits.min)
    codes = np.abs(weight.codes.astype(np.int64))
    axis = channel_axis(one.node.op, codes.ndim)
    if codes.ndim > 2 and axis == codes.ndim - 1:  # a batch of weights: sums run along the axis before the last
        sums = codes.sum(-2).reshape(-1, codes.shape[-1]).max(0)
    else:
        sums = np.moveaxis(codes, axis, 0).reshape(codes.shape[axis], -1).sum(1)
    found: Array = sums * most
    return found


def _terms(one: LinearNode) -> int | None:
    """Products in one sum, where it is known."""
    if one.w.constant is None:
        last = one.x.shape[-1] if one.x.shape else None
        return last if isinstance(last, int) else None
    shape = one.w.constant.array.shape
    axis = channel_axis(one.node.op, len(shape))
    return shape[-2] if axis == len(shape) - 1 else int(np.prod(shape[:axis] + shape[axis + 1 :]))
