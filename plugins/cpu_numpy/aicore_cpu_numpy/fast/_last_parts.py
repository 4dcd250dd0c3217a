"""Convolutions of channels-last images in parts, for kernels that read or write something else than floats."""

from aicore_cpu_numpy.fast import _last_depthwise, _last_products, _last_shifted, _last_windows
from aicore_cpu_numpy.fast._last_padding import reach, sizes
from aicore_cpu_numpy.fast._last_problem import Arrays, Block, Problem, blocks
from aicore_cpu_numpy.fast._last_products import needs_windows
from aicore_cpu_numpy.fast._last_rates import shared
from aicore_cpu_numpy.fast._parallel import PARALLEL, shares, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carve, carved_bytes
from aicore_cpu_numpy.fast.last_convolution import Method

METHODS = (
    (_last_products.Products, _last_products.reason_against),
    (_last_depthwise.Depthwise, _last_depthwise.reason_against),
    (_last_windows.Windows, _last_windows.reason_against),
    (_last_shifted.Shifted, _last_shifted.reason_against),
)
"""Ways to compute a Problem, and why each cannot."""

__all__ = [
    "METHODS",
    "PARALLEL",
    "Arrays",
    "Block",
    "Method",
    "Problem",
    "blocks",
    "carve",
    "carved_bytes",
    "needs_windows",
    "reach",
    "shared",
    "shares",
    "side_by_side",
    "sizes",
    "spans",
]
