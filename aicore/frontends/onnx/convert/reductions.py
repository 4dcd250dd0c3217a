"""Reductions and the softmax family."""

from __future__ import annotations

from aicore.frontends.onnx.convert.source import Results, SourceNode, converts


@converts("Softmax", "LogSoftmax", "Hardmax", until=12)
def over_flattened(node: SourceNode) -> Results:
    """Until opset 12 the operand counts as a matrix, cut before `axis`, and each row is one distribution."""
    x, axis = node.operand(), node.read("axis")
    if x.rank is not None and axis in (x.rank - 1, -1):
        return node.build(x, axis=-1)  # type: ignore[no-any-return]
    flat = node.build(node.op.Flatten(x, axis=axis), axis=-1)
    result: Results = node.op.Reshape(flat, node.op.Shape(x))
    return result


@converts("TopK", since=10)
def top_k(node: SourceNode) -> Results:
    """K is a vector of one element."""
    x, k = node.operand(0), node.operand(1)
    results: Results = node.build(x, k)
    return results
