"""One plan on fixed memory: its launches captured as graphs, with what cannot be captured between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from aicore.errors import ExecutionError
from aicore.runtime import Plan, StepTime
from aicore_cuda_ge import _graph_executor as native
from aicore_cuda_ge.arrays import DeviceArray
from aicore_cuda_ge.builder import Bound, Builder
from aicore_cuda_ge.calls import Call
from aicore_cuda_ge.failures import failure, told
from aicore_cuda_ge.parts import EagerPart
from aicore_cuda_ge.profiler import Mark
from aicore_cuda_ge.step_timer import StepTimer

if TYPE_CHECKING:
    from aicore_cuda_ge.device import CudaDevice

QUEUED, CLOSED, FAULTY = 0, 1, 2
"""What came of queueing a run: it will run; the graph was given back before; an earlier run found faulty data."""


class Capture:
    """Memory for one run at a time, and the graphs over it.

    runs: counts those that were done or queued.
    bound: arrays that take the place of memory of its own, where they are aligned as kernels expect; others are copied
        from and to. `queue` and `wait` are for these. Without, `run` copies between its own and the caller's.
    arena: for what lives during a run; see Builder. Captures of which never two run at once may share it.
    memory: bytes of each block that it holds, by address, so that what is shared can be counted once.
    Raises what Builder raises.
    """

    def __init__(
        self,
        plan: Plan,
        device: CudaDevice,
        calls: Sequence[tuple[Call, ...]],
        runs: native.Counter,
        bound: Bound | None,
        arena: DeviceArray,
    ) -> None:
        with device.current():
            built = Builder(plan, device, calls, bound, arena)
        self.memory: Mapping[int, int] = built.memory
        self._built: Builder | None = built
        self._device = device
        self._steps = [str(step.node) for step in plan.steps]
        self._index = device.index
        self._stream = built.first.stream if bound is None else bound.stream
        self._parts = built.parts
        self._first, self._last = built.first, built.last
        self._places = built.places
        self._reports = built.reports
        self._last.count_in(runs)
        self._whole = self._first is self._last

    @property
    def replays(self) -> int:
        return self._last.replays

    def run(self, inputs: list[int], outputs: list[int]) -> None:
        """One run to its end, between arrays of the caller at these addresses."""
        try:  # not by `told`: making a context takes as long as to launch the graph
            if self._whole:
                self._first.run(inputs, outputs)
            else:
                for part in self._parts:
                    part.run(inputs, outputs, self._stream)
                native.synchronize_stream(self._index, self._stream)
        except native.CudaError as error:
            raise failure(error, f"running {self._named()}") from error
        if self._reports:
            self.check_faults()

    @property
    def queue(self) -> Callable[[int], int]:
        """Queues one run between the arrays that are bound, on their stream: QUEUED, or CLOSED, or FAULTY."""
        return self._first.replay if self._whole else self._replay_parts

    def _replay_parts(self, stream: int) -> int:
        return next((outcome for part in self._parts if (outcome := part.replay(stream))), QUEUED)

    def wait(self) -> None:
        """Wait for the runs that were queued. Raises ExecutionError for what went wrong in them."""
        with self.told("running"):
            for part in self._parts:
                part.wait(self._stream)
        self.check_faults()

    def check_faults(self) -> None:
        """Raise ExecutionError for the first that a kernel found wrong in the data of runs that ended."""
        found = [(place, *fault) for place, part in enumerate(self._parts) for fault in part.take_faults()]
        if found:
            place, number, value = found[0]
            label, text = self._reports[place, number]
            raise ExecutionError(f"{label}: {text.format(value=value)}")

    def close(self) -> None:
        """Wait, and give memory and graphs back."""
        self._built = None
        for part in self._parts:
            part.close()

    def timer(self, step: int) -> Callable[[], float]:
        """Gives the seconds of a step, by a graph that holds it many times, on the numbers that are in place.

        It keeps the memory. Steps that no graph can hold are timed by the host. Raises what StepTimer raises.
        """
        places = [place for place in self._places if place.step == step]

        def alone() -> float:
            with self.told("timing"):
                return sum(place.part.time_launch(place.index) for place in places) * 1e-6

        if self._built is None or any(isinstance(place.part, EagerPart) for place in places):
            return alone
        return StepTimer(self._built, self._device, step, min(alone(), alone()))

    def step_times(self, inputs: list[int], mark: Mark) -> list[StepTime]:
        """Of each step of the plan, launched alone, on these inputs; poisoning, which is no step, aside."""
        taken: list[StepTime | None] = [None] * len(self._steps)
        with self.told("profiling"):
            self._first.place(inputs)
            for place in self._places:
                start = time.perf_counter()
                with mark(self._steps[place.step] if place.step >= 0 else "poison"):
                    device = place.part.time_launch(place.index) * 1e-6
                if place.step >= 0:
                    taken[place.step] = _added(taken[place.step], start, device)
        now = time.perf_counter()
        return [StepTime(now, 0.0, 0.0) if one is None else one for one in taken]

    def time_replay(self, repeats: int, bare: bool = False) -> float:
        """Seconds of one replay, the mean of many in a row. bare: of a graph with nothing of aicore around it."""
        if self._whole:
            return float((self._first.time_bare if bare else self._first.time_replay)(repeats)) * 1e-6
        start = time.perf_counter()
        for _ in range(repeats):
            for part in self._parts:
                part.replay(self._stream)
        native.synchronize_stream(self._index, self._stream)
        return (time.perf_counter() - start) / repeats

    def _named(self) -> str:
        few = ", ".join(self._steps[:3])
        return few if len(self._steps) <= 3 else f"{few} and {len(self._steps) - 3} more"

    def told(self, doing: str) -> AbstractContextManager[None]:
        """Raise what CUDA reports as ExecutionError naming the nodes."""
        return told(f"{doing} {self._named()}")


def _added(earlier: StepTime | None, start: float, device: float) -> StepTime:
    """A launch of a step that ends now, after earlier ones of the same step."""
    host = time.perf_counter() - start
    if earlier is None:
        return StepTime(start, host, device)
    return StepTime(earlier.start, earlier.host + host, earlier.device + device)
