"""Computing parts of the forward pass a second time, so that their results need not be kept until the backward pass."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from aicore.errors import GraphError
from aicore.ir import RECOMPUTED, Node, Origin, Value
from aicore.ops.base import Pointwise

Recompute: TypeAlias = Literal["nothing", "pointwise", "segments"] | Collection[str]
"""`nothing`: keep all that gradients read. `pointwise`: compute pointwise ops again, which costs little and is fused
with what reads them. `segments`: keep about the square root of the values, spread over the forward pass, and compute
what lies between two of them again when the backward pass gets there; it costs up to one more forward pass. A
collection of names: keep the values with these names, and compute all others again.
Source of the segments: Chen et al., Training deep nets with sublinear memory cost (2016)."""


def recomputed(forward: Sequence[Node], backward: Sequence[Node], recompute: Recompute) -> list[Node]:
    """The backward nodes with recomputed forward nodes among them, each before what first reads it.

    Raises GraphError for a choice that does not exist, or a name that no node's result has.
    """
    read = {value for node in backward for value in node.inputs if value is not None}
    again = _computed_again(forward, read, recompute)
    producer = {value: node for node in forward for value in node.outputs}
    copies: dict[Value | None, Value] = {}
    nodes: list[Node] = []
    for node in backward:
        for value in node.inputs:
            nodes.extend(_copied(value, producer, again, copies))
        nodes.append(replace(node, inputs=tuple(copies.get(value, value) for value in node.inputs)))
    return nodes


def _computed_again(forward: Sequence[Node], read: Collection[Value], recompute: Recompute) -> set[Node]:
    pure = [node for node in forward if node.op.pure]
    if recompute == "pointwise":
        return {node for node in pure if isinstance(node.op, Pointwise)}
    if recompute == "segments":
        kept = _spread([node for node in pure if any(value in read for value in node.outputs)])
        return {node for node in pure if node not in kept}
    if isinstance(recompute, str):
        raise GraphError(f"recompute={recompute!r} is none of nothing, pointwise, segments, or names of values to keep")
    names = {value.name for node in forward for value in node.outputs}
    missing = [name for name in recompute if name not in names]
    if missing:
        raise GraphError(f"recompute: no node of the forward pass gives a value {missing[0]!r}")
    keep = set(recompute)
    return {node for node in pure if not any(value.name in keep for value in node.outputs)}


def _spread(nodes: Sequence[Node]) -> set[Node]:
    """About the square root of the nodes, at equal distances."""
    step = max(math.isqrt(len(nodes)), 1)
    return set(nodes[step - 1 :: step])


def _copied(
    value: Value | None, producer: dict[Value, Node], again: Collection[Node], copies: dict[Value | None, Value]
) -> list[Node]:
    """Nodes that compute the value anew from what is kept, in order; none where it is kept or there already.

    Iterative, since a chain may be as long as the forward pass.
    """
    made: list[Node] = []
    stack = [value]
    while stack:
        current = stack[-1]
        node = None if current is None or current in copies else producer.get(current)
        if node is None or node not in again:
            stack.pop()
            continue
        waiting = [v for v in node.inputs if v is not None and v not in copies and producer.get(v) in again]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        made.append(_copy(node, copies))
    return made


def _copy(node: Node, copies: dict[Value | None, Value]) -> Node:
    outputs = tuple(Value(v.name, v.type, None, v.dims, v.fixed) for v in node.outputs)
    inputs = tuple(copies.get(value, value) for value in node.inputs)
    copies.update(zip(node.outputs, outputs, strict=True))
    return Node(node.op, inputs, outputs, Origin(parts=(node.origin,), rule=RECOMPUTED))
