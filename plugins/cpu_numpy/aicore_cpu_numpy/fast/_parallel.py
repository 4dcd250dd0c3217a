"""Sharing the work of one kernel among threads, for kernels that are bound to the arrays of a plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.workers import run_tasks

Array = np.ndarray[Any, Any]
Call: TypeAlias = Callable[[], Any]

PARALLEL = 200e-6
"""Seconds of one thread that are worth sharing.

Measured on 156 convolutions: alone, two threads break even with one at 200 to 300 microseconds, and take 0.65 of its
time for what takes it more than a millisecond; in whole networks 200 is no worse than 250. To hand a task over and to
wait for it takes 20 to 50, and then they get in each other's way: who finds the interpreter's lock taken, if only for a
microsecond, sleeps for 20.
"""
HEAD_START = 25e-6
"""Seconds from handing a task over until its thread begins."""
PASS, MOVED = 0.2e-9, 0.12e-9
"""Seconds of one operation on an element that lies in the cache, and for a byte that comes from or goes to memory."""


@dataclass(frozen=True)
class Placing:
    """What `bind` returns for a kernel whose views and calls are made once for each set of arrays.

    place: `(*inputs, out=, workspace=)` -> a call.
    """

    place: Callable[..., Call]

    def __call__(self, *arrays: Array | None, out: Any, workspace: Array | None = None) -> None:
        options = {} if workspace is None else {"workspace": workspace}
        self.place(*arrays, out=out, **options)()


def parts_of(seconds: float) -> int:
    """How many threads should share work that takes one thread so many seconds."""
    return thread_count() if seconds > PARALLEL else 1


def spans(total: int, parts: int) -> list[tuple[int, int]]:
    """At most so many (start, stop) of about equal length, none of them empty."""
    parts = min(parts, total)
    return [(total * i // parts, total * (i + 1) // parts) for i in range(parts)]


def shares(total: int, parts: int, seconds: float) -> list[tuple[int, int]]:
    """As `spans`, for work that takes one thread so many seconds: the last one, the caller's, is longer.

    The caller begins at once and the others when they have woken up; that way all end together.
    """
    if parts == 1 or not total:
        return spans(total, parts)
    ahead = min(HEAD_START / max(seconds, HEAD_START), 1.0)
    own = min(max(round(total * (1 + (parts - 1) * ahead) / parts), 1), total)
    return [*spans(total - own, parts - 1), (total - own, total)]


def side_by_side(tasks: list[list[Call]]) -> Call:
    """One call that runs each worker's calls."""
    ordered = [calls[0] if len(calls) == 1 else partial(run_all, tuple(calls)) for calls in tasks if calls]
    if len(ordered) <= 1:
        return ordered[0] if ordered else nothing
    return partial(run_tasks, ordered)


def run_all(calls: tuple[Call, ...]) -> None:
    for call in calls:
        call()


def nothing() -> None:
    """What has no elements needs no work."""
