"""Why a loss is no number: the node of the training step that made the first such number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aicore.errors import AicoreError
from aicore.ir import FLOATS, Graph, Node, Value, dtype_name
from aicore.kernels import KernelTable
from aicore.plugins import PluginRegistry
from aicore.runtime import ReferenceEvaluator

Array = np.ndarray[Any, Any]
Bad = Callable[[Array], bool]


def why_not_finite(graph: Graph, feeds: Mapping[str, Array], loss: float, registry: PluginRegistry) -> str:
    """One sentence on the first NaN, or the first infinity, of a run of the graph with the reference kernels.

    feeds: by name of the inputs, as they were before the step.
    """
    bad, what = (_has_nan, "NaN") if np.isnan(loss) else (_has_infinity, "infinity")
    known = {value: np.asarray(feeds[value.name]) for value in graph.inputs}
    given = [value.name for value, array in known.items() if bad(array)]
    if given:
        return f"{given[0]!r} held {what} before the step"
    evaluate = ReferenceEvaluator(KernelTable(registry.kernels))
    for node in graph.nodes:
        operands = [None if v is None else _number(v, known) for v in node.inputs]
        try:
            results = evaluate(node.op, *operands)
        except AicoreError as error:
            return f"no more is known, because {node} cannot be computed by the reference kernels: {error}"
        known.update(zip(node.outputs, results, strict=True))
        if any(bad(array) for array in results):
            return f"{_described(node)} made the first {what}{_of(node, operands)}"
    return f"the reference kernels make no {what} of the same numbers"


def _described(node: Node) -> str:
    rules = node.origin.rules()
    where = next((name for name in node.origin.names() if name), "")
    side = "the gradient of " if any(rule.startswith("grad#") for rule in rules) else ""
    return (
        f"{type(node.op).__name__} in {side}layer {where!r}"
        if where
        else f"{type(node.op).__name__} ({side or 'the '}loss)"
    )


def _of(node: Node, operands: list[Array | None]) -> str:
    """Of which numbers: the ranges of its operands."""
    shown = [
        f"%{value.name} from {array.min():.3g} to {array.max():.3g}"
        for value, array in zip(node.inputs, operands, strict=True)
        if value is not None and array is not None and array.size and _is_float(array)
    ]
    return f" of {', '.join(shown[:3])}" if shown else ""


def _number(value: Value, known: Mapping[Value, Array]) -> Array:
    return known[value] if value.constant is None else value.constant.array


def _is_float(array: Array) -> bool:
    return dtype_name(array.dtype) in FLOATS


def _has_nan(array: Array) -> bool:
    return _is_float(array) and bool(np.isnan(array.astype(np.float64)).any())


def _has_infinity(array: Array) -> bool:
    return _is_float(array) and bool(np.isinf(array.astype(np.float64)).any())
