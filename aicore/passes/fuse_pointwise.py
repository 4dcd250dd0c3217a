"""Connected pointwise nodes of one shape become one Region: one pass over memory instead of one for each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from aicore.ir import Builder, Graph, Node, Origin, Value
from aicore.ops.base import Pointwise
from aicore.ops.fused_pointwise import Region
from aicore.passes.base import Pass
from aicore.records import dataclass
from aicore.rewrite import Context


@dataclass(frozen=True)
class FusePointwise(Pass):
    """Each Region has one result, and nothing inside it is used outside, so no cycle can arise. Takes linear time.

    largest: nodes in a Region at most.
    """

    name: ClassVar[str] = "fuse-pointwise"
    phase: ClassVar[str] = "fuse"
    after: ClassVar[tuple[str, ...]] = ("fold-batchnorm", "recognise-functions", "fuse-linear")
    largest: int = 64

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        groups: dict[Node, list[Node]] = {}
        for node, root in _grouped(graph, self.largest).items():
            groups.setdefault(root, []).append(node)
        fused: dict[Node, Node] = {}
        gone: set[Node] = set()
        for root, members in groups.items():
            region = self._region(root, members[::-1], ctx) if len(members) > 1 else None
            if region is not None:
                fused[root] = region
                gone.update(members)
        if not fused:
            return graph
        nodes = tuple(fused.get(node, node) for node in graph.nodes if node in fused or node not in gone)
        return replace(graph, nodes=nodes)

    def alternatives(self, graph: Graph, ctx: Context) -> dict[str, Sequence[Any]]:
        """Smaller Regions, as far as that makes a difference to the largest one."""
        largest = max(Counter(_grouped(graph, self.largest).values()).values(), default=0)
        return {"largest": [size for size in (16, 8, 4, 2) if size < largest]}

    def _region(self, root: Node, members: list[Node], ctx: Context) -> Node | None:
        """One node for all members, in order, or None when the target has no kernel for it."""
        made = {value for node in members for value in node.outputs}
        outer = [v for v in dict.fromkeys(v for node in members for v in node.inputs) if _is_operand(v, made)]
        operands = [value for value in outer if value is not None]
        builder = Builder()
        inner: dict[Value | None, Value] = {
            value: Value(f"x{i}", value.type, dims=value.dims) for i, value in enumerate(operands)
        }
        inputs = list(inner.values())
        for node in members:
            builder.nodes.append(replace(node, inputs=tuple(inner.get(v, v) for v in node.inputs)))
        op = Region(builder.graph(inputs, {"y": root.outputs[0]}))
        if ctx.supports(op, *(value.type for value in operands)) is not None or not ctx.change(self.name):
            return None
        origin = Origin(parts=tuple(node.origin for node in members), rule=self.name, match=ctx.matches - 1)
        return Node(op, tuple(operands), root.outputs, origin)


def _grouped(graph: Graph, largest: int) -> dict[Node, Node]:
    """The last node of the Region that each pointwise node belongs to, users before their operands.

    Walking backwards, a node joins the Region that holds all its users, if it has the same shape.
    """
    outside = object()
    reader: dict[Value | None, object] = {value: outside for _, value in graph.outputs}
    root_of: dict[Node, Node] = {}
    size: Counter[Node] = Counter()
    for node in reversed(graph.nodes):
        root: Node | None = None
        if _is_pointwise(node):
            root = node
            reading = reader.get(node.outputs[0], outside)
            if isinstance(reading, Node) and _same_shape(reading, node) and size[reading] < largest:
                root = reading
            root_of[node] = root
            size[root] += 1
        for value in node.inputs:
            mine = root or outside
            reader[value] = mine if reader.get(value, mine) is mine else outside
    return root_of


def _is_pointwise(node: Node) -> bool:
    """Constant arithmetic is left to folding, and texts to the kernels that know them."""
    value = node.outputs[0]
    eligible = isinstance(node.op, Pointwise) and node.op.pure and len(node.outputs) == 1 and None not in node.inputs
    return eligible and not value.fixed and value.shape is not None and value.dtype != "string"


def _same_shape(a: Node, b: Node) -> bool:
    return a.outputs[0].shape == b.outputs[0].shape


def _is_operand(value: Value | None, made: set[Value]) -> bool:
    """Whether a value comes into the Region from outside; single numbers stand in it."""
    if value is None or value in made:
        return False
    return value.constant is None or value.constant.array.size > 1
