"""Nodes whose results nobody reads."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from aicore.ir import Graph, needed_nodes
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
    kept = needed_nodes(graph.nodes, [value for _, value in graph.outputs], ctx.change)
    return graph if len(kept) == len(graph.nodes) else replace(graph, nodes=kept)
