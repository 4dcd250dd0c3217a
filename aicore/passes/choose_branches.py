"""An If whose condition is known gives way to the nodes of the branch that it takes."""

from __future__ import annotations

from typing import ClassVar

from aicore.ir import Builder, Graph, Node, Value, retype
from aicore.ops.control import If
from aicore.passes.base import Pass
from aicore.passes.fold_constants import FoldConstants
from aicore.passes.fold_shapes import FoldShapes
from aicore.passes.substitution import Substitution
from aicore.records import dataclass
from aicore.rewrite import Context

_ROUND_LIMIT = 64


@dataclass(frozen=True)
class ChooseBranches(Pass):
    """Exporters ask for sizes at run time: whether a dim is 1 decides whether it is squeezed. Known sizes answer that.

    What a branch makes known may decide the next If, so that types are inferred and constants folded between rounds.
    """

    name: ClassVar[str] = "choose-branches"
    after: ClassVar[tuple[str, ...]] = ("fold-constants", "fold-shapes")

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        if not _has_branches(graph):
            return graph
        for _ in range(_ROUND_LIMIT):
            graph = FoldConstants().apply(FoldShapes().apply(graph, ctx), ctx)
            chosen = _chosen(graph, ctx)
            if chosen is graph:
                break
            graph = retype(chosen, [value.type for value in chosen.inputs])
        return graph


def _has_branches(graph: Graph) -> bool:
    return any(isinstance(node.op, If) for node in graph.nodes)


def _chosen(graph: Graph, ctx: Context) -> Graph:
    """The graph with each If that is decided replaced by its branch; those inside a branch wait for the next round."""
    instead = Substitution()
    kept: list[Node] = []
    for node in graph.nodes:
        node = instead.node(node)
        branch = _taken(node)
        if branch is None or not ctx.change():
            kept.append(node)
            continue
        nodes, results = _copied(branch, node.inputs[1:])
        kept += nodes
        for old, new in zip(node.outputs, results, strict=True):
            instead.put(old, new)
    return instead.graph(graph, kept) if instead else graph


def _taken(node: Node) -> Graph | None:
    """The branch that runs, where that is known; None if it cannot run on what it captures, which the run will say."""
    condition = node.inputs[0] if node.inputs else None
    if not isinstance(node.op, If) or condition is None or condition.known is None:
        return None
    branch = node.op.then_branch if condition.known.all() else node.op.else_branch
    captured = node.inputs[1:]
    fits = all(v is not None and v.type == held.type for v, held in zip(captured, branch.inputs, strict=True))
    return branch if fits else None


def _copied(branch: Graph, captured: tuple[Value | None, ...]) -> tuple[list[Node], list[Value]]:
    """Nodes and outputs of the branch for these operands, as values of their own: one branch may be taken twice."""
    builder = Builder()
    values: dict[Value | None, Value | None] = dict(zip(branch.inputs, captured, strict=True))
    for node in branch.nodes:
        names = [value.name for value in node.outputs]
        builder.apply(node.op, *(values.get(v, v) for v in node.inputs), names=names, origin=node.origin)
        values.update(zip(node.outputs, builder.nodes[-1].outputs, strict=True))
    results = [values.get(value, value) for _, value in branch.outputs]
    return builder.nodes, [value for value in results if value is not None]
