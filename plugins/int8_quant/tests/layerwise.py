"""A QDQ model against another way to run it, layer by layer: each is fed the codes that aicore computes before it.

apart = [differ for _, differ in layers(model.graph, feeds, in_onnxruntime)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime

import aicore
from aicore.frontends.onnx import export_model
from aicore.ir import Graph, Node, Value

Array = np.ndarray[Any, Any]
Run = Callable[[Graph, dict[str, Array]], Array]


def layers(graph: Graph, feeds: dict[Value, Array], other: Run) -> Iterator[tuple[str, Array]]:
    """For each tensor of codes that comes of a product, its name, and by how many codes the other way differs.

    Left out are codes of what a first code leaves of floats: these resolve how float32 functions in front were rounded.
    other: (part of the graph with one output, arrays for its inputs by name) -> what it computes.
    """
    codes = [n.outputs[0] for n in graph.nodes if type(n.op).__name__ == "QuantizeLinear" and not n.outputs[0].fixed]
    ours = compute(graph, codes, feeds)
    given = {**ours, **feeds}
    for value in codes:
        if value.name.endswith("_rest_codes"):
            continue
        part = between(graph, given, value)
        if any(type(node.op).__name__ in ("Conv", "MatMul", "Gemm") for node in part.nodes):
            theirs = other(*renamed(part, given))
            yield value.name, np.abs(ours[value].astype(int) - theirs.astype(int))


def between(graph: Graph, given: dict[Value, Array], value: Value) -> Graph:
    """The part of the graph that computes a value from others that are given."""
    wanted, nodes = {value}, []
    for node in reversed(graph.nodes):
        made = set(node.outputs) & wanted
        if not made or (value not in node.outputs and made <= given.keys()):
            continue
        nodes.append(node)
        wanted.update(v for v in node.inputs if v is not None)
    inputs = tuple(v for v in given if v in wanted and v is not value)
    return Graph(inputs, (("y", value),), tuple(nodes[::-1]))


def renamed(graph: Graph, given: dict[Value, Array]) -> tuple[Graph, dict[str, Array]]:
    """The graph with inputs of different names, and the arrays for them."""
    fresh: dict[Value | None, Value] = {v: Value(f"i{number}", v.type) for number, v in enumerate(graph.inputs)}
    nodes = [Node(n.op, tuple(fresh.get(v, v) for v in n.inputs), n.outputs, n.origin) for n in graph.nodes]
    arrays = {fresh[v].name: given[v] for v in graph.inputs}
    return Graph(tuple(fresh.values()), graph.outputs, tuple(nodes)), arrays


def compute(graph: Graph, values: list[Value], feeds: dict[Value, Array]) -> dict[Value, Array]:
    """The fused int8 program's numbers for some tensors."""
    outputs = tuple((f"v{i}", v) for i, v in enumerate(values))
    program = aicore.compile(Graph(graph.inputs, outputs, graph.nodes), "cpu")
    found = program.run({v.name: a for v, a in feeds.items()})
    return {v: found[f"v{i}"] for i, v in enumerate(values)}


def unfused(graph: Graph, feeds: dict[str, Array]) -> Array:
    """Every operator of the QDQ graph by itself."""
    program = aicore.compile(graph, "cpu", optimize=False)
    return program.run(feeds)["y"]


def in_onnxruntime(graph: Graph, feeds: dict[str, Array]) -> Array:
    """With its optimiser off: its fused kernels saturate where products of u8 and s8 add up.

    So it multiplies the dequantised numbers, in float32.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = export_model(graph, 24 if any(type(n.op).__name__ == "Swish" for n in graph.nodes) else 21)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: Array = session.run(None, feeds)[0]
    return found
