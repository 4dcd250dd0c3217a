"""A plan made ready by a launcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from aicore.runtime.plan import Plan


@runtime_checkable
class Executable(Protocol):
    """Runs one plan, from any number of threads at once and without a lock while kernels run.

    steps_run: steps that ran since it was made; proof that the device did the work.
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def steps_run(self) -> int: ...

    def run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """Compute the plan's outputs from arrays of its device.

        inputs: in the plan's order and of its types; they are read only.
        outputs: arrays to write to; None means fresh ones, which no later run changes.
        Raises ExecutionError naming kernel, node and shapes when a kernel fails.
        """

    def profile(self, inputs: Sequence[Any]) -> tuple[list[Any], list[float]]:
        """As `run`, and the seconds that each step took, with the device idle before and after it."""

    def release(self) -> None:
        """Give memory back that no run is using; the next run takes it again."""


class BoundRun(Protocol):
    """Runs of one plan between fixed arrays: each call queues one and returns, `wait` waits for those queued."""

    def __call__(self) -> None: ...

    def wait(self) -> None: ...


@runtime_checkable
class BindsArrays(Protocol):
    """What an executable offers beside, on a device that SharesMemory."""

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> BoundRun:
        """Runs that read and write these arrays of the device where they are, on the stream.

        Raises as `run` does.
        """
