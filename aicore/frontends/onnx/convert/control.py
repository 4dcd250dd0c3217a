"""If, Loop and Scan: sub-graphs are closed; what they take from outside becomes trailing operands and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aicore.errors import ModelError
from aicore.frontends.onnx.convert.source import Results, SourceNode, converts
from aicore.ir import Builder, Graph, TensorType, Value, as_tuple
from aicore.ops.control import Scan


@converts("If")
def if_(node: SourceNode) -> Results:
    """Both branches take the same captured values."""
    graphs, captured = _closed(node, {"then_branch": (), "else_branch": ()})
    results: Results = node.build(*node.inputs, *captured, **graphs)
    return results


@converts("Loop")
def loop(node: SourceNode) -> Results:
    """The body takes iteration number, condition, carried values, then captured ones."""
    count, condition, *carried = (*node.inputs, None, None)[: max(2, len(node.inputs))]
    types = [TensorType("int64", ()), TensorType("bool", ()), *(_type(value) for value in carried)]
    graphs, captured = _closed(node, {"body": types})
    results: Results = node.build(count, condition, *carried, *captured, carried=len(carried), **graphs)
    return results


@converts("Scan", since=9)
def scan(node: SourceNode) -> Results:
    """The body takes states, slices of the scanned operands, then captured values."""
    scanned = node.peek("num_scan_inputs")
    states = len(node.inputs) - scanned
    if states < 0:
        raise ModelError(f"{node.where}: has {len(node.inputs)} operands, of which {scanned} are to be scanned")
    types = [_type(value) if i < states else _open(value) for i, value in enumerate(node.inputs)]
    graphs, captured = _closed(node, {"body": types})
    results: Results = node.build(*node.inputs, *captured, carried=states, **graphs)
    return results


@converts("Scan", until=8)
def scan_of_batches(node: SourceNode) -> Results:
    """In opset 8 everything has a batch axis in front, and the scanned axis comes second: a scan of scans."""
    if node.input(0) is not None:
        raise node.fail("sequence_lens of opset 8 is not supported")
    operands, scanned = node.inputs[1:], node.read("num_scan_inputs")
    directions = node.read("directions")
    states = len(operands) - scanned
    if states < 0:
        raise ModelError(f"{node.where}: has {len(operands)} operands, of which {scanned} are to be scanned")
    types = [None if value is None else TensorType(value.dtype) for value in operands]
    graphs, captured = _closed(node, {"body": types})
    batch = Builder(node.op.origin)
    slices = [Value(value.name, _without_axis(value.type)) for value in (*operands, *captured) if value is not None]
    for index, value in enumerate(captured, len(operands)):
        slices[index] = Value(value.name, value.type)
    inner = Scan(graphs["body"], scanned, states, scan_input_directions=directions)
    results = as_tuple(batch.apply(inner, *slices))
    each = batch.graph(slices, {f"output{index}": value for index, value in enumerate(results)})
    outer: Results = node.op.apply(Scan(each, len(operands)), *operands, *captured, names=node.outputs)
    return outer


def _closed(
    node: SourceNode, bodies: dict[str, Sequence[TensorType | None]]
) -> tuple[dict[str, Any], tuple[Value, ...]]:
    """The node's sub-graphs, and the outer values that all of them take as their last inputs."""
    built = {}
    for name, types in bodies.items():
        node.attributes.ignore(name)
        built[name] = node.importer.subgraph(node.checked.graphs[name], node.scope, types)
    captured = tuple(dict.fromkeys(value for _, scope in built.values() for value in scope.captured))
    graphs = {}
    for name, (graph, scope) in built.items():
        trailing = tuple(scope.capture(value) for value in captured)
        graphs[name] = Graph((*graph.inputs, *trailing), graph.outputs, graph.nodes)
    return graphs, captured


def _type(value: Value | None) -> TensorType | None:
    return None if value is None else value.type


def _without_axis(tensor: TensorType) -> TensorType:
    return tensor if tensor.shape is None else TensorType(tensor.dtype, tensor.shape[1:])


def _open(value: Value | None) -> TensorType | None:
    """The element type alone."""
    return None if value is None else TensorType(value.dtype)
