"""Which tests can run here: all need the built plugin, and those marked `gpu` or `sanitize` need a device and CuPy."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest


@cache
def missing_extension() -> str:
    """Why no test can run here; empty when the plugin is installed."""
    try:
        importlib.import_module("aicore_cuda_ge._graph_executor")
    except ImportError as error:
        return f"aicore_cuda_ge is not installed, or without its extension: {error}; `make test-cuda` builds it"
    return ""


@cache
def missing_device() -> str:
    """Why no kernel can run here; empty when a GPU and CuPy are there."""
    native = importlib.import_module("aicore_cuda_ge._graph_executor")
    count, reason = native.device_count()
    if not count:
        return f"no GPU: {reason}"
    try:
        importlib.import_module("cupy")
    except ImportError as error:
        return f"no CuPy: {error}"
    return ""


class NotInstalled(pytest.Module):
    """A test file that is not imported, for it imports what is not there."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip(missing_extension(), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return NotInstalled.from_parent(parent, path=module_path) if missing_extension() else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    on_device = any(item.get_closest_marker(name) for name in ("gpu", "sanitize"))
    if on_device and missing_device():
        pytest.skip(missing_device())
