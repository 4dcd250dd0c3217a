"""What several layers do to nodes in a row: leave out those that nobody needs, take a fused one apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from aicore.ir.builder import Builder
from aicore.ir.op import as_tuple
from aicore.ir.value import Node, Origin, Value


def needed_nodes(
    nodes: Sequence[Node], results: Iterable[Value], may_drop: Callable[[], bool] = lambda: True
) -> tuple[Node, ...]:
    """Without the nodes that no result depends on, in the same order.

    may_drop: is asked for each of these, the last one first; False keeps it, and what it depends on.
    """
    needed: set[Value | None] = set(results)
    kept = []
    for node in reversed(nodes):
        if any(value in needed for value in node.outputs) or not may_drop():
            kept.append(node)
            needed.update(node.inputs)
    return tuple(reversed(kept))


def decomposed(node: Node, origin: Origin) -> tuple[list[Node], dict[Value, Value]]:
    """The nodes that a fused op stands for, with its outputs bound to theirs; and outputs that none of them makes.

    These are operands that are handed on, or results that two outputs share: the value that each of them equals.
    origin: of the nodes.
    """
    builder = Builder(origin)
    results = as_tuple(node.op.decompose(builder, *node.inputs))
    made = {value for part in builder.nodes for value in part.outputs}
    bound: dict[Value | None, Value] = {}
    equal: dict[Value, Value] = {}
    for output, result in zip(node.outputs, results, strict=True):
        if result in made and result not in bound:
            bound[result] = output
        else:
            equal[output] = bound.get(result, result)
    parts = [
        replace(
            part,
            inputs=tuple(bound.get(value, value) for value in part.inputs),
            outputs=tuple(bound.get(value, value) for value in part.outputs),
        )
        for part in builder.nodes
    ]
    return parts, equal
