"""What each layer costs the whole model: alone in int8, alone in floating point, and the worst ones together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from aicore.ir import Graph, Node, Value
from aicore.program import Program
from aicore_int8_quant.analysis.layers import Layer
from aicore_int8_quant.analysis.measures import Power, all_outputs
from aicore_int8_quant.job import Feeds
from aicore_int8_quant.passes.calibrate import Observation, tracked
from aicore_int8_quant.passes.fuse import EVERYWHERE
from aicore_int8_quant.quantized import QuantizedModel
from aicore_int8_quant.variants import quantized_nodes, without

Array = np.ndarray[Any, Any]
Outputs: TypeAlias = Mapping[str, Array]
Metric: TypeAlias = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""(outputs of the float model, outputs of another) for each batch -> how good the other is; larger is better."""


@dataclass(frozen=True)
class Damage:
    """One layer. alone: SQNR of the outputs when it is the only one in int8; spared: when it alone is not, or NaN."""

    node: Node
    alone: float
    spared: float


@dataclass(frozen=True)
class KeptInFloat:
    """How good the model is with so many layers in floating point, the most sensitive first."""

    count: int
    sqnr: float
    metric: float


def float_outputs(model: QuantizedModel, feeds: Sequence[Feeds]) -> list[Outputs]:
    """Of the float model, for each batch."""
    program = _compiled(model.prepared, model)
    return [program.run(batch) for batch in feeds]


def rank(
    model: QuantizedModel,
    feeds: Sequence[Feeds],
    wanted: Sequence[Outputs],
    *,
    spare: int = 0,
    progress: bool = False,
) -> list[Damage]:
    """The model's int8 layers, the one that costs the outputs most first.

    spare: for how many, from the first on, to measure the model with that layer alone in floating point, too.
    """
    alive = needed_nodes(model.prepared)
    layers = [one for one in model.job.linear if one.node not in model.job.kept and one.node in alive]
    alone = [
        (one.node, _alone(Layer(one, model), model, feeds, wanted))
        for one in tracked(layers, "one layer in int8", progress)
    ]
    ranked = sorted(alone, key=lambda item: item[1])
    numbered = tracked(list(enumerate(ranked)), "one layer in float", progress and spare > 0)
    return [
        Damage(node, damage, _of_model(without(model, [node]), feeds, wanted) if number < spare else math.nan)
        for number, (node, damage) in numbered
    ]


def curve(
    model: QuantizedModel,
    order: Sequence[Node],
    feeds: Sequence[Feeds],
    wanted: Sequence[Outputs],
    metric: Metric,
) -> list[KeptInFloat]:
    """With no layer in floating point, then 1, 2, 4, ... of `order`, then all of them."""
    counts = sorted({0, len(order), *(2**i for i in range(16) if 2**i < len(order))})
    return [_kept(count, without(model, order[:count]), feeds, wanted, metric) for count in counts]


def _kept(
    count: int, model: QuantizedModel, feeds: Sequence[Feeds], wanted: Sequence[Outputs], metric: Metric
) -> KeptInFloat:
    got = model_outputs(model, feeds)
    return KeptInFloat(count, outputs_sqnr(wanted, got), metric(wanted, got))


def model_outputs(model: QuantizedModel, feeds: Sequence[Feeds]) -> list[Outputs]:
    """Of the int8 model, for each batch."""
    program = _compiled(model.graph, model)
    return [program.run(batch) for batch in feeds]


def outputs_sqnr(wanted: Sequence[Outputs], got: Sequence[Outputs]) -> float:
    """Of all outputs in floating point, in decibels."""
    power = Power()
    for a, b in zip(wanted, got, strict=True):
        all_outputs(power, a, b)
    return power.sqnr


def needed_nodes(graph: Graph) -> set[Node]:
    """Nodes that an output needs."""
    wanted, found = {value for _, value in graph.outputs}, set()
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            found.add(node)
            wanted.update(value for value in node.inputs if value is not None)
    return found


def _of_model(model: QuantizedModel, feeds: Sequence[Feeds], wanted: Sequence[Outputs]) -> float:
    return outputs_sqnr(wanted, model_outputs(model, feeds))


def _alone(layer: Layer, model: QuantizedModel, feeds: Sequence[Feeds], wanted: Sequence[Outputs]) -> float:
    """The rest of the float model, fed with what the layer gives in int8."""
    one, graph = layer.measure.one, model.prepared
    stand_in = Value("layer_result", layer.output.type)
    nodes = tuple(_with(node, layer.output, stand_in) for node in graph.nodes if node is not one.node)
    outputs = tuple((name, stand_in if value is layer.output else value) for name, value in graph.outputs)
    rest = replace(graph, inputs=(*graph.inputs, stand_in), nodes=nodes, outputs=outputs, state=())
    program = _compiled(rest, model)
    got = []
    with Observation(graph, layer.inputs, 1 << 40, model.job.registry) as run:
        for batch in feeds:
            found = dict(run(batch))
            got.append(program.run({**batch, "layer_result": layer.coded(found)}))
    return outputs_sqnr(wanted, got)


def _with(node: Node, old: Value, new: Value) -> Node:
    if old not in node.inputs:
        return node
    return Node(node.op, tuple(new if value is old else value for value in node.inputs), node.outputs, node.origin)


def _compiled(graph: Graph, model: QuantizedModel) -> Program:
    from aicore.api import compile  # noqa: A004  # aicore.compile

    return compile(graph, "cpu", fallback="error", registry=model.job.registry, choices=EVERYWHERE)


def most_sensitive(model: QuantizedModel, feeds: Sequence[Feeds], count: int, progress: bool = False) -> list[Node]:
    """The layers that cost the outputs most, the worst first; at most `count`."""
    order = [damage.node for damage in rank(model, feeds, float_outputs(model, feeds), progress=progress)]
    return order[: min(count, len(quantized_nodes(model)))]
