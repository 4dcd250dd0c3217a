"""Kernels by family, each in a module of its own with a tuple KERNELS."""

from __future__ import annotations

import importlib
import pkgutil

from aicore.kernels import Kernel


def all_kernels() -> list[Kernel]:
    """Every kernel of the modules in this package."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return [kernel for module in modules for kernel in module.KERNELS]
