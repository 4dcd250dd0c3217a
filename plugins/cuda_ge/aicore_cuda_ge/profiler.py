"""Names for NVIDIA's profilers, when AICORE_NVTX asks for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from aicore.config import from_environment
from aicore.errors import ConfigError

Mark: TypeAlias = Callable[[str], AbstractContextManager[Any]]
"""A context around the work that has this name."""


def no_mark(name: str) -> AbstractContextManager[Any]:
    """Marks nothing."""
    return nullcontext()


def mark_of_environment() -> Mark:
    """Ranges of NVTX, or `no_mark`. Raises ConfigError when CuPy has no NVTX to make them with."""
    return nvtx_mark() if from_environment().nvtx else no_mark


def mark_of_profile() -> Mark:
    """Ranges of NVTX where CuPy can make them; who profiles may have no profiler."""
    return nvtx_mark() if _has_nvtx() else no_mark


def nvtx_mark() -> Mark:
    """Ranges of NVTX. Raises ConfigError when CuPy has no NVTX to make them with."""
    if not _has_nvtx():
        raise ConfigError("AICORE_NVTX asks for ranges, but this CuPy has no NVTX")
    from cupyx.profiler import time_range

    return lambda name: time_range(f"aicore {name}")


def _has_nvtx() -> bool:
    import cupy

    return bool(getattr(cupy.cuda.nvtx, "available", True))
