"""Quantisation, whose attributes spell `not given` as 0."""

from __future__ import annotations

from aicore.frontends.onnx.convert.source import Results, SourceNode, converts


@converts("QuantizeLinear", "DequantizeLinear", since=21)
def linear(node: SourceNode) -> Results:
    """Element type number 0 is that of the zero point, or of the scale, as when the attribute is left out."""
    for name in ("output_dtype", "precision"):
        if node.peek(name) == 0:
            node.attributes.ignore(name)
    return node.as_is()
