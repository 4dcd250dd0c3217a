"""A specialised graph as a list of stages over slots: runs on one device, moves between devices, control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from aicore.ir import Graph, Value
from aicore.records import dataclass
from aicore.runtime.device import HOST, Device
from aicore.runtime.executable import Executable, RunsFromHost

Slots: TypeAlias = list[Any]
"""Arrays of one run; a slot stands for one value on one device."""


class Stage(Protocol):
    def run(self, slots: Slots) -> None: ...

    @property
    def reads(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class RunPlan:
    """Run an executable."""

    executable: Executable
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def run(self, slots: Slots) -> None:
        results = self.executable.run([slots[i] for i in self.reads])
        for slot, result in zip(self.writes, results, strict=True):
            slots[slot] = result


@dataclass(frozen=True)
class Move:
    """Copy one value to another device; where both share memory, nothing is copied."""

    value: Value
    source: Device | None
    target: Device | None
    reads: tuple[int, ...]
    write: int

    def __str__(self) -> str:
        ends = [HOST if device is None else device.name for device in (self.source, self.target)]
        return f"copy %{self.value.name} from {ends[0]} to {ends[1]}"

    def run(self, slots: Slots) -> None:
        array = slots[self.reads[0]]
        if self.source is not None:
            array = self.source.download(array)
        slots[self.write] = array if self.target is None else self.target.upload(array)


@dataclass(frozen=True)
class Duplicate:
    """A copy on the same device: for a result that is an input, a constant, or another result."""

    device: Device | None
    reads: tuple[int, ...]
    write: int

    def __str__(self) -> str:
        return f"copy on {HOST if self.device is None else self.device.name}"

    def run(self, slots: Slots) -> None:
        array = slots[self.reads[0]]
        slots[self.write] = np.array(array, order="C") if self.device is None else self.device.copy(array)


@dataclass(frozen=True)
class Call:
    """A function of arrays on the target: control flow, or loading a constant."""

    name: str
    function: Callable[[list[Any]], Sequence[Any]]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def __str__(self) -> str:
        return self.name

    def run(self, slots: Slots) -> None:
        results = self.function([slots[i] for i in self.reads])
        for slot, result in zip(self.writes, results, strict=True):
            slots[slot] = result


@dataclass(frozen=True)
class Direct:
    """One plan between moves from and to the host, by an executable that makes those moves itself.

    reads: for each array that the plan takes, its number among the inputs. order: for each result, its number among
    those that the plan makes.
    """

    executable: RunsFromHost
    reads: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, stages: Sequence[Stage], inputs: Sequence[int], results: Sequence[int]) -> Direct | None:
        """None where the stages are anything else. inputs, results: slots."""
        plans = [stage for stage in stages if isinstance(stage, RunPlan)]
        moves = {stage.write: stage for stage in stages if isinstance(stage, Move)}
        if len(plans) != 1 or len(stages) != 1 + len(moves) or not isinstance(plans[0].executable, RunsFromHost):
            return None
        (plan,) = plans
        taken = [moves[slot].reads[0] if slot in moves else -1 for slot in plan.reads]
        made = [moves[slot].reads[0] if slot in moves else -1 for slot in results]
        if not set(taken) <= set(inputs) or sorted(made) != sorted(plan.writes):
            return None
        order = tuple(plan.writes.index(slot) for slot in made)
        return cls(plans[0].executable, tuple(inputs.index(slot) for slot in taken), order)

    def run(self, arrays: Sequence[Any], into: Sequence[Any] | None) -> list[Any]:
        """See `Specialised.run`."""
        targets = None
        if into is not None:
            given = dict(zip(self.order, into, strict=True))
            targets = [given[number] for number in range(len(self.order))]
        made = self.executable.run_from_host([arrays[number] for number in self.reads], targets)
        return [made[number] for number in self.order]


class StageList:
    """Stages while they are put together; `slot` moves a value to where it is needed, once."""

    def __init__(self, graph: Graph, devices: dict[str, Device], home: str) -> None:
        self.stages: list[Stage] = []
        self.count = 0
        self._devices = devices
        self._slots: dict[tuple[Value, str], int] = {}
        self.inputs = tuple(self.new(value, home) for value in graph.inputs)

    def new(self, value: Value, device: str) -> int:
        self._slots[value, device] = self.count
        self.count += 1
        return self.count - 1

    def slot(self, value: Value, device: str) -> int:
        """The slot of the value on the device, after a move if it is only elsewhere."""
        found = self._slots.get((value, device))
        if found is not None:
            return found
        source, read = next((place, slot) for (v, place), slot in self._slots.items() if v is value)
        write = self.new(value, device)
        self.stages.append(Move(value, self._device(source), self._device(device), (read,), write))
        return write

    def output(self, value: Value, home: str, owned: bool) -> int:
        """The slot of a result at home; unless it is owned, of a copy."""
        slot = self.slot(value, home)
        if owned:
            return slot
        self.count += 1
        self.stages.append(Duplicate(self._device(home), (slot,), self.count - 1))
        return self.count - 1

    def dead_after(self, outputs: Sequence[int]) -> list[tuple[int, ...]]:
        """By stage, the slots that no later stage reads and that are no results."""
        last: dict[int, int] = {slot: i for i, stage in enumerate(self.stages) for slot in stage.reads}
        dead: list[list[int]] = [[] for _ in self.stages]
        for slot, stage in last.items():
            if slot not in outputs:
                dead[stage].append(slot)
        return [tuple(slots) for slots in dead]

    def _device(self, name: str) -> Device | None:
        return None if name == HOST else self._devices[name]
