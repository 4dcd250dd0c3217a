"""Fourier transforms."""

from __future__ import annotations

from aicore.frontends.onnx.convert.source import Results, SourceNode, converts


@converts("DFT", until=19)
def dft_by_attribute(node: SourceNode) -> Results:
    """Until opset 19 the axis is an attribute, and by default the first one behind the batch."""
    results: Results = node.build(*node.inputs, axis=node.read("axis"))
    return results
