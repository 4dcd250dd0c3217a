"""Branches in a model: which of two layers runs is decided by a value, in each run anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aicore.ir import Builder, Graph, Node, Value
from aicore.nn._config import config
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import require
from aicore.nn.scope import Scope
from aicore.ops.control import If


@config
class Conditional(Layer):
    """`then` on x where the condition is true, else `otherwise`; only the one that is taken is computed.

    Inputs: the condition, one bool or number (0 is false), then x and whatever else both layers take. Both give one
    output, of one type. Gradients reach the parameters of the branch that ran; those of the other are 0.
    Raises ConfigError for layers with state of their own, such as BatchNormalization: in training, it would have to be
    updated in one branch alone; and for those that add to the loss.
    """

    then: Layer
    otherwise: Layer
    name: str = ""

    def check(self) -> None:
        for what, layer in (("then", self.then), ("otherwise", self.otherwise)):
            require(isinstance(layer, Layer), f"{what} is {layer!r}, wants a layer")

    def build(self, scope: Scope, condition: Value, *values: Value) -> Any:
        op = scope.op
        one = condition.type.size == 1 if condition.shape is not None else False
        require(one, f"the condition is {condition.type}, wants one element")
        chosen = op.Reshape(condition, shape=()) if condition.rank else condition
        chosen = chosen if chosen.dtype == "bool" else op.Cast(chosen, to="bool")
        branches = [self._branch(scope, layer, values) for layer in (self.then, self.otherwise)]
        types = [branch.type for _, branch in branches]
        require(types[0].agrees(types[1]), f"`then` gives {types[0]} and `otherwise` {types[1]}; they must be equal")
        captured = _captured([(nodes, [result]) for nodes, result in branches])
        graphs = [_closed(nodes, result, captured) for nodes, result in branches]
        return op.apply(If(*graphs), chosen, *captured)

    def _branch(self, scope: Scope, layer: Layer, values: Sequence[Value]) -> tuple[list[Node], Value]:
        """The layer's nodes by themselves, and its output."""
        outer, updates, penalties, rows = scope.op, len(scope.updates), len(scope.penalties), len(scope.rows)
        scope.op = Builder(outer.origin)
        try:
            result = scope.call(layer, *values)
        finally:
            inner, scope.op = scope.op, outer
            del scope.rows[rows:]  # the branch may not run
        require(isinstance(result, Value), f"{type(layer).__name__} gives several outputs, wants one")
        require(len(scope.updates) == updates, f"{type(layer).__name__} updates state, which a branch cannot")
        require(len(scope.penalties) == penalties, f"{type(layer).__name__} adds to the loss, which a branch cannot")
        return inner.nodes, result


def _captured(branches: Sequence[tuple[Sequence[Node], Sequence[Value]]]) -> list[Value]:
    """What the branches use from outside, each once, in order of first use."""
    made = {value for nodes, _ in branches for node in nodes for value in node.outputs}
    found: dict[Value, None] = {}
    for nodes, results in branches:
        used = [value for node in nodes for value in node.inputs if value is not None]
        for value in (*used, *results):
            if value not in made and value.constant is None:
                found[value] = None
    return list(found)


def _closed(nodes: Sequence[Node], result: Value, captured: Sequence[Value]) -> Graph:
    """A graph of the nodes, with inputs of its own for what they use from outside."""
    inside: dict[Value | None, Value] = {value: Value(value.name, value.type, None, value.dims) for value in captured}
    op = Builder()
    op.nodes = [replace(node, inputs=tuple(inside.get(value, value) for value in node.inputs)) for node in nodes]
    return op.graph([inside[value] for value in captured], {"y": inside.get(result, result)})
