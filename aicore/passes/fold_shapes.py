"""Shape arithmetic whose result is known in numbers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from aicore.errors import AicoreError
from aicore.ir import INTEGERS, Buffer, Graph, Node, Value, numpy_dtype, retype
from aicore.passes.base import Pass
from aicore.passes.remove_dead import without_dead
from aicore.passes.substitution import Substitution
from aicore.records import dataclass
from aicore.rewrite import Context

_ROUND_LIMIT = 8


@dataclass(frozen=True)
class FoldShapes(Pass):
    """Values whose contents are known dims become constants; operands that are now constant move into fields.

    Types are then inferred again, which may make more of them known. What only fed the arithmetic is dropped at once:
    a Shape that nobody reads would stop its operand's producer from being fused.
    """

    name: ClassVar[str] = "fold-shapes"
    after: ClassVar[tuple[str, ...]] = ("fold-constants",)

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        start = graph
        for _ in range(_ROUND_LIMIT):
            before, graph = graph, _with_constants(graph, ctx)
            if any(map(_is_stale, graph.nodes)) and ctx.change():
                graph = retype(graph, [value.type for value in graph.inputs])
            if graph is before:
                break
        return graph if graph is start else without_dead(graph, ctx)


def _with_constants(graph: Graph, ctx: Context) -> Graph:
    known = Substitution()
    kept: list[Node] = []
    for node in graph.nodes:
        node = known.node(node)
        constant = _known_content(node.outputs[0]) if node.op.pure else None
        if constant is None or not ctx.change():
            kept.append(node)
            continue
        known.put(node.outputs[0], constant)
        if len(node.outputs) > 1:
            kept.append(node)
    return known.graph(graph, kept) if known else graph


def _known_content(value: Value) -> Value | None:
    """The value as a constant, where its dims and shape are all numbers that its dtype can hold."""
    if value.dims is None or value.dtype not in INTEGERS or not value.type.is_static:
        return None
    numbers = [dim for dim in value.dims if isinstance(dim, int)]
    limits = np.iinfo(value.dtype)
    if len(numbers) < len(value.dims) or any(not limits.min <= n <= limits.max for n in numbers):
        return None
    array = np.array(numbers, numpy_dtype(value.dtype)).reshape(value.type.static_shape)
    return Value(value.name, value.type, Buffer(array), value.dims, fixed=True)


def _is_stale(node: Node) -> bool:
    """Whether an operand has become constant that the op could hold in a field."""
    fields = node.op.operand_fields
    if not fields or not any(i < len(node.inputs) and _is_known(node.inputs[i]) for i in fields):
        return False
    try:
        return node.op.absorb(*node.inputs)[1] != node.inputs
    except AicoreError:
        return True  # retype meets the same error and names the node


def _is_known(value: Value | None) -> bool:
    return value is not None and (value.constant is not None or value.dims is not None)
