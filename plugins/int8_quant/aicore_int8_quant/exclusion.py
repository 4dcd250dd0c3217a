"""Layers that stay in floating point because they cost too much, found by measuring."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from aicore.ir import Node
from aicore_int8_quant.analysis.sensitivity import Metric, float_outputs, model_outputs, most_sensitive
from aicore_int8_quant.errors import QuantizationError
from aicore_int8_quant.job import Feeds
from aicore_int8_quant.linear_nodes import node_name
from aicore_int8_quant.quantized import QuantizedModel
from aicore_int8_quant.variants import quantized_nodes, without

_AUTO = re.compile(r"auto:(\d+)")


@dataclass(frozen=True)
class Search:
    """What `keep_until` found. excluded: names, the most sensitive first. score: of the model found."""

    model: QuantizedModel
    excluded: tuple[str, ...]
    score: float


def split_exclusions(exclude: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Names, and how many more are to be found: `auto:N`. Raises QuantizationError for any other `auto`."""
    names, count = [], 0
    for entry in exclude:
        found = _AUTO.fullmatch(entry)
        if found is None and entry.startswith("auto"):
            raise QuantizationError(f"--exclude {entry!r} is no number of layers; write auto:3")
        if found is None:
            names.append(entry)
        else:
            count += int(found[1])
    return tuple(names), count


def exclude_most_sensitive(
    model: QuantizedModel, feeds: Sequence[Feeds], count: int, progress: bool = False
) -> QuantizedModel:
    """The model with the layers in floating point that cost its outputs most."""
    nodes = most_sensitive(model, feeds, count, progress)
    return without(model, nodes, "excluded: it is among the most sensitive")


def keep_until(
    model: QuantizedModel, feeds: Sequence[Feeds], metric: Metric, drop: float, progress: bool = False
) -> Search:
    """The model with as few layers in floating point as it takes for the metric to drop by at most `drop`.

    drop: in units of the metric, against its value for the float model. Layers are taken out by what each costs alone;
    twice as many each time, then the smallest number between is looked for.
    Raises QuantizationError when not even the model without int8 layers is good enough, which is the metric's fault.
    """
    wanted = float_outputs(model, feeds)
    least = metric(wanted, wanted) - drop

    def score(count: int) -> float:
        return metric(wanted, model_outputs(without(model, order[:count]), feeds))

    order: list[Node] = []
    if score(0) >= least:
        return Search(model, (), score(0))
    order = most_sensitive(model, feeds, len(quantized_nodes(model)), progress)
    enough = 1
    while enough < len(order) and score(enough) < least:
        enough = min(2 * enough, len(order))
    if score(enough) < least:
        raise QuantizationError(f"the metric of the float model itself is more than {drop} below its best")
    low = enough // 2
    while enough - low > 1:
        middle = (low + enough) // 2
        low, enough = (low, middle) if score(middle) >= least else (middle, enough)
    chosen = order[:enough]
    found = without(model, chosen, "excluded to keep the metric")
    return Search(found, tuple(map(node_name, chosen)), score(enough))
