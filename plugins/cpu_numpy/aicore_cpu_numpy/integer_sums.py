"""Exact products and convolutions of 8-bit integers, for kernels of other plugins that end in another way."""

from aicore_cpu_numpy.fast._quantized import Epilogue, Requantization, part_of
from aicore_cpu_numpy.fast.quantized import Product, product_seconds, product_workspace, supports_product
from aicore_cpu_numpy.fast.quantized_convolution import (
    Convolution,
    convolution_seconds,
    convolution_workspace,
    supports_convolution,
)

__all__ = [
    "Convolution",
    "Epilogue",
    "Product",
    "Requantization",
    "convolution_seconds",
    "convolution_workspace",
    "part_of",
    "product_seconds",
    "product_workspace",
    "supports_convolution",
    "supports_product",
]
