"""The core ops, by family. Importing this package makes them available as `op.Name` in every namespace."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from aicore.errors import GraphError
from aicore.ir import Namespace, Op


def _load_families() -> list[ModuleType]:
    return [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]


def _collect(modules: list[ModuleType]) -> dict[str, type[Op]]:
    """Every public dataclass of the family modules that is an Op, by class name."""
    found: dict[str, type[Op]] = {}
    for module in modules:
        for name, item in vars(module).items():
            is_op = isinstance(item, type) and issubclass(item, Op) and "__dataclass_fields__" in vars(item)
            if not is_op or name.startswith("_") or item.__module__ != module.__name__:
                continue
            if name in found:
                raise GraphError(f"two op families define {name}: {found[name].__module__} and {module.__name__}")
            found[name] = item
    return found


CORE: dict[str, type[Op]] = _collect(_load_families())
"""Every core op by name."""

Namespace.core_ops.update(CORE)
globals().update(CORE)
