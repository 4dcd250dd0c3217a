"""Fused ops that the target has no kernel for become the ops that they stand for."""

from __future__ import annotations

from typing import ClassVar

from aicore.ir import Graph, Node, Origin, decomposed, is_fused
from aicore.passes.base import Pass
from aicore.passes.substitution import Substitution
from aicore.records import dataclass
from aicore.rewrite import Context


@dataclass(frozen=True)
class DecomposeUnsupported(Pass):
    """Takes apart what the target lacks, and the parts again, until the target has kernels or there are no parts."""

    name: ClassVar[str] = "decompose-unsupported"
    phase: ClassVar[str] = "lower"
    required: ClassVar[bool] = True

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        if not any(_is_lacking(node, ctx) for node in graph.nodes):
            return graph
        replaced = Substitution()
        kept: list[Node] = []
        todo = list(reversed(graph.nodes))
        while todo:
            node = replaced.node(todo.pop())
            if not _is_lacking(node, ctx) or not ctx.change(self.name):
                kept.append(node)
            else:
                todo.extend(reversed(self._parts(node, replaced, ctx)))
        return replaced.graph(graph, kept)

    def _parts(self, node: Node, replaced: Substitution, ctx: Context) -> list[Node]:
        """The nodes that the op stands for, the last ones bound to its outputs."""
        origin = Origin(parts=(node.origin,), rule=self.name, match=ctx.matches - 1)
        nodes, equal = decomposed(node, origin)
        for output, value in equal.items():
            replaced.put(output, value)
        return nodes


def _is_lacking(node: Node, ctx: Context) -> bool:
    if not is_fused(node.op):
        return False
    return ctx.supports(node.op, *(value and value.type for value in node.inputs)) is not None
