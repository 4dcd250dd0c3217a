"""Puts the stand-in modules where `import onnxruntime` looks, and takes them away again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

from aicore.compat.onnxruntime.errors import EXCEPTIONS
from aicore.compat.onnxruntime.iobinding import IOBinding
from aicore.compat.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from aicore.compat.onnxruntime.ortvalue import OrtValue
from aicore.compat.onnxruntime.providers import available_providers
from aicore.compat.onnxruntime.session import InferenceSession, ModelMetadata, NodeArg, Session

INTERFACE_VERSION = "1.22.0"
"""The release of onnxruntime whose interface this stands in for."""

_ROOT = "onnxruntime"
_active: list[Installation] = []
"""Installations, outermost first; only the last one's modules are in `sys.modules`."""
_lock = threading.RLock()


def install(target: str | None = None) -> Installation:
    """Answer `import onnxruntime` with aicore from now on; the result is a context manager that undoes it.

    The whole process sees it. Installations nest, and may be undone in any order.

    target: device of aicore for every session; None leaves the choice to the providers that the client names.
    """
    return Installation(stand_in_modules(target))


class Installation:
    """Stand-in modules in `sys.modules`; `uninstall`, or leaving the `with` block, restores what was there."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self._modules = modules
        with _lock:
            self._before = _take_away()
            sys.modules.update(modules)
            _active.append(self)

    @property
    def module(self) -> ModuleType:
        """What `import onnxruntime` gives."""
        return self._modules[_ROOT]

    def uninstall(self) -> None:
        """Take the stand-in away; a second call does nothing."""
        with _lock:
            if self not in _active:
                return
            place = _active.index(self)
            del _active[place]
            if place < len(_active):  # one made later is in place, and will restore what was there before this one
                _active[place]._before = self._before
                return
            _take_away()
            sys.modules.update(self._before)

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()


def _take_away() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name == _ROOT or name.startswith(_ROOT + ".")]
    return {name: sys.modules.pop(name) for name in names}


def stand_in_modules(target: str | None) -> dict[str, ModuleType]:
    """The modules by their full names."""
    public = _public_names(_session_class(target))
    inner = {**public, **EXCEPTIONS}
    contents: dict[str, dict[str, Any]] = {
        _ROOT: {**public, "__version__": INTERFACE_VERSION, "__all__": sorted(public)},
        f"{_ROOT}.capi": {},
        f"{_ROOT}.capi.onnxruntime_pybind11_state": inner,
        f"{_ROOT}.capi._pybind_state": inner,
        f"{_ROOT}.capi.onnxruntime_inference_collection": {**public, "Session": Session},
    }
    modules = {name: _module(name, names) for name, names in contents.items()}
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    return modules


def _session_class(target: str | None) -> type[InferenceSession]:
    """A class, not a function: clients subclass it and test instances against it."""
    if target is None:
        return InferenceSession

    class Targeted(InferenceSession):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "forced_target": target})

    Targeted.__name__ = Targeted.__qualname__ = InferenceSession.__name__
    return Targeted


def _public_names(session: type[InferenceSession]) -> dict[str, Any]:
    kinds = (GraphOptimizationLevel, ExecutionMode, ExecutionOrder, SessionOptions, RunOptions)
    return {
        **{cls.__name__: cls for cls in (*kinds, OrtValue, IOBinding, NodeArg, ModelMetadata)},
        "InferenceSession": session,
        "SessionIOBinding": IOBinding,
        "get_version_string": lambda: INTERFACE_VERSION,
        "get_build_info": lambda: f"aicore, standing in for onnxruntime {INTERFACE_VERSION}",
        "get_available_providers": available_providers,
        "get_all_providers": available_providers,
        "get_device": lambda: "GPU" if "CUDAExecutionProvider" in available_providers() else "CPU",
        **dict.fromkeys(_NOTHING_TO_DO, _accept),
    }


# aicore sends nothing anywhere, logs through `logging`, and draws no random numbers of its own.
_NOTHING_TO_DO = (
    "disable_telemetry_events",
    "enable_telemetry_events",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
    "preload_dlls",
    "print_debug_info",
)


def _accept(*_: Any, **__: Any) -> None:
    """A call that configures what aicore does not have."""


def _module(name: str, names: dict[str, Any]) -> ModuleType:
    module = ModuleType(name, "aicore, standing in for onnxruntime")
    is_package = name in {_ROOT, f"{_ROOT}.capi"}
    module.__spec__ = ModuleSpec(name, loader=None, origin="aicore", is_package=is_package)
    if is_package:
        module.__path__ = []
    module.__dict__.update(names, __getattr__=_no_such_name(name))
    return module


def _no_such_name(module: str) -> Callable[[str], Any]:
    def missing(name: str) -> Any:
        raise AttributeError(f"aicore stands in for {module} and has no {name!r}", name=name)

    return missing
