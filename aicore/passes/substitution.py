"""Putting values in the place of others while walking a graph in order."""

from __future__ import annotations

from dataclasses import replace

from aicore.ir import Graph, Node, Value


class Substitution:
    """Old value -> the value to use instead. Walk nodes in order, so that replacements are themselves up to date."""

    def __init__(self) -> None:
        self._instead: dict[Value | None, Value] = {}

    def __bool__(self) -> bool:
        return bool(self._instead)

    def put(self, old: Value, new: Value) -> None:
        self._instead[old] = self._instead.get(new, new)

    def node(self, node: Node) -> Node:
        """The node with its operands replaced; itself when none is."""
        if not self._instead or not any(value in self._instead for value in node.inputs):
            return node
        return replace(node, inputs=tuple(self._instead.get(value, value) for value in node.inputs))

    def graph(self, graph: Graph, nodes: list[Node]) -> Graph:
        """The graph with these nodes, and outputs replaced."""
        outputs = tuple((name, self._instead.get(value, value)) for name, value in graph.outputs)
        return replace(graph, nodes=tuple(nodes), outputs=outputs)
