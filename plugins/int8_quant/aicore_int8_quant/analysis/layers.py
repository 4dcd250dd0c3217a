"""What int8 does to each layer by itself: noise of weights and of activations, saturation, use of the range."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aicore.ir import Builder, Value
from aicore_int8_quant.affine import QParams
from aicore_int8_quant.analysis.measures import Power
from aicore_int8_quant.job import Feeds, QuantizedWeight
from aicore_int8_quant.linear_nodes import LinearNode
from aicore_int8_quant.observers import HistogramObserver, MinMax, Percentile
from aicore_int8_quant.passes.calibrate import Observation
from aicore_int8_quant.passes.split import split_nodes, two_codes
from aicore_int8_quant.quantized import QuantizedModel

Array = np.ndarray[Any, Any]
HISTOGRAM_BINS = 128


@dataclass
class LayerMeasure:
    """What was measured of one layer, over all batches.

    local: all of it quantised; by_weight, by_activation: only that. accumulated: everything before it quantised too.
    clipped, seen: numbers of its input beyond the range of the codes, and of all.
    """

    one: LinearNode
    local: Power = field(default_factory=Power)
    by_weight: Power = field(default_factory=Power)
    by_activation: Power = field(default_factory=Power)
    accumulated: Power = field(default_factory=Power)
    clipped: int = 0
    seen: int = 0
    extremes: MinMax = field(default_factory=MinMax)
    histogram: HistogramObserver = field(default_factory=Percentile)


def measure_layers(model: QuantizedModel, feeds: Iterable[Feeds], max_bytes: int = 1 << 29) -> list[LayerMeasure]:
    """Measures of each int8 layer of the model, in order."""
    job = model.job
    layers = [Layer(one, model) for one in job.linear if one.node not in job.kept]
    values = list(dict.fromkeys(v for layer in layers for v in (*layer.inputs, layer.output)))
    outputs = [layer.output for layer in layers]
    with (
        Observation(model.prepared, values, max_bytes, job.registry) as exact,
        Observation(model.graph, outputs, max_bytes, job.registry) as quantized,
    ):
        for batch in feeds:
            found = dict(exact(batch))
            for layer in layers:
                layer.see(found)
            for value, array in quantized(batch):
                for layer in layers:
                    if layer.output is value:
                        layer.measure.accumulated.add(found[value], array)
    return [layer.measure for layer in layers]


class Layer:
    """One layer by itself, as a program of one node."""

    def __init__(self, one: LinearNode, model: QuantizedModel) -> None:
        from aicore.api import compile  # noqa: A004  # aicore.compile

        self.measure = LayerMeasure(one)
        self.inputs = tuple(dict.fromkeys(v for v in (one.x, one.w) if v.constant is None))
        self.output = one.node.outputs[0]
        self._x_params, self._w_params = model.job.params[one.x], model.job.params.get(one.w)
        self._weight = model.job.weights.get(one.node)
        self._is_split = one.node in split_nodes(model.prepared, model.job)
        builder = Builder()
        x, w = builder.input("x", "float32", one.x.shape), builder.input("w", "float32", one.w.shape)
        others = [builder.input("b", "float32", v.shape) if v else None for v in one.node.inputs[2:]]
        self._has_bias = bool(others and others[0])
        operands = [x, w, *others]
        graph = builder.graph([v for v in operands if v], {"y": builder.apply(one.node.op, *operands)})
        self._program = compile(graph, "cpu", fallback="error", optimize=False, registry=model.job.registry)

    def see(self, found: dict[Value, Array]) -> None:
        """Add one batch of the float model's tensors."""
        one, measure = self.measure.one, self.measure
        x = found[one.x]
        w = found[one.w] if one.w.constant is None else one.w.constant.array
        coded_x, coded_w = self._coded_operand(x), self._coded_weight(w)
        wanted = self._run(x, w)
        measure.local.add(wanted, self._run(coded_x, coded_w))
        measure.by_weight.add(wanted, self._run(x, coded_w))
        measure.by_activation.add(wanted, self._run(coded_x, w))
        low, high = self._x_params.real_range()
        half = float(self._x_params.scale) / 2
        measure.clipped += int(((x < low - half) | (x > high + half)).sum())
        measure.seen += x.size
        measure.extremes.update(x)
        measure.histogram.update(x)

    def coded(self, found: dict[Value, Array]) -> Array:
        """The layer's result with codes for its operands."""
        one = self.measure.one
        w = found[one.w] if one.w.constant is None else one.w.constant.array
        return self._run(self._coded_operand(found[one.x]), self._coded_weight(w))

    def _coded_operand(self, x: Array) -> Array:
        return two_codes(self._x_params, x) if self._is_split else self._x_params.round_trip(x)

    def _coded_weight(self, w: Array) -> Array:
        if self._weight is not None:
            return self._weight.params.dequantize(self._weight.codes)
        assert self._w_params is not None  # a tensor that is multiplied has codes of its own
        return self._w_params.round_trip(w)

    def _run(self, x: Array, w: Array) -> Array:
        feeds = {"x": x, "w": w}
        if self._has_bias:
            bias = self.measure.one.node.inputs[2]
            assert bias is not None  # it has one
            assert bias.constant is not None  # reason_against saw to it
            feeds["b"] = bias.constant.array
        return self._program.run(feeds)["y"]


def layer_json(measure: LayerMeasure, model: QuantizedModel) -> dict[str, Any]:
    """One layer as plain data."""
    one, job = measure.one, model.job
    params, weight = job.params[one.x], job.weights.get(one.node)
    low, high = (float(end[0]) for end in measure.extremes.extremes()) if measure.seen else (0.0, 0.0)
    least, most = (float(end) for end in params.real_range())
    return {
        "name": one.name,
        "op": type(one.node.op).__name__,
        "local_sqnr": measure.local.sqnr,
        "weight_sqnr": measure.by_weight.sqnr,
        "activation_sqnr": measure.by_activation.sqnr,
        "accumulated_sqnr": measure.accumulated.sqnr,
        "saturation": measure.clipped / measure.seen if measure.seen else 0.0,
        "range_use": (max(high, 0) - min(low, 0)) / (most - least),
        "input": {"name": one.x.name, "seen": [low, high], "codes": [least, most], **_params_json(params)},
        "codes_a_number": 2 if one.node in split_nodes(model.prepared, job) else 1,
        "weight": _weight_json(weight),
        "bias": _bias_text(one, weight),
        "histogram": _histogram(measure.histogram, (least, most)),
    }


def _params_json(params: QParams) -> dict[str, Any]:
    return {"scale": float(params.scale), "zero_point": int(params.zero_point), "dtype": params.dtype}


def _weight_json(weight: QuantizedWeight | None) -> dict[str, Any] | None:
    """Scales of a weight; spread is the largest one by the smallest of the channels that are not 0 throughout."""
    if weight is None:
        return None
    scale = np.atleast_1d(weight.params.scale)
    used = scale
    if weight.params.axis is not None:
        others = tuple(i for i in range(weight.codes.ndim) if i != weight.params.axis)
        used = scale[np.abs(weight.codes.astype(np.int16)).max(axis=others) > 0]
    spread = float(used.max() / used.min()) if used.size else 1.0
    return {
        "channels": int(scale.size), "smallest_scale": float(scale.min()), "largest_scale": float(scale.max()),
        "channel_spread": spread,
    }  # fmt: skip


def _bias_text(one: LinearNode, weight: QuantizedWeight | None) -> str:
    if one.bias is None:
        return "none"
    return "int32" if weight is not None and weight.bias is not None else "float"


def _histogram(observer: HistogramObserver, clip: tuple[float, float]) -> dict[str, Any]:
    """Counts of the input over what was seen, in few bins, and where its codes end."""
    counts, edges = observer.counts[0] if observer.counts.size else np.zeros(0), np.zeros(1)
    if counts.size:
        edges = observer.edges(0)
    used = np.flatnonzero(counts)
    if not used.size:
        return {"counts": [], "low": 0.0, "high": 0.0, "clip": list(clip)}
    first, last = int(used[0]), int(used[-1]) + 1
    step = max(math.ceil((last - first) / HISTOGRAM_BINS), 1)
    sums = np.add.reduceat(counts[first:last], np.arange(0, last - first, step))
    high = float(edges[min(first + step * len(sums), edges.size - 1)])
    return {"counts": sums.tolist(), "low": float(edges[first]), "high": high, "clip": list(clip)}
