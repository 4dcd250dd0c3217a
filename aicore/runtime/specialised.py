"""A graph that is ready to run for one signature: its stages, in the order in which they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from aicore.ir import Graph
from aicore.records import dataclass
from aicore.runtime.control_flow import Arrays
from aicore.runtime.executable import Executable
from aicore.runtime.in_place import computed_in_place
from aicore.runtime.plan import Plan
from aicore.runtime.schedule import CORE, Placement
from aicore.runtime.stages import Direct, RunPlan, Slots, Stage, StageList
from aicore.runtime.step_times import ProfileRow, row_of, step_times

if TYPE_CHECKING:
    from aicore.runtime.specialise import Specialiser

Optimise: TypeAlias = Callable[[Graph], "tuple[Graph, Any]"]
"""Passes for a graph of concrete shapes: (better graph, report for explain)."""


@dataclass(frozen=True)
class Version:
    """A graph that other choices of passes made, and what optimises it for concrete shapes.

    report: of the passes on the whole graph. note: the choices, and why they are in force.
    """

    graph: Graph
    optimise: Optimise
    report: Any
    note: str


class Specialised:
    """A graph for one signature, ready to run. Threads may share it: everything of a run is in its slots."""

    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        report: Any,
        stages: StageList,
        results: list[int],
        bodies: Sequence[Specialiser],
        version: Version | None = None,
    ) -> None:
        self.graph = graph
        self.version = version
        self.placement = placement
        self.report = report
        self.stages = tuple(stages.stages)
        self._count = stages.count
        self._inputs = stages.inputs
        self._results = results
        self._bodies = tuple(bodies)
        self._dead = stages.dead_after(results)
        first = self.stages[0] if len(self.stages) == 1 else None
        self._alone = first if isinstance(first, RunPlan) and list(first.writes) == results else None
        self._direct = Direct.of(self.stages, stages.inputs, results)

    @property
    def executables(self) -> list[Executable]:
        return [stage.executable for stage in self.stages if isinstance(stage, RunPlan)]

    @property
    def plans(self) -> list[Plan]:
        """All plans, those of bodies of loops and branches too, as far as these have run."""
        inner = [plan for body in self._bodies for kept in body.kept() for plan in kept.plans]
        return [*(executable.plan for executable in self.executables), *inner]

    @property
    def steps_run(self) -> int:
        """Steps that devices ran for it, bodies of loops and branches aside."""
        return sum(executable.steps_run for executable in self.executables)

    def run(self, arrays: Sequence[Any], into: Sequence[Any] | None = None) -> Arrays:
        """Results for arrays in the order of the graph's inputs, all of them where the specialiser's home is.

        into: arrays for the results, used if one plan makes all of them; the caller sees by identity whether it did.
        """
        if self._direct is not None:
            return self._direct.run(arrays, into)
        slots: Slots = [None] * self._count
        for slot, array in zip(self._inputs, arrays, strict=True):
            slots[slot] = array
        if self._alone is not None:
            return self._alone.executable.run([slots[i] for i in self._alone.reads], into)
        for stage, dead in zip(self.stages, self._dead, strict=True):
            stage.run(slots)
            for slot in dead:
                slots[slot] = None
        return [slots[i] for i in self._results]

    @property
    def alone(self) -> tuple[Executable, tuple[int, ...]] | None:
        """The executable that makes all results from arrays at home, if there is one, and nothing has to be moved.

        With it, for each array that it takes, the number of the graph's input: in the order of its plan, and without
        inputs that nothing reads.
        """
        if self._alone is None or not set(self._alone.reads) <= set(self._inputs):
            return None
        return self._alone.executable, tuple(self._inputs.index(slot) for slot in self._alone.reads)

    def in_place(self, pairs: Collection[tuple[str, str]]) -> dict[str, str]:
        """Those of the pairs (output, input) by name that may be bound to one array; see `computed_in_place`."""
        if self.alone is None or not pairs:
            return {}
        executable, taken = self.alone
        inputs, outputs = self.graph.inputs, self.graph.outputs
        places = {inputs[number].name: place for place, number in enumerate(taken)}
        numbers = {name: number for number, (name, _) in enumerate(outputs)}
        known = [(numbers[output], places[given]) for output, given in pairs if given in places]
        found = computed_in_place(executable.plan, known)
        return {outputs[number][0]: inputs[taken[place]].name for number, place in found}

    def release(self) -> None:
        """Give back memory that no run is using, that of bodies of loops and branches too."""
        for executable in self.executables:
            executable.release()
        for body in self._bodies:
            body.release()

    def profile(self, arrays: Sequence[Any]) -> list[ProfileRow]:
        """Run once, and measure each step, the devices being idle before and after it."""
        slots: Slots = [None] * self._count
        for slot, array in zip(self._inputs, arrays, strict=True):
            slots[slot] = array
        rows: list[ProfileRow] = []
        for stage in self.stages:
            rows.extend(_measured(stage, slots))
        return rows


def _measured(stage: Stage, slots: Slots) -> Iterator[ProfileRow]:
    if isinstance(stage, RunPlan):
        results, times = step_times(stage.executable, [slots[i] for i in stage.reads])
        for slot, result in zip(stage.writes, results, strict=True):
            slots[slot] = result
        plan = stage.executable.plan
        for step, taken in zip(plan.steps, times, strict=True):
            yield row_of(step, plan.device, taken)
        return
    start = time.perf_counter()
    stage.run(slots)
    spent = time.perf_counter() - start
    yield ProfileRow(str(stage), type(stage).__name__.lower(), CORE, spent, start=start)
