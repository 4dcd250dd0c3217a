"""A quantised model: the standard ONNX graph, and what was done to get it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from aicore.errors import UnsupportedError
from aicore.ir import Builder, Graph, Node
from aicore.ops.activation import Swish
from aicore.program import Program
from aicore_int8_quant.covered import Coverage, coverage
from aicore_int8_quant.job import Job
from aicore_int8_quant.linear_nodes import node_name
from aicore_int8_quant.passes.fuse import EVERYWHERE

_FIRST_WITH_SWISH = 24
"""Opset that has Swish as an operator."""


@dataclass(frozen=True, eq=False)
class QuantizedModel:
    """What `quantize` gives.

    graph: with QuantizeLinear and DequantizeLinear, which any runtime for ONNX reads.
    prepared: the float graph that was quantised. job: options, scales, and the nodes that stay in floating point.
    """

    graph: Graph
    prepared: Graph
    job: Job

    def compile(self, target: str | None = None, **options: Any) -> Program:
        """A program that runs it, as `aicore.compile` makes one of any graph."""
        from aicore.api import compile  # noqa: A004  # aicore.compile

        return compile(self.graph, target, registry=self.job.registry, **options)

    def save(self, path: str | PathLike[str], opset: int | None = None) -> int:
        """Write an ONNX file, and return its opset: by default the oldest one, from 21 on, that has all the operators.

        Raises UnsupportedError for what ONNX cannot express.
        """
        return save_widely(self.graph, path, opset)

    def coverage(self, target: str | None = None) -> Coverage:
        """Which nodes the target can run in int8, whether or not it is faster with them; and why not the others."""
        return coverage(self.compile(target, choices=EVERYWHERE), self.kept)

    @property
    def kept(self) -> Mapping[str, str]:
        """Nodes that stay in floating point by name, and why."""
        return {node_name(node): reason for node, reason in self.job.kept.items()}

    @property
    def notes(self) -> list[str]:
        """What was widened, kept or not shared, one text each."""
        return list(self.job.notes)


def save_widely(graph: Graph, path: str | PathLike[str], opset: int | None = None) -> int:
    """Write an ONNX file that as many runtimes as possible read; see `QuantizedModel.save`."""
    import onnx  # not needed to quantise

    from aicore.frontends.onnx import OLDEST_OPSET, save_model

    last = opset or onnx.defs.onnx_opset_version()
    candidate = opset or OLDEST_OPSET
    while True:
        try:
            save_model(graph if candidate >= _FIRST_WITH_SWISH else _without_swish(graph), path, candidate)
        except UnsupportedError:
            if candidate == last:
                raise
            candidate += 1
        else:
            return candidate


def _without_swish(graph: Graph) -> Graph:
    """x * sigmoid(alpha * x), as older opsets write it."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if not isinstance(node.op, Swish):
            nodes.append(node)
            continue
        op, x = Builder(node.origin), node.inputs[0]
        inner = x if node.op.alpha == 1 or x is None else op.Mul(x, op.scalar(node.op.alpha, x))
        op.Mul(x, op.Sigmoid(inner))
        last = op.nodes[-1]
        nodes += [*op.nodes[:-1], Node(last.op, last.inputs, node.outputs, last.origin)]
    return replace(graph, nodes=tuple(nodes))
