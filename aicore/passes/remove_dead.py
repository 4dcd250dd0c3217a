"""Nodes whose results nobody reads."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from aicore.ir import Graph, Value
from aicore.passes.base import Pass
from aicore.records import dataclass
from aicore.rewrite import Context


@dataclass(frozen=True)
class RemoveDead(Pass):
    """Drops every node that no output depends on."""

    name: ClassVar[str] = "remove-dead"
    phase: ClassVar[str] = "clean"

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        return without_dead(graph, ctx)


def without_dead(graph: Graph, ctx: Context) -> Graph:
    """The graph without nodes that no output depends on; itself when there are none."""
    needed: set[Value | None] = {value for _, value in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if any(value in needed for value in node.outputs) or not ctx.change():
            kept.append(node)
            needed.update(node.inputs)
    if len(kept) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)))
