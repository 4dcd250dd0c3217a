"""int8 without calibration data: weights alone, or activations by the range that each has while the model runs."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from aicore.ir import Builder, Graph, Node, Origin, Value, constant_value
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.quantization import DequantizeLinear
from aicore.ops.quantized_linear import MOST_TERMS
from aicore.ops.recurrent import GRU, LSTM, RNN
from aicore.passes import Pass
from aicore.rewrite import Context
from aicore_int8_quant.affine import QParams
from aicore_int8_quant.linear_nodes import channel_axis, node_names
from aicore_int8_quant.passes.weights import weight_params


@dataclass(frozen=True)
class QuantizeDynamic(Pass):
    """Products with constant weights take codes of their operand, by its range in each run; LSTM weights become codes.

    MatMul and Gemm become DynamicQuantizeLinear, MatMulInteger and the scaling behind it, all of them standard ONNX.
    ONNX has no recurrent operator on integers: the weights of an LSTM, GRU or RNN are kept as int8 and dequantised.
    exclude: names of nodes that stay as they are; patterns as of file names.
    """

    name: ClassVar[str] = "quantize-dynamic-int8"
    exclude: tuple[str, ...] = ()

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        return _rewritten(self, graph, ctx, self.exclude, _dynamic)


@dataclass(frozen=True)
class QuantizeWeightsOnly(Pass):
    """Weights of products, convolutions and recurrent layers become int8 codes behind a DequantizeLinear.

    exclude: names of nodes that stay as they are; patterns as of file names.
    """

    name: ClassVar[str] = "quantize-weights-only-int8"
    exclude: tuple[str, ...] = ()

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        return _rewritten(self, graph, ctx, self.exclude, _weights_only)


def _rewritten(
    one: Pass, graph: Graph, ctx: Context, exclude: tuple[str, ...], rewrite: Callable[[Node, Builder], Any]
) -> Graph:
    nodes: list[Node] = []
    for node in graph.nodes:
        excluded = any(fnmatch.fnmatchcase(name, pattern) for name in node_names(node) for pattern in exclude)
        builder = Builder(Origin(parts=(node.origin,), rule=one.name, match=ctx.matches))
        if excluded or not rewrite(node, builder) or not ctx.change(one.name):
            nodes.append(node)
            continue
        *before, last = builder.nodes
        nodes += [*before, Node(last.op, last.inputs, node.outputs, last.origin)]
    return Graph(graph.inputs, graph.outputs, tuple(nodes), graph.state, graph.metadata)


def _dynamic(node: Node, op: Builder) -> bool:
    """Whether the node was built anew, its results by the last node."""
    if isinstance(node.op, LSTM | GRU | RNN):
        return _weights_only(node, op)
    weight = _float_weight(node)
    if weight is None or not isinstance(node.op, MatMul | Gemm) or weight.ndim != 2:
        return False
    x, bias = node.inputs[0], (*node.inputs, None)[2]
    if isinstance(node.op, Gemm):
        if node.op.transA or node.op.alpha != 1 or (node.op.beta != 1 and bias is not None):
            return False
        weight = weight.T if node.op.transB else weight
    if x is None or (x.rank or 0) < 2 or weight.shape[0] > MOST_TERMS:
        return False
    params = weight_params(weight, 1)
    codes, scale, zero_point = op.DynamicQuantizeLinear(x)
    sums = op.MatMulInteger(codes, constant_value(np.ascontiguousarray(params.quantize(weight)), "codes"), zero_point)
    scales = op.Mul(scale, constant_value(params.scale, "scales"))
    real = op.Mul(op.Cast(sums, to="float32"), scales)
    if bias is not None:
        op.Add(real, bias)
    return True


def _weights_only(node: Node, op: Builder) -> bool:
    operands = list(node.inputs)
    if isinstance(node.op, LSTM | GRU | RNN):
        wanted = {1: 1, 2: 1}  # (directions, gates * hidden, inputs): a scale for each row of a gate
    else:
        weight = _float_weight(node)
        if weight is None:
            return False
        wanted = {1: channel_axis(node.op, weight.ndim)}
    for index, axis in wanted.items():
        value = operands[index]
        if value is None or not _has_codes(value):
            return False
        operands[index] = _dequantized(op, value, axis)
    op.apply(node.op, *operands)
    return True


def _float_weight(node: Node) -> np.ndarray[Any, Any] | None:
    if not isinstance(node.op, MatMul | Gemm | Conv | ConvTranspose) or len(node.inputs) < 2:
        return None
    value = node.inputs[1]
    if value is None or value.constant is None or value.constant.array.ndim < 2 or not _has_codes(value):
        return None
    return value.constant.array


def _has_codes(weight: Value) -> bool:
    """Whether it is a constant of finite float32 numbers."""
    return weight.constant is not None and weight.dtype == "float32" and bool(np.isfinite(weight.constant.array).all())


def _dequantized(op: Builder, value: Value, axis: int) -> Value:
    assert value.constant is not None  # the caller saw to it
    params: QParams = weight_params(value.constant.array, axis)
    codes = constant_value(params.quantize(value.constant.array), f"{value.name}_codes")
    scale, points = constant_value(params.scale, "scale"), constant_value(params.zero_point, "zero_point")
    found: Value = op.apply(DequantizeLinear(axis=axis), codes, scale, points, names=[value.name])
    return found
