"""Other choices of which nodes are int8, from scales that are known already."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aicore.ir import Graph, Node
from aicore_int8_quant.job import Job
from aicore_int8_quant.passes.insert import InsertQdq
from aicore_int8_quant.preparation import run_all
from aicore_int8_quant.quantized import QuantizedModel


def quantized_nodes(model: QuantizedModel) -> list[Node]:
    """The nodes that the model has in int8, in order."""
    return [one.node for one in model.job.linear if one.node not in model.job.kept]


def with_nodes(model: QuantizedModel, nodes: Collection[Node], reason: str = "excluded") -> QuantizedModel:
    """The model with these of its int8 nodes and no others; nothing is calibrated again."""
    others = {node: reason for node in quantized_nodes(model) if node not in nodes}
    job = replace(model.job, kept={**model.job.kept, **others})
    return QuantizedModel(inserted(model.prepared, job), model.prepared, job)


def without(model: QuantizedModel, nodes: Collection[Node], reason: str = "excluded") -> QuantizedModel:
    """The model with these nodes in floating point."""
    return with_nodes(model, [node for node in quantized_nodes(model) if node not in nodes], reason)


def inserted(graph: Graph, job: Job) -> Graph:
    """The graph with the job's scales in it."""
    return run_all(graph, [InsertQdq(job)], job.registry)[0]
