"""The forward pass made ready for its gradient: which nodes take part, without fused ops, with what gradients read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from aicore.ir import FLOATS, Builder, Node, Origin, Value, as_tuple, decomposed, has_gradient, is_fused
from aicore.ops.shape import Identity


def path(nodes: Sequence[Node], sources: Iterable[Value], targets: Iterable[Value]) -> set[Node]:
    """The nodes through which targets depend on sources, by floating-point values alone."""
    reached = set(sources)
    forward: list[Node] = []
    for node in nodes:
        if any(value in reached for value in node.inputs):
            reached.update(value for value in node.outputs if value.dtype in FLOATS)
            forward.append(node)
    wanted: set[Value | None] = set(targets)
    found = set()
    for node in reversed(forward):
        if any(value in wanted for value in node.outputs):
            found.add(node)
            wanted.update(value for value in node.inputs if value in reached)
    return found


def ready_for_gradient(nodes: Sequence[Node], active: Collection[Node]) -> list[Node]:
    """The nodes, with active fused ops that have no gradient of their own taken apart, and residuals kept.

    Values that were there denote the same tensors afterwards.
    """
    found: list[Node] = []
    todo = [(node, node in active) for node in reversed(nodes)]
    while todo:
        node, takes_part = todo.pop()
        if takes_part and is_fused(node.op) and not has_gradient(node.op):
            todo.extend((part, True) for part in reversed(_parts(node)))
        else:
            found.append(_with_residuals(node) if takes_part else node)
    return found


def _parts(node: Node) -> list[Node]:
    """The nodes that a fused op stands for, one for each of its outputs at least."""
    origin = Origin(parts=(node.origin,), rule="decompose")
    nodes, equal = decomposed(node, origin)
    return [*nodes, *(Node(Identity(), (value,), (output,), origin) for output, value in equal.items())]


def _with_residuals(node: Node) -> Node:
    """The node with the further outputs that its gradient reads."""
    op = node.op.with_residuals(*node.inputs)
    if op == node.op:
        return node
    builder = Builder(node.origin)
    made = as_tuple(builder.apply(op, *node.inputs))
    (new,) = builder.nodes
    return replace(new, outputs=(*node.outputs, *made[len(node.outputs) :]))
