"""Kernels for the device `cuda`, which the plugin has when it was built with AICORE_INT8_CUDA=1.

The package imports without them; `kernels()` is empty then. They need no other plugin to be installed, but one that
drives the device is, of course, needed to run them.
"""

from __future__ import annotations

import importlib.util

from aicore.kernels import Kernel


def is_built() -> bool:
    """Whether the compiled kernels are there."""
    return importlib.util.find_spec("aicore_int8_quant._int8_kernels") is not None


def kernels() -> tuple[Kernel, ...]:
    """All kernels for `cuda`; none where they were not built."""
    if not is_built():
        return ()
    from aicore_int8_quant.cuda import convolutions, fours, layout, library_products, pooling, products, quantization

    modules = (products, library_products, convolutions, fours, pooling, layout, quantization)
    return tuple(made for module in modules for made in module.KERNELS)
