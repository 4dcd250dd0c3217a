"""Computes at compile time what depends on constants alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from aicore.errors import ExecutionError, GraphError, UnsupportedError
from aicore.ir import Buffer, Graph, Node, TensorType, Value, as_tuple, dtype_name, is_fused, static_bytes, subgraphs
from aicore.passes.base import Pass, is_random
from aicore.passes.substitution import Substitution
from aicore.records import dataclass
from aicore.rewrite import Context


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluates nodes whose operands are all constant, through the evaluator that the context carries.

    max_bytes: a larger result is left to the run, unless it is no larger than the constants that it replaces.
    max_total: so is every result beyond this sum, or a small file could fill the memory with constants.
    max_work: so is a node with more operations, or a small file could keep the compiler busy for hours.
    Random ops, and control flow, are left alone.
    """

    name: ClassVar[str] = "fold-constants"
    max_bytes: int = 1 << 26
    max_total: int = 1 << 29
    max_work: int = 1 << 33

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        if ctx.evaluate is None:
            ctx.note("no constants are folded: no launcher gives an evaluator")
            return graph
        if not any(map(_reads_constants_alone, graph.nodes)):
            return graph
        folded = Substitution()
        kept: list[Node] = []
        total = 0.0
        for node in graph.nodes:
            node = folded.node(node)
            added = self._added_bytes(node)
            may_fold = added is not None and total + added <= self.max_total
            results = _evaluate(node, ctx) if may_fold else None
            if results is None:
                kept.append(node)
                continue
            total += added or 0.0
            for value, result in zip(node.outputs, results, strict=True):
                folded.put(value, result)
        return folded.graph(graph, kept) if folded else graph

    def _added_bytes(self, node: Node) -> float | None:
        """Bytes by which the results exceed the constants that they replace; None for a node that is not folded."""
        if not _reads_constants_alone(node):
            return None
        if is_random(node.op) or (subgraphs(node.op) and not is_fused(node.op)):
            return None
        replaced = sum(v.constant.array.nbytes for v in node.inputs if v is not None and v.constant is not None)
        made = sum(static_bytes(v.type) for v in node.outputs)
        if made > max(self.max_bytes, replaced):
            return None
        work = node.op.cost(*node.inputs)[0]
        return None if isinstance(work, int) and work > self.max_work else max(made - replaced, 0)


@dataclass(frozen=True)
class FoldWeights(FoldConstants):
    """Folds what the first passes made of weights, transposed ones for example, so that later passes can read them."""

    name: ClassVar[str] = "fold-weights"
    phase: ClassVar[str] = "fuse"
    after: ClassVar[tuple[str, ...]] = ("fold-batchnorm",)
    before: ClassVar[tuple[str, ...]] = ("recognise-functions", "fuse-linear", "fuse-pointwise")


@dataclass(frozen=True)
class FoldKnown(FoldConstants):
    """Folds what is known once sizes are, such as one over the number of samples; only what is small and quick.

    What depends on weights alone was folded before.
    """

    name: ClassVar[str] = "fold-known"
    after: ClassVar[tuple[str, ...]] = ("fold-shapes",)
    before: ClassVar[tuple[str, ...]] = ("choose-branches", "remove-identities")
    max_bytes: int = 1 << 16
    max_total: int = 1 << 20
    max_work: int = 1 << 20


def _reads_constants_alone(node: Node) -> bool:
    return all(value is None or value.constant is not None for value in node.inputs)


def _evaluate(node: Node, ctx: Context) -> list[Value] | None:
    assert ctx.evaluate is not None
    arrays = [None if v is None or v.constant is None else v.constant.array for v in node.inputs]
    if not ctx.change():
        return None
    try:
        results = as_tuple(ctx.evaluate(node.op, *arrays))
    except (UnsupportedError, ExecutionError) as error:
        ctx.note(f"{type(node.op).__name__} is not folded: {error}")
        return None
    return [_constant(node, value, array) for value, array in zip(node.outputs, results, strict=True)]


def _constant(node: Node, value: Value, array: np.ndarray) -> Value:
    array = np.asarray(array)
    found = TensorType(dtype_name(array.dtype), array.shape)
    if not found.agrees(value.type):
        raise GraphError(f"{node}: evaluation gives {found} for %{value.name}, which is {value.type}")
    return Value(value.name, found, Buffer(array), fixed=True)
