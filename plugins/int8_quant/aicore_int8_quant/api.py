"""From a float model to an int8 one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aicore.api import Source, load
from aicore.ir import Graph
from aicore.passes import Pass
from aicore.plugins import PluginRegistry
from aicore_int8_quant.job import Job, Options
from aicore_int8_quant.observers import NonFinite, observer_class
from aicore_int8_quant.passes.annotate import Annotate
from aicore_int8_quant.passes.calibrate import Calibrate, Data, as_feeds
from aicore_int8_quant.passes.dynamic import QuantizeDynamic, QuantizeWeightsOnly
from aicore_int8_quant.passes.equalize import Equalize
from aicore_int8_quant.passes.insert import InsertQdq
from aicore_int8_quant.passes.share import ResolveSharing
from aicore_int8_quant.passes.split import FindCoarse
from aicore_int8_quant.passes.weights import CheckBiases, QuantizeWeights
from aicore_int8_quant.preparation import prepared, run_all
from aicore_int8_quant.quantized import QuantizedModel


def quantize(
    model: Graph | Source,
    data: Iterable[Any],
    *,
    method: str = "minmax",
    per_channel: bool = True,
    exclude: Sequence[str] = (),
    non_finite: NonFinite = "raise",
    method_options: Mapping[str, Any] | None = None,
    split_below: float | None = 24.0,
    correct_biases: bool = False,
    progress: bool = False,
    registry: PluginRegistry | None = None,
) -> QuantizedModel:
    """A static int8 version of a float32 model, as standard ONNX.

    model: a graph, or what `aicore.load` takes.
    data: batches of inputs; each is a mapping from input names to arrays, a sequence in the order of the inputs, or the
        array of the one input. It is read once, and nothing of it is kept.
    method: how ranges of activations are found: minmax, moving-average, percentile, entropy or mse.
    per_channel: a weight scale for each output channel.
    exclude: names of nodes that stay in floating point; `*` and `?` as in names of files.
    non_finite: `raise` for NaN and infinity in the data, or `ignore`.
    method_options: options of the observer, such as {"percentile": 99.99}.
    split_below: products whose first operand is less than so many decibels above the rounding of its codes take two
        codes for each number of it, and twice the time; None for none.
    correct_biases: take what rounded weights add to a result on average off its bias, where it has one.
    progress: show a bar on stderr, if that is a terminal.

    Raises CalibrationError for data that gives no range, QuantizationError for options that fit nothing.
    """
    observer_class(method)
    graph = prepared(model if isinstance(model, Graph) else load(model, registry=registry), registry)
    others = dict(method_options or {}), split_below, correct_biases
    options = Options(method, per_channel, tuple(exclude), non_finite, *others)
    job = Job(options, Data(lambda: as_feeds(graph, data), data), registry, progress)
    first: list[Pass] = [Annotate(job), Calibrate(job), Equalize(job)]
    equalized, _ = run_all(graph, first, registry)
    return finish(equalized, job)


def finish(graph: Graph, job: Job) -> QuantizedModel:
    """The rest of the way, once specs and observers are there."""
    passes: list[Pass] = [
        *(ResolveSharing(job), QuantizeWeights(job), CheckBiases(job), FindCoarse(job), InsertQdq(job)),
    ]
    result, _ = run_all(graph, passes, job.registry)
    return QuantizedModel(result, graph, job)


def quantize_dynamic(
    model: Graph | Source, *, exclude: Sequence[str] = (), registry: PluginRegistry | None = None
) -> QuantizedModel:
    """An int8 version without calibration data: activations of MatMul and Gemm get their range in each run.

    Weights of LSTM, GRU and RNN become int8 in the file, too; a program computes with floats made of them.
    exclude: as of `quantize`.
    """
    return _without_data(model, QuantizeDynamic(tuple(exclude)), registry)


def quantize_weights(
    model: Graph | Source, *, exclude: Sequence[str] = (), registry: PluginRegistry | None = None
) -> QuantizedModel:
    """A version whose weights are int8 and whose arithmetic is not: a file of a quarter of the size.

    In a program, weights of MatMul stay int8; those of other ops become floats when it is compiled.
    exclude: as of `quantize`.
    """
    return _without_data(model, QuantizeWeightsOnly(tuple(exclude)), registry)


def _without_data(model: Graph | Source, one: Pass, registry: PluginRegistry | None) -> QuantizedModel:
    graph = prepared(model if isinstance(model, Graph) else load(model, registry=registry), registry)
    result, _ = run_all(graph, [one], registry)
    return QuantizedModel(result, graph, Job(registry=registry))
