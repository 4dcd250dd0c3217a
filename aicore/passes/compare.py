"""Comparing two versions of a graph by their numbers: a Value denotes the same tensor in both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import InputError
from aicore.ir import Graph, Node, Value, as_tuple

Array = np.ndarray[Any, Any]
Evaluate: TypeAlias = Callable[..., Any]
Run: TypeAlias = Callable[[Graph, Mapping[str, Array]], Mapping[Value, Array]]
"""(graph, arrays by input name) -> every value's array."""


def run_graph(graph: Graph, inputs: Mapping[str, Array], evaluate: Evaluate) -> dict[Value, Array]:
    """The arrays of all values that inputs and nodes define, node by node.

    evaluate: `(op, *arrays)` -> array or tuple of arrays; absent operands are None.
    Raises InputError for a missing input.
    """
    known: dict[Value, Array] = {}
    for value in graph.inputs:
        if value.name not in inputs:
            raise InputError(f"input {value.name!r} is missing")
        known[value] = np.asarray(inputs[value.name])
    for node in graph.nodes:
        results = as_tuple(evaluate(node.op, *(_array(v, known) for v in node.inputs)))
        known.update(zip(node.outputs, results, strict=True))
    return known


def numeric_check(
    inputs: Mapping[str, Array], evaluate: Evaluate, tolerance: float = 1e-4
) -> Callable[[Graph, Graph], str]:
    """A check for `run_passes`: the values that two versions share must agree on these inputs."""

    def run(graph: Graph, feeds: Mapping[str, Array]) -> Mapping[Value, Array]:
        return run_graph(graph, feeds, evaluate)

    def check(before: Graph, after: Graph) -> str:
        return first_difference(before, after, inputs, run, tolerance)

    return check


def first_difference(
    before: Graph, after: Graph, inputs: Mapping[str, Array], run: Run, tolerance: float = 1e-4
) -> str:
    """The first value of `after`, in order, that has other numbers than in `before`, and the rules that made its node.

    One run of each graph finds it. Empty when values and outputs agree.
    """
    old, new = run(before, inputs), run(after, inputs)
    for node in after.nodes:
        for value in node.outputs:
            if value in old and not close(old[value], new[value], tolerance):
                return f"%{value.name} of {_made_by(node)} differs from before: {_gap(old[value], new[value])}"
    for (name, first), (_, second) in zip(before.outputs, after.outputs, strict=True):
        a, b = _array(first, old), _array(second, new)
        if a is None or b is None or not close(a, b, tolerance):
            maker = after.producer.get(second)
            source = f" of {_made_by(maker)}" if maker else ""
            return f"output {name!r}{source} differs from before: {_gap(a, b)}"
    return ""


def close(a: Array, b: Array, tolerance: float) -> bool:
    """Same shape and dtype, NaN and infinity in the same places, and differences within `tolerance` of the largest
    finite element; anything but floats must be equal. A single element near zero after cancellation says nothing.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fcV":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    finite = np.isfinite(x)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(y[finite]).all():
        return False
    largest = np.abs(x[finite]).max(initial=0.0)
    return bool(np.abs(x[finite] - y[finite]).max(initial=0.0) <= tolerance * max(largest, 1e-30))


def _array(value: Value | None, known: Mapping[Value, Array]) -> Array | None:
    if value is None:
        return None
    return known[value] if value.constant is None else value.constant.array


def _made_by(node: Node) -> str:
    origin = node.origin
    return f"{node}, made by {origin.rule}#{origin.match}," if origin.rule else f"{node}"


def _gap(a: Array | None, b: Array | None) -> str:
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return f"{_kind(a)} became {_kind(b)}"
    if a.dtype.kind not in "fc":
        return f"{int(np.sum(a != b))} of {a.size} elements differ"
    with np.errstate(invalid="ignore"):
        return f"largest difference {np.nanmax(np.abs(a - b), initial=0.0):.3g}"


def _kind(array: Array | None) -> str:
    return "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
