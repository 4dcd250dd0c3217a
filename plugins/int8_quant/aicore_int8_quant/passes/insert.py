"""Writes the result as standard ONNX: QuantizeLinear and DequantizeLinear around every tensor that has codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aicore.ir import Builder, Graph, Node, Origin, Value, constant_value
from aicore.ops.quantization import DequantizeLinear, QuantizeLinear
from aicore.rewrite import Context
from aicore_int8_quant.affine import QParams
from aicore_int8_quant.job import QuantizedWeight
from aicore_int8_quant.linear_nodes import LinearNode
from aicore_int8_quant.passes.base import JobPass
from aicore_int8_quant.passes.split import coded_values, rest_params, split_nodes


@dataclass(frozen=True, eq=False)
class InsertQdq(JobPass):
    """Each tensor with codes is quantised once, where it is made, and everything but the graph's outputs reads that.

    Weights and biases become integer constants behind a DequantizeLinear. A tensor that no quantised node reads in the
    end, because these were kept in floating point, is left alone. A product with two codes for each number of its
    operand becomes two.
    """

    name: ClassVar[str] = "insert-qdq-int8"

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        return _Insertion(self, ctx).run(graph)


class _Insertion:
    def __init__(self, insert: InsertQdq, ctx: Context) -> None:
        self._job, self._ctx, self._name = insert.job, ctx, insert.name
        self._linear = {one.node: one for one in self._job.linear if one.node not in self._job.kept}
        self._biased = {
            node: one for one in self._linear.values() for node in one.nodes[1:] if one.bias and one.bias in node.inputs
        }
        self._instead: dict[Value | None, Value] = {}
        self._terms: dict[Value, tuple[Value, Value]] = {}
        self._nodes: list[Node] = []

    def run(self, graph: Graph) -> Graph:
        self._split = split_nodes(graph, self._job)
        self._used = coded_values(graph, self._job, self._split)
        for value in graph.inputs:
            self._round_trip(value)
        for node in graph.nodes:
            self._nodes.append(self._rewired(node))
            for value in node.outputs:
                self._round_trip(value)
        return Graph(graph.inputs, graph.outputs, tuple(self._nodes), graph.state, graph.metadata)

    def _round_trip(self, value: Value) -> None:
        if value in self._used and self._ctx.change(self._name):
            self._instead[value] = self._coded(value, self._job.params[value], value.name)

    def _coded(self, value: Value, params: QParams, name: str) -> Value:
        builder = self._builder()
        scale, zero_point = _constants(params)
        codes = builder.apply(_quantize(params), value, scale, zero_point, names=[f"{name}_codes"])
        real = builder.apply(_dequantize(params), codes, scale, zero_point, names=[f"{name}_dequantized"])
        self._nodes.extend(builder.nodes)
        return real  # type: ignore[no-any-return]

    def _rewired(self, node: Node) -> Node:
        inputs: list[Value | None] = [self._instead.get(value, value) if value else None for value in node.inputs]
        one = self._linear.get(node)
        weight = None if one is None else self._job.weights.get(node)
        if one is not None and weight is not None:
            inputs[1] = self._weight(one, weight)
            if one.bias in node.inputs:
                inputs[2] = self._bias(one, weight)
        if node in self._biased:
            owner = self._biased[node]
            bias = self._bias(owner, self._job.weights.get(owner.node))
            inputs = [bias if value is owner.bias else self._instead.get(value, value) for value in node.inputs]
        if node in self._split and self._ctx.change(self._name):
            return self._product_of_two(node, inputs)
        return Node(node.op, tuple(inputs), node.outputs, node.origin)

    def _product_of_two(self, node: Node, inputs: list[Value | None]) -> Node:
        """The product of the second codes, then that of the first ones, which a kernel adds it to."""
        assert inputs[0] is not None  # a product has operands
        first, rest = self._terms_of(inputs[0])
        builder = self._builder()
        small = builder.apply(node.op, rest, inputs[1])
        builder.Add(builder.apply(node.op, first, *inputs[1:], origin=node.origin), small)
        *products, last = builder.nodes
        self._nodes.extend(products)
        return Node(last.op, last.inputs, node.outputs, last.origin)

    def _terms_of(self, value: Value) -> tuple[Value, Value]:
        """What the first and the second code of a tensor stand for; made once for all that read it."""
        if value not in self._terms:
            params = self._job.params[value]
            first = self._coded(value, params, value.name)
            builder = self._builder()
            left = builder.Sub(value, first)
            self._nodes.extend(builder.nodes)
            self._terms[value] = first, self._coded(left, rest_params(params), f"{value.name}_rest")
        return self._terms[value]

    def _weight(self, one: LinearNode, weight: QuantizedWeight) -> Value:
        builder = self._builder()
        codes = constant_value(weight.codes, f"{one.w.name}_codes")
        real = builder.apply(_dequantize(weight.params), codes, *_constants(weight.params), names=[one.w.name])
        self._nodes.extend(builder.nodes)
        return real  # type: ignore[no-any-return]

    def _bias(self, one: LinearNode, weight: QuantizedWeight | None) -> Value | None:
        if weight is None or weight.bias is None or weight.bias_params is None or one.bias is None:
            return one.bias
        builder = self._builder()
        codes = constant_value(weight.bias, f"{one.bias.name}_codes")
        scale = constant_value(weight.bias_params.scale, "bias_scale")
        real = builder.apply(_dequantize(weight.bias_params), codes, scale, names=[one.bias.name])
        self._nodes.extend(builder.nodes)
        return real  # type: ignore[no-any-return]

    def _builder(self) -> Builder:
        return Builder(Origin(rule=self._name, match=max(self._ctx.matches - 1, 0)))


def _constants(params: QParams) -> tuple[Value, Value]:
    return constant_value(params.scale, "scale"), constant_value(params.zero_point, "zero_point")


def _quantize(params: QParams) -> QuantizeLinear:
    return QuantizeLinear() if params.axis is None else QuantizeLinear(axis=params.axis)


def _dequantize(params: QParams) -> DequantizeLinear:
    return DequantizeLinear() if params.axis is None else DequantizeLinear(axis=params.axis)
