"""Elementwise operators: explicit broadcasting before opset 7, bounds as attributes before 11."""

from __future__ import annotations

from aicore.errors import ModelError
from aicore.frontends.onnx.convert.source import Results, SourceNode, converts
from aicore.ir import Value


@converts("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor", until=6)
def explicit_broadcast(node: SourceNode) -> Results:
    """With `broadcast`, the dims of B line up with those of A from `axis` on, or with the last ones."""
    a, b = node.operand(0), node.operand(1)
    broadcast, axis = node.read("broadcast"), node.read("axis")
    if broadcast and axis is not None:
        b = _aligned(node, a, b, axis)
    results: Results = node.build(a, b)
    return results


@converts("Clip", until=10)
def clip_by_attributes(node: SourceNode) -> Results:
    """The bounds default to the largest float32 numbers, which infinities exceed."""
    x = node.operand()
    bounded = x.dtype in ("float32", "float64")  # the defaults are infinite for narrower types
    low, high = (node.read(name) if bounded or name in node.attributes else None for name in ("min", "max"))
    results: Results = node.build(x, min=low, max=high)
    return results


@converts("PRelu", until=6)
def prelu_by_channel(node: SourceNode) -> Results:
    """A slope of several elements has one for each channel; later opsets broadcast it from the right."""
    x, slope = node.operand(0), node.operand(1)
    if slope.rank == 1 and slope.shape != (1,):
        slope = _aligned(node, x, slope, 1)
    results: Results = node.build(x, slope)
    return results


def _aligned(node: SourceNode, a: Value, b: Value, axis: int) -> Value:
    """B with dims of 1 appended, so that NumPy's broadcasting puts it at `axis` of A."""
    if a.rank is None or b.rank is None:
        raise node.fail("broadcasting along an axis needs known ranks")
    axis = axis + a.rank if axis < 0 else axis
    behind = a.rank - axis - b.rank
    if axis < 0 or behind < 0:
        raise ModelError(f"{node.where}: {b.type} does not fit into {a.type} from axis {axis} on")
    axes = tuple(range(b.rank, b.rank + behind))
    aligned: Value = node.op.Unsqueeze(b, axes=axes) if axes else b
    return aligned
