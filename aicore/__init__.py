"""aicore: a Python-controlled AI compiler and runtime with plug-in backends.

program = aicore.compile("model.onnx")
outputs = program(x=array)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicore import compat, nn, onnx_backend
    from aicore.api import compile, load  # the public name, aicore.compile
    from aicore.autodiff import grad
    from aicore.bound import BoundProgram
    from aicore.errors import AicoreError
    from aicore.ir import Graph
    from aicore.program import Program

__version__ = "0.1.0"

_HOMES = {
    "AicoreError": "aicore.errors",
    "BoundProgram": "aicore.bound",
    "Graph": "aicore.ir",
    "Program": "aicore.program",
    "compile": "aicore.api",
    "grad": "aicore.autodiff",
    "load": "aicore.api",
}
_MODULES = ("compat", "nn", "onnx_backend")

__all__ = [
    "AicoreError",
    "BoundProgram",
    "Graph",
    "Program",
    "__version__",
    "compat",
    "compile",
    "grad",
    "load",
    "nn",
    "onnx_backend",
]


def __getattr__(name: str) -> object:
    # Nothing is imported before its first use: `import aicore` stays cheap for clients that only ask for the version.
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aicore.collector import collector_at_rest, keep_for_good

    with collector_at_rest():  # a hundred modules, none of them garbage
        found = getattr(importlib.import_module(_HOMES[name]), name)
        keep_for_good()
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
