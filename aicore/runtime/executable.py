"""A plan made ready by a launcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from aicore.records import dataclass
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
class RunsFromHost(Protocol):
    """What an executable offers beside, where copies from and to the host are part of its runs."""

    def run_from_host(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """As `run`, from arrays of the host to arrays of the host; all are dense, in C order and of native bytes."""


@runtime_checkable
class BindsArrays(Protocol):
    """What an executable offers beside, on a device that SharesMemory."""

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any], stream: int) -> BoundRun:
        """Runs that read and write these arrays of the device where they are, on the stream.

        Raises as `run` does.
        """


@runtime_checkable
class TimesSteps(Protocol):
    """What an executable offers beside, where launching a step alone takes about as long as the step.

    Without it, kernels are compared by `profile`.
    """

    def time_step(self, index: int) -> float:
        """Seconds of one step as in the middle of a program, on the numbers of the latest run.

        Asked again and again, in turn with other executables, while nothing else runs; what it prepares for that is
        kept until `release`. Raises as `run` does.
        """


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step.

    start: when the host turned to it, on the clock of `time.perf_counter`.
    host: how long the host was busy with it, launching and waiting.
    device: how long the device computed, by its own clock; no more than `host`, and the same where the device computes
        on the calling thread.
    """

    start: float
    host: float
    device: float


@runtime_checkable
class ClocksApart(Protocol):
    """What an executable offers beside, if its device has a clock of its own."""

    def step_times(self, inputs: Sequence[Any]) -> tuple[list[Any], list[StepTime]]:
        """As `profile`, with the host's time apart from the device's."""
