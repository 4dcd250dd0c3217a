"""Exact products and convolutions of 8-bit integers, for kernels of other plugins that end in another way."""

from aicore_cpu_numpy.fast import _last_parts as last
from aicore_cpu_numpy.fast._bounds import CLIP
from aicore_cpu_numpy.fast._quantized import EXACT, Epilogue, Requantization, magnitude, part_of, shifted
from aicore_cpu_numpy.fast.quantized import Product, product_seconds, product_workspace, supports_product
from aicore_cpu_numpy.fast.quantized_convolution import (
    Convolution,
    convolution_seconds,
    convolution_workspace,
    supports_convolution,
)

__all__ = [
    "CLIP",
    "EXACT",
    "Convolution",
    "Epilogue",
    "Product",
    "Requantization",
    "convolution_seconds",
    "convolution_workspace",
    "last",
    "magnitude",
    "part_of",
    "product_seconds",
    "product_workspace",
    "shifted",
    "supports_convolution",
    "supports_product",
]
