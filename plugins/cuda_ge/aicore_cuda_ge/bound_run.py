"""Runs between arrays of a caller, where they are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.capture import CLOSED, Capture


class BoundRun:
    """Each call queues one run on the stream and returns; `wait` waits for those that were queued.

    Threads may share it. Captured when made, and again if the graph was given back meanwhile to make room.
    captured: gives the graph. mark: names runs for profilers; None for not at all.
    """

    def __init__(
        self,
        captured: Callable[[], Capture],
        stream: int,
        name: str,
        mark: Callable[[str], AbstractContextManager[Any]] | None,
    ) -> None:
        self._captured = captured
        self._stream = stream
        self._name = name
        self._mark = mark
        self._capture = captured()
        self._queue = self._capture.queue

    def __call__(self) -> None:
        """Queue a run. Raises ExecutionError when it cannot be queued, or when an earlier one found faulty data."""
        if self._mark is None:
            self._run()
            return
        with self._mark(self._name):
            self._run()

    def wait(self) -> None:
        """Wait for the runs that were queued. Raises ExecutionError for what went wrong in them."""
        self._capture.wait()

    def _run(self) -> None:
        try:
            while outcome := self._queue(self._stream):
                self._recover(outcome)
        except native.CudaError:
            with self._capture.told("replaying"):
                raise

    def _recover(self, outcome: int) -> None:
        if outcome != CLOSED:
            self._capture.check_faults()
            return
        self._capture = self._captured()
        self._queue = self._capture.queue
