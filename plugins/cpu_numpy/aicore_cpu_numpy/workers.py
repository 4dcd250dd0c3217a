"""Threads that share the work of one kernel, each with BLAS to itself.

NumPy and BLAS let go of the interpreter's lock while they compute, so Python threads run side by side as long as each
call is long enough: handing a task to a sleeping thread takes about 20 microseconds. BLAS is kept to one thread while
a run is going on, because its own threads would stand in the workers' way, and know nothing of what follows a product.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import ThreadpoolController

from aicore.records import dataclass

Task: TypeAlias = Callable[[], Any]


class _Worker:
    """One thread that waits for tasks. Two locks are its mailbox: nothing that Python offers hands over faster."""

    def __init__(self, name: str) -> None:
        self._given, self._finished = threading.Lock(), threading.Lock()
        self._given.acquire()
        self._finished.acquire()
        self._task: Task | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def start(self, task: Task) -> None:
        self._task = task
        self._given.release()

    def wait(self) -> BaseException | None:
        """What the task raised, once it has ended."""
        self._finished.acquire()
        error, self._error, self._task = self._error, None, None
        return error

    def _serve(self) -> None:
        np.seterr(all="ignore")  # kernels follow IEEE 754; what the caller has set holds in its own thread only
        while True:
            self._given.acquire()
            try:
                if self._task is not None:
                    self._task()
            except BaseException as error:  # noqa: BLE001  # raised again where the task was given
                self._error = error
            self._finished.release()


class Workers:
    """The threads of the process. One run uses them at a time; the tasks of another one run in its own thread."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._busy = threading.Lock()

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks, the last one in the calling thread, and return when all have ended.

        Raises what a task raised, the first one's error before the others'.
        """
        if len(tasks) == 1 or not self._busy.acquire(blocking=False):
            for task in tasks:
                task()
            return
        try:
            self._run(tasks)
        finally:
            self._busy.release()

    def _run(self, tasks: Sequence[Task]) -> None:
        *others, mine = tasks
        while len(self._workers) < len(others):
            self._workers.append(_Worker(f"aicore-{len(self._workers)}"))
        started = self._workers[: len(others)]
        for worker, task in zip(started, others, strict=True):
            worker.start(task)
        error: BaseException | None = None
        try:
            mine()
        except BaseException as raised:  # noqa: BLE001  # raised below, when the others no longer touch the arrays
            error = raised
        errors = [found for found in (*(worker.wait() for worker in started), error) if found is not None]
        if errors:
            raise errors[0]


WORKERS = Workers()


def _start_anew() -> None:
    """Threads do not survive a fork, and a lock that was held stays held."""
    WORKERS.__init__()  # type: ignore[misc]
    _blas.__init__()  # type: ignore[misc]


def run_tasks(tasks: Sequence[Task]) -> None:
    """Run the tasks side by side; see `Workers.run`."""
    WORKERS.run(tasks)


class _Blas:
    """How many runs want BLAS to keep to one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: list[int] = []

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            libraries = blas_libraries()
            self._before = [library.count() for library in libraries]
            for library, count in zip(libraries, self._before, strict=True):
                if count != 1:
                    library.limit(1)

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            for library, count in zip(blas_libraries(), self._before, strict=True):
                if count != 1:
                    library.limit(count)


_blas = _Blas()


@dataclass(frozen=True)
class BlasLibrary:
    """A BLAS that this process has loaded. count: its threads now. limit: sets them, for the whole process."""

    count: Callable[[], int]
    limit: Callable[[int], Any]


@lru_cache(maxsize=1)
def blas_libraries() -> tuple[BlasLibrary, ...]:
    """Every BLAS that is loaded when this is first asked, NumPy's among them."""
    return tuple(map(_library, ThreadpoolController().select(user_api="blas").lib_controllers))


def _library(found: Any) -> BlasLibrary:
    """threadpoolctl lets one thread limit OpenBLAS and ignores all others, but runs come from any thread."""
    if found.internal_api == "openblas":
        library = ctypes.CDLL(found.filepath)
        for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "")):
            count = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
            limit = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
            if count is not None and limit is not None:
                return BlasLibrary(count, limit)
    return BlasLibrary(found.get_num_threads, found.set_num_threads)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread inside the block; what the process had before comes back when the last block ends."""
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()


if hasattr(os, "register_at_fork"):  # not on every system
    os.register_at_fork(after_in_child=_start_anew)
