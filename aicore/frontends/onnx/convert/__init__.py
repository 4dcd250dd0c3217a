"""Converters from the semantics of an opset to the newest ones, by family. Importing this package fills the table."""

from aicore.frontends.onnx.convert import (
    constants,
    control,
    neural,
    pointwise,
    quantized,
    random,
    reductions,
    resizing,
    shapes,
    spectral,
    training,
)
from aicore.frontends.onnx.convert.source import CONVERSIONS, SourceNode, conversion_of, converts, to_array

__all__ = [
    "CONVERSIONS",
    "SourceNode",
    "constants",
    "control",
    "conversion_of",
    "converts",
    "neural",
    "pointwise",
    "quantized",
    "random",
    "reductions",
    "resizing",
    "shapes",
    "spectral",
    "to_array",
    "training",
]
