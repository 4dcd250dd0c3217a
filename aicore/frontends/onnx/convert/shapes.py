"""Operators that move elements; those whose attributes became operands need nothing, as ops hold both as fields."""

from __future__ import annotations

from aicore.errors import ModelError
from aicore.frontends.onnx.convert.source import Results, SourceNode, converts


@converts("Split")
def split(node: SourceNode) -> Results:
    """Until opset 17 the number of parts is the number of outputs, and they are equal."""
    parts = node.read("num_outputs")
    has_sizes = node.input(1) is not None or "split" in node.attributes
    if has_sizes and parts is not None:
        raise ModelError(f"{node.where}: has both num_outputs and split")
    if parts not in (None, len(node.outputs)):
        raise ModelError(f"{node.where}: num_outputs is {parts}, but it has {len(node.outputs)} outputs")
    if node.opset < 18 and not has_sizes:
        _check_equal_parts(node)
    results: Results = node.build(*node.inputs, num_outputs=len(node.outputs))
    return results


@converts("Pad", until=10)
def pad_by_attributes(node: SourceNode) -> Results:
    """The constant is called `value`."""
    results: Results = node.build(node.operand(), constant_value=node.read("value"))
    return results


@converts("Scatter")
def scatter(node: SourceNode) -> Results:
    """The old name of ScatterElements."""
    results: Results = node.build(*node.inputs, kind="ScatterElements")
    return results


def _check_equal_parts(node: SourceNode) -> None:
    shape, axis, count = node.operand().shape, node.peek("axis"), len(node.outputs)
    if shape is None or not -len(shape) <= axis < len(shape):
        return
    dim = shape[axis]
    if isinstance(dim, int) and dim % count:
        raise ModelError(f"{node.where}: dim {dim} of axis {axis} cannot be split into {count} equal parts")
