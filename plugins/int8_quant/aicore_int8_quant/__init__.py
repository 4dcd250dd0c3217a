"""int8 for aicore: calibrate a float model, write it as standard ONNX with QuantizeLinear, and run it on int8 kernels.

quantized = aicore_int8_quant.quantize("model.onnx", batches)
quantized.save("model.int8.onnx")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names

if TYPE_CHECKING:
    from aicore_int8_quant.analysis.analyze import analyze
    from aicore_int8_quant.api import quantize, quantize_dynamic, quantize_weights
    from aicore_int8_quant.covered import Coverage, coverage
    from aicore_int8_quant.errors import CalibrationError, QuantizationError
    from aicore_int8_quant.quantized import QuantizedModel

__all__ = [
    "CalibrationError",
    "Coverage",
    "QuantizationError",
    "QuantizedModel",
    "analyze",
    "coverage",
    "quantize",
    "quantize_dynamic",
    "quantize_weights",
]

__getattr__ = lazy_names(  # the plugin's info module and its command load without the rest
    __name__,
    {
        "CalibrationError": "aicore_int8_quant.errors",
        "Coverage": "aicore_int8_quant.covered",
        "QuantizationError": "aicore_int8_quant.errors",
        "QuantizedModel": "aicore_int8_quant.quantized",
        "coverage": "aicore_int8_quant.covered",
        "analyze": "aicore_int8_quant.analysis.analyze",
        "quantize": "aicore_int8_quant.api",
        "quantize_dynamic": "aicore_int8_quant.api",
        "quantize_weights": "aicore_int8_quant.api",
    },
)
