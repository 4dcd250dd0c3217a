"""How many threads a kernel may keep busy: set by the program, known to its kernels without being passed along."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_count: ContextVar[int] = ContextVar("aicore_threads", default=1)


def thread_count() -> int:
    """Threads that what is being estimated, planned, bound or run may use; 1 outside of programs."""
    return _count.get()


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Give `thread_count()` this value inside the block."""
    token = _count.set(count)
    try:
        yield
    finally:
        _count.reset(token)


def usable_cores() -> int:
    """Cores that the operating system lets this process run on."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
