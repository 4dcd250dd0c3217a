"""Which tensors get codes, and where each scale is to come from."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from aicore.ir import Graph, Node, Op, Value
from aicore.ops.activation import HardSigmoid, Sigmoid, Tanh
from aicore.ops.gather import Gather
from aicore.ops.movement import Concat, Expand, Split, Tile, Transpose
from aicore.ops.pooling import GlobalMaxPool, MaxPool
from aicore.ops.rearrange import DepthToSpace, SpaceToDepth
from aicore.ops.shape import Flatten, Identity, Reshape, Squeeze, Unsqueeze
from aicore.ops.slicing import Slice
from aicore.ops.softmax import Softmax
from aicore.rewrite import Context
from aicore_int8_quant.linear_nodes import LINEAR, LinearNode, linear_nodes, node_names, reason_against
from aicore_int8_quant.passes.base import JobPass
from aicore_int8_quant.specs import Fixed, Plain, QSpec, Shared, fixed_range, settle

PASSING: frozenset[type[Op]] = frozenset(
    {
        *(Reshape, Flatten, Squeeze, Unsqueeze, Identity, Transpose, Expand, Tile, Split, Slice, Gather),
        *(MaxPool, GlobalMaxPool, DepthToSpace, SpaceToDepth),
    }
)
"""Ops whose results in floating point have no other numbers than their first operand."""

FIXED: dict[type[Op], Fixed] = {
    Sigmoid: fixed_range(0, 1),
    HardSigmoid: fixed_range(0, 1),
    Softmax: fixed_range(0, 1),
    Tanh: fixed_range(-1, 1),
}
"""Results whose range the op says, not the data."""


@dataclass(frozen=True, eq=False)
class Annotate(JobPass):
    """Finds the nodes to quantise, and gives each tensor that an int8 kernel reads a QSpec.

    Between a product and its residual and activation, which one kernel computes, there are no codes: a residual sum is
    rounded once. What merely moves numbers shares the scale of what it moves.
    """

    name: ClassVar[str] = "annotate-int8"

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        job = self.job
        job.kept = {node: reason for node in graph.nodes if (reason := self._reason(node)) is not None}
        job.linear = [one for one in linear_nodes(graph) if one.node not in job.kept]
        wanted = {value for one in job.linear for value in (one.x, one.w) if is_activation(value)}
        wanted |= _coded_residuals(graph, job.linear)
        for node in reversed(graph.nodes):
            if not wanted.isdisjoint(node.outputs):
                wanted.update(passed_on(node))
        specs: dict[Value, QSpec] = {value: Plain() for value in graph.inputs if value in wanted}
        specs |= {value: _spec(node) for node in graph.nodes for value in node.outputs if value in wanted}
        job.specs, broken = settle(specs)
        job.notes.extend(broken.values())
        return graph

    def _reason(self, node: Node) -> str | None:
        if not isinstance(node.op, LINEAR):
            return None
        patterns = self.job.options.exclude
        if any(fnmatch.fnmatchcase(name, pattern) for name in node_names(node) for pattern in patterns):
            return "excluded"
        return reason_against(node)


def passed_on(node: Node) -> tuple[Value, ...]:
    """The operands whose numbers, and no others, are those of the results; none for ops that compute."""
    if type(node.op) not in PASSING | {Concat}:
        return ()
    values = node.inputs if isinstance(node.op, Concat) else node.inputs[:1]
    found = tuple(value for value in values if is_activation(value))
    return found if len(found) == len(values) else ()  # type: ignore[return-value]


def is_activation(value: Value | None) -> bool:
    """Whether it is a float32 tensor that is computed or given, not a constant."""
    return value is not None and value.constant is None and value.dtype == "float32"


def _coded_residuals(graph: Graph, linear: Sequence[LinearNode]) -> set[Value]:
    """Residuals that only int8 kernels read; one that a LayerNormalization reads, too, is added as the float it is.

    Along the blocks of a transformer the same numbers are added to again and again, and each rounding would stay.
    """
    inside = {node for one in linear for node in one.nodes}
    residuals = {one.residual for one in linear if one.residual is not None and is_activation(one.residual)}
    read_in_float = {
        value for node in graph.nodes if node not in inside and type(node.op) not in PASSING | {Concat}
        for value in node.inputs if value in residuals
    }  # fmt: skip
    return residuals - read_in_float


def _spec(node: Node) -> QSpec:
    others = passed_on(node)
    return Shared(others) if others else FIXED.get(type(node.op), Plain())
