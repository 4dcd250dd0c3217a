"""What belongs to the program that loads a plugin, and so must be the same after the plugin's import as before."""

from __future__ import annotations

import builtins
import gc
import locale
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from aicore.config import child_environment

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGPIPE", "SIGALRM")
_BUILTINS = ("print", "open", "input", "__import__", "isinstance", "len")


def observe() -> dict[str, Any]:
    """The state of this process by name. Plain values; objects by identity."""
    return dict(_observe())


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names of what is not as it was."""
    return [name for name, value in before.items() if after.get(name) != value]


def damages(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Those changes without whose undoing other plugins fail, or the program cannot say anything any more."""
    found = [name for name in changes(before, after) if name.startswith(("file descriptor", "numpy."))]
    limit = "the recursion limit"  # a higher one harms nobody
    return [*found, *([limit] if after[limit] < before[limit] else [])]


def _observe() -> Iterator[tuple[str, Any]]:
    yield "the working directory", _folder()
    yield "the umask", _umask()
    for name in filter(lambda name: hasattr(signal, name), _SIGNALS):
        yield f"the handler of {name}", id(signal.getsignal(getattr(signal, name)))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield f"sys.{name}", id(getattr(sys, name))
        yield f"file descriptor {number}", _file(number)
    for name in ("excepthook", "displayhook", "modules", "path", "meta_path"):
        yield f"sys.{name}", id(getattr(sys, name))
    yield "the trace or profile function", (id(sys.gettrace()), id(sys.getprofile()))
    for name in _BUILTINS:
        yield f"builtins.{name}", id(getattr(builtins, name))
    yield "threading.excepthook", id(threading.excepthook)
    yield "the recursion limit", sys.getrecursionlimit()
    yield "garbage collection", gc.isenabled()
    yield "the locale", locale.setlocale(locale.LC_ALL)
    yield "the root logger", (logging.getLogger().level, *map(id, logging.getLogger().handlers))
    yield (
        "AICORE_ variables",
        {name: value for name, value in child_environment().items() if name.startswith("AICORE_")},
    )
    yield "NumPy's handling of floating-point errors", tuple(np.geterr().items())
    yield "denormal numbers, which became 0", _has_denormals()
    for name, value in vars(np).items():
        if callable(value):
            yield f"numpy.{name}", id(value)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _umask() -> int:
    mask = os.umask(0)  # the only way to ask
    os.umask(mask)
    return mask


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:  # closed
        return None
    return status.st_dev, status.st_ino


def _has_denormals() -> bool:
    """False once a library built with -ffast-math was loaded into this thread."""
    with np.errstate(all="ignore"):
        return bool(np.multiply(np.float64(1e-300), np.float64(1e-20)) != 0)
