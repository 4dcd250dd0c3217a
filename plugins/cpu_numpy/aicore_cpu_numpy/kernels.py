"""All kernels of this plugin: what the modules of `reference` and `fast` list under `KERNELS`."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from aicore.errors import PluginError
from aicore.kernels import Kernel
from aicore_cpu_numpy import fast, reference


def all_kernels() -> list[Kernel]:
    """Every kernel, references first, in the order of module names and then of `KERNELS`.

    Raises PluginError for a module without `KERNELS`; a module of helpers has a name that starts with `_`.
    """
    return [kernel for package in (reference, fast) for module in _modules(package) for kernel in _listed(module)]


def _modules(package: ModuleType) -> list[ModuleType]:
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names if not name.startswith("_")]


def _listed(module: ModuleType) -> tuple[Kernel, ...]:
    kernels = getattr(module, "KERNELS", None)
    if not isinstance(kernels, tuple) or not all(isinstance(kernel, Kernel) for kernel in kernels):
        raise PluginError(f"{module.__name__} must list its kernels: KERNELS: tuple[Kernel, ...]")
    return kernels
