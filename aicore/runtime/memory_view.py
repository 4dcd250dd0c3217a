"""A memory plan to look at: which bytes of the arena hold what, from which step to which, and what holds the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from itertools import pairwise
from typing import Any

from aicore.records import dataclass
from aicore.runtime.arena import aligned
from aicore.runtime.memory import size_text
from aicore.runtime.plan import Plan, Storage
from aicore.views import Part, PartsView, Picture, grid

_HOLDERS = 10
"""Buffers at the peak that the text names."""
_WIDTH, _HEIGHT = 72, 8
"""Of the chart in characters."""
_LEVELS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Lifetime:
    """Bytes of the arena that are in use from step `start` to step `end`, both included.

    kind: `buffer`, or `workspace` of the one step.
    end: the number of steps, where it is copied to an output behind the last.
    """

    name: str
    type: str
    kind: str
    offset: int
    nbytes: int
    start: int
    end: int


@dataclass(frozen=True)
class MemoryTimeline(PartsView):
    """The arena of one plan.

    steps: labels of the steps.
    arena, lower_bound, without_reuse, constants, outputs: bytes, as in `Memory`.
    """

    device: str
    steps: tuple[str, ...]
    lifetimes: tuple[Lifetime, ...]
    arena: int
    lower_bound: int
    without_reuse: int
    constants: int
    outputs: int

    @classmethod
    def of(cls, plan: Plan) -> MemoryTimeline:
        memory = plan.memory
        return cls(
            plan.device,
            tuple(str(step.node) for step in plan.steps),
            tuple(_lifetimes(plan)),
            memory.arena,
            memory.lower_bound,
            memory.without_reuse,
            memory.constants,
            memory.outputs,
        )

    @cached_property
    def alive(self) -> tuple[int, ...]:
        """Bytes that are alive at each step, and behind the last one if any are; each buffer in whole cache lines."""
        count = max([len(self.steps), *(life.end + 1 for life in self.lifetimes)])
        change = [0] * (count + 1)
        for life in self.lifetimes:
            change[life.start] += aligned(life.nbytes)
            change[life.end + 1] -= aligned(life.nbytes)
        found, now = [], 0
        for one in change[:-1]:
            now += one
            found.append(now)
        return tuple(found)

    @property
    def peak(self) -> int | None:
        """The first step at which most bytes are alive; None where there is no arena."""
        return self.alive.index(max(self.alive)) if any(self.alive) else None

    @property
    def holders(self) -> tuple[Lifetime, ...]:
        """What is alive at the peak, largest first."""
        at = self.peak
        if at is None:
            return ()
        alive = [life for life in self.lifetimes if life.start <= at <= life.end and life.nbytes]
        return tuple(sorted(alive, key=lambda life: (-life.nbytes, life.offset)))

    @property
    def fragmentation(self) -> float:
        """The share of the arena that holds nothing even at the peak: what packing lost against the lower bound."""
        return 1 - self.lower_bound / self.arena if self.arena else 0.0

    def label(self, step: int) -> str:
        return self.steps[step] if step < len(self.steps) else "outputs, behind the last step"

    def parts(self) -> Iterator[Part]:
        yield (
            f"arena on {self.device}: {size_text(self.arena)}; lower bound {size_text(self.lower_bound)}, "
            f"so {self.fragmentation:.1%} lost to fragmentation; without reuse {size_text(self.without_reuse)}"
            f"{_times(self.without_reuse, self.arena)}"
        )
        yield f"constants {size_text(self.constants)}, outputs {size_text(self.outputs)}"
        if self.peak is None:
            return
        yield Picture(self._chart(), _svg(self))
        holders = self.holders
        yield f"peak at step {self.peak} of {len(self.steps)}, {self.label(self.peak)}; it is held by:"
        rows = [
            (life.name, life.type, size_text(life.nbytes), f"{life.offset:,}", f"{life.start}-{life.end}")
            for life in holders[:_HOLDERS]
        ]
        yield grid(("buffer", "type", "size", "offset", "steps"), rows, right=("size", "offset", "steps"))
        if len(holders) > _HOLDERS:
            yield f"and {len(holders) - _HOLDERS} smaller ones"

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "steps": list(self.steps),
            "arena": self.arena,
            "lower_bound": self.lower_bound,
            "without_reuse": self.without_reuse,
            "constants": self.constants,
            "outputs": self.outputs,
            "fragmentation": self.fragmentation,
            "alive": list(self.alive),
            "peak": None if self.peak is None else {"step": self.peak, "bytes": max(self.alive)},
            "lifetimes": [
                {
                    "name": life.name,
                    "type": life.type,
                    "kind": life.kind,
                    "offset": life.offset,
                    "bytes": life.nbytes,
                    "start": life.start,
                    "end": life.end,
                }
                for life in self.lifetimes
            ],
        }

    def _chart(self) -> str:
        """Bytes alive by step, as columns of characters; each column shows the most of its steps."""
        columns = _columns(self.alive, _WIDTH)
        most = max(columns)
        eighths = [round(bytes_ * _HEIGHT * 8 / most) for bytes_ in columns]
        lines = [
            "".join(_LEVELS[min(max(height - 8 * row, 0), 8)] for height in eighths) for row in reversed(range(_HEIGHT))
        ]
        lines[0] += f"  {size_text(most)}"
        return "\n".join([*(line.rstrip() for line in lines), f"bytes alive, from step 0 to {len(self.alive) - 1}"])


@dataclass(frozen=True)
class MemoryView(PartsView):
    """The memory of a program for its latest input shapes: one timeline for each plan."""

    plans: tuple[MemoryTimeline, ...]

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> MemoryView:
        return cls(tuple(map(MemoryTimeline.of, plans)))

    def parts(self) -> Iterator[Part]:
        if not self.plans:
            yield "no memory is planned yet: call the program, or `specialise` it"
        for i, plan in enumerate(self.plans):
            if i:
                yield ""
            yield from plan.parts()

    def to_json(self) -> dict[str, Any]:
        return {"plans": [plan.to_json() for plan in self.plans]}


def _lifetimes(plan: Plan) -> Iterator[Lifetime]:
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    for number, step in enumerate(plan.steps):
        for output in step.outputs:
            born.setdefault(plan.buffers[output].root, number)
        dies.update(dict.fromkeys(step.dies, number))
    for root, start in born.items():
        buffer = plan.buffers[root]
        if buffer.storage is Storage.ARENA:
            end = dies.get(root, len(plan.steps))
            yield Lifetime(buffer.name, str(buffer.type), "buffer", buffer.offset, buffer.nbytes, start, end)
    for number, step in enumerate(plan.steps):
        offset, nbytes = step.workspace
        if nbytes:
            name = f"workspace of {step.outputs and plan.buffers[step.outputs[0]].name}"
            yield Lifetime(name, f"{nbytes} bytes", "workspace", offset, nbytes, number, number)


def _columns(values: Sequence[int], width: int) -> list[int]:
    """At most `width` values, each the largest of its share."""
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]


def _times(larger: int, smaller: int) -> str:
    return f" ({larger / smaller:.1f} times as much)" if smaller else ""


def _svg(timeline: MemoryTimeline) -> str:
    """Lifetimes over offsets; steps go to the right, addresses up."""
    steps = max(len(timeline.alive), 1)
    boxes = []
    for number, life in enumerate(timeline.lifetimes):
        if not life.nbytes:
            continue
        hue = number * 47 % 360
        x, width = 1000 * life.start / steps, 1000 * (life.end + 1 - life.start) / steps
        y, height = 300 * (1 - (life.offset + life.nbytes) / timeline.arena), 300 * life.nbytes / timeline.arena
        title = f"{life.name}: {life.type}, {size_text(life.nbytes)} at {life.offset}, steps {life.start}-{life.end}"
        boxes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{max(height, 0.5):.1f}" '
            f'fill="hsl({hue} 55% 60%)" stroke="Canvas" stroke-width=".4"><title>{escape(title)}</title></rect>'
        )
    label = f"memory of {timeline.device}: lifetimes over offsets"
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 1000 300" preserveAspectRatio="none" '
        f'style="width:100%;max-width:1000px;height:300px;border:1px solid GrayText">{"".join(boxes)}</svg>'
    )
