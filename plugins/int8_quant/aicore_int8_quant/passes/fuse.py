"""Quantised models on int8 kernels: QDQ graphs, QLinear nodes and integer products with a scale behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from aicore.ir import Builder, Graph, Node, Op, Origin, Value, as_tuple, constant_value
from aicore.ops.movement import Concat
from aicore.ops.quantization import DequantizeLinear, QuantizeLinear
from aicore.passes import Pass
from aicore.passes.recognise_functions import RecogniseFunctions
from aicore.rewrite import Context
from aicore_int8_quant.passes._codes import EIGHT_BITS, CodeReader, Codes
from aicore_int8_quant.passes._lookups import lookup
from aicore_int8_quant.passes._products import Product, grown, started, weight_only
from aicore_int8_quant.passes._race import Entrant, entrant, losers
from aicore_int8_quant.passes.annotate import PASSING

EVERYWHERE = "fuse-int8.race=false"
"""`choices` of a compilation that takes int8 also where floating point is faster: the same bits on every device."""


@dataclass(frozen=True)
class FuseInt8(Pass):
    """One walk over the graph, before constants are folded, which would make floats of the weights again.

    - a Conv, Gemm or MatMul of dequantised operands becomes Int8Conv or Int8MatMul, and grows by the bias, residual,
      activation and QuantizeLinear that follow it; so does a QLinearConv, a QLinearMatMul, and a MatMulInteger that is
      scaled;
    - what only moves numbers moves codes, with the DequantizeLinear behind it;
    - functions of one tensor between DequantizeLinear and QuantizeLinear become a table;
    - QuantizeLinear of DequantizeLinear with the same scale and zero point is nothing;
    - a MatMul with a weight of integers alone becomes WeightOnlyMatMul.

    Only what the target has a kernel for, and no Conv, Gemm or MatMul that is faster in floating point, with its tail
    and all conversions: as measured, else as estimated. The rest stays as it is, and runs in floating point.

    race: False takes int8 also where it is slower.
    """

    name: ClassVar[str] = "fuse-int8"
    phase: ClassVar[str] = "simplify"
    before: ClassVar[tuple[str, ...]] = ("fold-constants",)
    race: bool = True

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        if not any(is_quantized(node) for node in graph.nodes):
            return graph
        known = RecogniseFunctions().apply(graph, ctx)
        return _Walk(self.name, known, ctx, self._left_in_floats(known, ctx)).run()

    def _left_in_floats(self, graph: Graph, ctx: Context) -> frozenset[Value]:
        """Results of products that are faster so. A first walk tells what each product would take in."""
        if not self.race or not ctx.device:
            return frozenset()
        trial = _Walk(self.name, graph, ctx.anew())
        trial.run()
        return losers(trial.entrants(), ctx)


def is_quantized(node: Node) -> bool:
    """Whether the node makes or takes 8-bit integers."""
    return any(value is not None and value.dtype in EIGHT_BITS for value in (*node.inputs, *node.outputs))


class _Walk:
    """The new graph so far. What is replaced stays among the nodes until the end, and goes when nothing needs it."""

    def __init__(self, name: str, graph: Graph, ctx: Context, floats: frozenset[Value] = frozenset()) -> None:
        self._name, self._graph, self._ctx, self._floats = name, graph, ctx, floats
        self._last: dict[Node, Product] = {}
        self._producer: dict[Value, Node] = {}
        self._reader = CodeReader(self._producer, ctx.evaluate)
        self._instead: dict[Value | None, Value] = {}
        self._nodes: list[Node] = []
        self._products: dict[Value | None, Product] = {}
        self._order: dict[Value | None, int] = {}
        self._uses = Counter(value for node in graph.nodes for value in node.inputs if value is not None)
        self._uses.update(value for _, value in graph.outputs)

    def run(self) -> Graph:
        for node in self._graph.nodes:
            current = self._current(node)
            if not self._visit(current):
                self._append([current])
        outputs = tuple((name, self._instead.get(value, value)) for name, value in self._graph.outputs)
        nodes = _alive(self._nodes, (value for _, value in outputs))
        return replace(self._graph, nodes=nodes, outputs=outputs)

    def entrants(self) -> list[Entrant]:
        """Each product of the walk as far as it grew, with the other way to compute it."""
        found = [entrant(product, self._reader) for product in self._last.values()]
        return [one for one in found if one is not None]

    def _current(self, node: Node) -> Node:
        if not any(value in self._instead for value in node.inputs):
            return node
        inputs = tuple(None if value is None else self._instead.get(value, value) for value in node.inputs)
        return Node(node.op, inputs, node.outputs, node.origin)

    def _visit(self, node: Node) -> bool:
        """Whether something else was put in the place of the node."""
        if type(node.op) in PASSING or isinstance(node.op, Concat):
            return self._pass_codes(node)
        if isinstance(node.op, QuantizeLinear) and (self._cancel(node) or self._look_up(node)):
            return True
        return self._grow(node) or self._start(node) or self._keep_weight(node)

    def _cancel(self, node: Node) -> bool:
        """QuantizeLinear(DequantizeLinear(codes)) with the same numbers -> codes"""
        target, source = self._reader.target(node), self._reader.of(node.inputs[0])
        if target is None or source is None or not source.same_scale(target) or not self._ctx.change(self._name):
            return False
        self._instead[node.outputs[0]] = source.values
        return True

    def _look_up(self, node: Node) -> bool:
        """QuantizeLinear(f(DequantizeLinear(codes))) -> Int8Lookup(codes, table)"""
        found = lookup(node, self._reader, self._producer, self._uses, self._ctx)
        return found is not None and self._put(node, *found)

    def _grow(self, node: Node) -> bool:
        """A product takes in the node that alone reads it; of two, the later one, so that the other is there."""
        candidates = [v for v in node.inputs if v is not None and v in self._products and self._uses[v] == 1]
        for value in sorted(candidates, key=self._order.__getitem__, reverse=True):
            product = self._products[value]
            larger = grown(product, node, value, self._reader)
            if larger is not None:
                return self._set(node, larger)
        return False

    def _start(self, node: Node) -> bool:
        found = started(node, self._reader, self._producer, self._uses)
        if found is None or node.outputs[0] in self._floats:
            return False
        return self._set(node, found)

    def _keep_weight(self, node: Node) -> bool:
        found = weight_only(node, self._reader)
        return found is not None and self._put(node, *found)

    def _set(self, node: Node, product: Product) -> bool:
        """Put the product in the node's place; one that the target lacks waits for what may follow."""
        if self._put(node, product.op, product.operands.all()):
            self._last[product.members[0][0]] = product
            self._remember(self._instead[node.outputs[0]], product)
            return True
        self._remember(node.outputs[0], product)
        return False

    def _remember(self, value: Value, product: Product) -> None:
        self._order[value] = len(self._order)
        self._products[value] = product

    def _pass_codes(self, node: Node) -> bool:
        """op(DequantizeLinear(codes)) -> DequantizeLinear(op(codes))"""
        count = len(node.inputs) if isinstance(node.op, Concat) else 1
        sources = [self._reader.of(value) for value in node.inputs[:count]]
        first = sources[0] if sources else None
        if first is None or not first.is_single or first.values.constant is not None:
            return False
        if not all(source is not None and source.same_scale(first) for source in sources):
            return False
        operands = (*(source.values for source in sources if source), *node.inputs[count:])
        if not self._is_supported(node.op, operands) or not self._ctx.change(self._name):
            return False
        builder = self._builder(node)
        names = [f"{value.name}_codes" for value in node.outputs]
        results = as_tuple(builder.apply(node.op, *operands, names=names))
        for old, new in zip(node.outputs, results, strict=True):
            real = new if old.dtype != "float32" else _real(builder, first.with_values(new), old.name)
            self._replace(old, real)
        self._append(builder.nodes)
        return True

    def _put(self, node: Node, op: Op, operands: Sequence[Value | None]) -> bool:
        """Replace the node's result by that of another op, if the target has a kernel for it."""
        if not self._is_supported(op, operands) or not self._ctx.change(self._name):
            return False
        grown_from = [self._producer[v] for v in node.inputs if v is not None and v in self._products]
        builder = self._builder(node, *grown_from)
        new = builder.apply(op, *operands, names=[node.outputs[0].name])
        self._append(builder.nodes)
        self._replace(node.outputs[0], new)
        return True

    def _replace(self, old: Value, new: Value) -> None:
        self._instead[old] = new
        self._uses[new] = self._uses[old]

    def _is_supported(self, op: Op, operands: Iterable[Value | None]) -> bool:
        return self._ctx.supports(op, *(value and value.type for value in operands)) is None

    def _builder(self, *nodes: Node) -> Builder:
        parts = tuple(node.origin for node in nodes)
        return Builder(Origin(parts=parts, rule=self._name, match=self._ctx.matches - 1))

    def _append(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._nodes.append(node)
            self._producer.update(dict.fromkeys(node.outputs, node))


def _real(builder: Builder, codes: Codes, name: str) -> Value:
    scale = constant_value(codes.scale, "scale")
    points = constant_value(codes.points, "zero_point")
    found: Value = builder.apply(DequantizeLinear(), codes.values, scale, points, names=[name])
    return found


def _alive(nodes: list[Node], outputs: Iterable[Value]) -> tuple[Node, ...]:
    """The nodes that an output needs; those that are impure stay."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.isdisjoint(node.outputs) and node.op.pure:
            continue
        kept.append(node)
        wanted.update(value for value in node.inputs if value is not None)
    return tuple(kept[::-1])
