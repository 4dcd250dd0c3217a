"""Operands for which one code a number is too coarse: a second code says what the first one leaves.

    x = first + rest      first = (q - z) * s      rest = r * s / 254
    x @ w = first @ w + rest @ w

So two int8 products take the place of one, and the operand has 16 bits. A tensor needs that if few numbers are much
larger than the others, such as the probabilities of an attention, or a normalised tensor with one large position.
Source: E. Yvinec et al., REx: data-free residual quantization error expansion (2023), which does it for weights.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from aicore.ir import Graph, Node, Value
from aicore.rewrite import Context
from aicore_int8_quant.affine import Array, QParams
from aicore_int8_quant.job import Job
from aicore_int8_quant.linear_nodes import LinearNode, is_depthwise
from aicore_int8_quant.observers.magnitudes import decibels
from aicore_int8_quant.passes.annotate import passed_on
from aicore_int8_quant.passes.base import JobPass
from aicore_int8_quant.specs import Shared

_STEPS = 254
"""Of the second code within one of the first: from -127 to 127."""


@dataclass(frozen=True, eq=False)
class FindCoarse(JobPass):
    """Notes the products whose first operand lies too few decibels above the rounding of its codes."""

    name: ClassVar[str] = "find-coarse-int8"

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        job, least = self.job, self.job.options.split_below
        sources = measured(job)
        for one in job.linear:
            if least is None or one.node in job.kept or one.x not in sources or is_depthwise(one.node):
                continue
            found = decibels(job.magnitudes[sources[one.x]].mean_square, float(job.params[one.x].scale))
            if found < least:
                job.coarse[one.node] = found
        for one in job.linear:
            if one.node in split_nodes(graph, job):
                one_code = f"{job.coarse[one.node]:.1f} dB"
                job.note(one.node, f"two codes for each number of its input, of which one has {one_code}")
        return graph


def measured(job: Job) -> dict[Value, Value]:
    """The first operands whose size is to be known, and the tensor whose numbers they have."""
    if job.options.split_below is None:
        return {}
    return {one.x: _source(one.x, job) for one in job.linear if not is_depthwise(one.node)}


def _source(value: Value, job: Job) -> Value:
    while isinstance(spec := job.specs.get(value), Shared) and len(spec.others) == 1:
        value = spec.others[0]
    return value


def split_nodes(graph: Graph, job: Job) -> set[Node]:
    """The coarse products whose operand is there as floats: nothing else needs codes of it, or of what it moves."""
    split = {one.node for one in _active(job) if one.node in job.coarse}
    origins = {one.node: _moved(one.x, graph) for one in _active(job) if one.node in split}
    while split:
        coded = coded_values(graph, job, split)
        torn = {node for node in split if not coded.isdisjoint(origins[node])}
        if not torn:
            break
        split -= torn
    return split


def coded_values(graph: Graph, job: Job, split: Set[Node]) -> set[Value]:
    """Tensors that have one code a number: what int8 kernels read, directly or through what only passes numbers on."""
    active = _active(job)
    floats: set[Value] = set().union(*(_moved(one.x, graph) for one in active if one.node in split))
    found = {one.x for one in active if one.node not in split} | {one.w for one in active}
    found |= {one.residual for one in active if one.residual is not None and one.residual not in floats}
    found &= job.params.keys()
    for node in reversed(graph.nodes):
        if not found.isdisjoint(node.outputs):
            found.update(v for v in passed_on(node) if v in job.params)
    return found


def rest_params(params: QParams) -> QParams:
    """Of the second code: what is left is half a step of the first one at most."""
    scale = np.maximum(params.scale / np.float32(_STEPS), np.finfo(np.float32).smallest_subnormal)
    return QParams(np.asarray(scale), np.zeros((), np.int8))


def two_codes(params: QParams, x: Array) -> Array:
    """What is left of x with both codes."""
    first = params.round_trip(x)
    found: Array = first + rest_params(params).round_trip(x - first)
    return found


def _active(job: Job) -> list[LinearNode]:
    return [one for one in job.linear if one.node not in job.kept]


def _moved(value: Value, graph: Graph) -> set[Value]:
    """The value, and those that it only moves."""
    found = {value}
    for node in reversed(graph.nodes):
        if not found.isdisjoint(node.outputs):
            found.update(passed_on(node))
    return found
