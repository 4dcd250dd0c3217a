"""The whole diagnosis of an int8 model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from aicore.ir import Node
from aicore.program import Program
from aicore_int8_quant.analysis.layers import layer_json, measure_layers
from aicore_int8_quant.analysis.metrics import find_metric
from aicore_int8_quant.analysis.sensitivity import (
    curve,
    float_outputs,
    model_outputs,
    outputs_sqnr,
    rank,
)
from aicore_int8_quant.errors import CalibrationError
from aicore_int8_quant.job import Feeds
from aicore_int8_quant.linear_nodes import node_name
from aicore_int8_quant.passes.calibrate import as_feeds, tracked
from aicore_int8_quant.passes.fuse import EVERYWHERE
from aicore_int8_quant.quantized import QuantizedModel


@dataclass(frozen=True)
class Analysis:
    """What int8 does to a model, as plain data.

    layers: the most sensitive first. kept: how good the model is with some of them in floating point.
    """

    name: str
    batches: int
    metric: str
    sqnr: float
    score: float
    coverage: Mapping[str, Any]
    notes: Sequence[str]
    layers: Sequence[Mapping[str, Any]]
    kept: Sequence[Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def page(self) -> str:
        """One HTML page that needs nothing else."""
        from aicore_int8_quant.analysis.page import analysis_page  # imports Jinja2

        return analysis_page(self)


def analyze(
    model: QuantizedModel,
    data: Iterable[Any],
    *,
    batches: int = 4,
    metric: str = "top1",
    spare: int = 16,
    name: str = "model",
    progress: bool = False,
) -> Analysis:
    """Measure every int8 layer of a model on some data, which should not be that of the calibration.

    data: as for `quantize`; of it, only the first `batches` are used, for each layer is run on all of them.
    metric: one of METRICS, or `module:function`.
    spare: for how many of the most sensitive layers to measure the model with that one alone in floating point.
    Raises CalibrationError when there is no data.
    """
    wanted_metric = find_metric(metric)
    feeds = list(islice(as_feeds(model.prepared, data), batches))
    if not feeds:
        raise CalibrationError("the data to analyze on is empty: give at least one batch of inputs")
    wanted, got = float_outputs(model, feeds), model_outputs(model, feeds)
    measures = measure_layers(model, tracked(feeds, "measuring tensors", progress))
    damages = rank(model, feeds, wanted, spare=spare, progress=progress)
    details = {measure.one.node: layer_json(measure, model) for measure in measures}
    kernels = _kernels(model, feeds[0])
    layers = [
        {
            "rank": number,
            **details[damage.node],
            "alone_sqnr": damage.alone,
            "spared_sqnr": damage.spared,
            **kernels.get(damage.node, {}),
        }
        for number, damage in enumerate(damages, 1)
    ]
    kept = curve(model, [damage.node for damage in damages], feeds, wanted, wanted_metric)
    return Analysis(
        name=name,
        batches=len(feeds),
        metric=metric,
        sqnr=outputs_sqnr(wanted, got),
        score=wanted_metric(wanted, got),
        coverage=model.coverage("cpu").to_json(),
        notes=model.notes,
        layers=layers,
        kept=[asdict(one) for one in kept],
    )


def _kernels(model: QuantizedModel, feeds: Feeds) -> dict[Node, dict[str, Any]]:
    """Kernel and milliseconds of each layer in int8, and milliseconds of the same source nodes in floating point."""
    from aicore.api import compile  # noqa: A004  # aicore.compile

    exact = _steps(compile(model.prepared, "cpu", registry=model.job.registry), feeds)
    quantized = _steps(model.compile("cpu", choices=EVERYWHERE), feeds)
    found = {}
    for one in model.job.linear:
        names = {node_name(node) for node in one.nodes[:1]} | set(one.node.origin.names())
        mine = [step for step in quantized if names & step[0]]
        theirs = [step for step in exact if names & step[0]]
        if mine:
            found[one.node] = {
                "kernel": mine[-1][1],
                "milliseconds": 1e3 * sum(step[2] for step in mine),
                "float_milliseconds": 1e3 * sum(step[2] for step in theirs),
            }
    return found


def _steps(program: Program, feeds: Feeds) -> list[tuple[set[str], str, float]]:
    """Names, kernel and seconds of each step, the best of three runs."""
    program.run(feeds)
    profiles = [program.profile(feeds, 1, ceilings=False) for _ in range(3)]
    steps = [step for plan in program.plan for step in plan.steps]
    found = []
    for number, step in enumerate(steps):
        seconds = [profile.rows[number].seconds for profile in profiles if number < len(profile.rows)]
        names = {*step.node.origin.names(), step.node.outputs[0].name}
        found.append((names, step.kernel.name, min(seconds, default=0.0)))
    return found
