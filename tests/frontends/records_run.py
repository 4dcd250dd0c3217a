"""Records run on the CPU, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import aicore
from aicore.frontends.records import Record, graph_of

Array = np.ndarray[Any, Any]


def run(records: Any, tensors: dict[str, Any], outputs: Any = None, **options: Any) -> dict[str, Array]:
    graph = graph_of(records, tensors, outputs, **options)
    names = [value.name for value in graph.inputs]
    return aicore.compile(graph, "cpu").run({name: tensors[name] for name in names})


def one(kind: str, x: Any, *params: Any, extra: Any = None) -> Array:
    """The output of one record with one input."""
    tensors = {"x": x, **{f"p{i}": p for i, p in enumerate(params)}}
    return run([Record(kind, ["x"], [f"p{i}" for i in range(len(params))], "y", extra)], tensors)["y"]
