"""What became of a graph: passes, places, kernels with every candidate, and memory, as text and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from typing import Any

from aicore.ir import describe
from aicore.kernels import Candidate, Choose
from aicore.records import dataclass
from aicore.runtime.plan import Plan, Step
from aicore.runtime.specialise import CacheStatistics
from aicore.runtime.specialised import Specialised
from aicore.views import View


@dataclass(frozen=True)
class KernelChoice:
    """One node of a plan: its name, device and kernel, and all candidates, best first and unusable ones last.

    note: why a Concat copies, or needs no kernel.
    """

    node: str
    device: str
    kernel: str
    candidates: tuple[Candidate, ...]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "device": self.device,
            "kernel": self.kernel,
            "note": self.note,
            "candidates": [
                {"kernel": c.kernel.name, "usable": c.usable, "seconds": c.seconds, "note": c.note}
                for c in self.candidates
            ],
        }


@dataclass(frozen=True)
class Explanation(View):
    """Text by `str`, plain data by `to_json`.

    target: why this target was chosen.
    passes: reports of the passes on the whole graph, and on the graph of concrete shapes.
    specialised: None while no input has been seen and the graph leaves shapes open.
    tuning: what looked up measured times; None when they were ignored.
    choices: what the passes did otherwise than by default, and why; empty for the default.
    """

    target: str
    passes: tuple[Any, ...]
    specialised: Specialised | None
    cache: CacheStatistics
    tuning: Choose | None = None
    choices: str = ""

    @property
    def kernels(self) -> list[KernelChoice]:
        """What runs each node, in order; nodes that only rename bytes have the kernel `alias`."""
        return [choice for plan in plans_of(self.specialised) for choice in _choices(plan)]

    @property
    def placement(self) -> str:
        return (
            "nothing is specialised yet: call the program"
            if self.specialised is None
            else str(self.specialised.placement)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "choices": self.choices or None,
            "passes": [_plain(report) for report in self.passes],
            "placement": self.placement,
            "kernels": [choice.to_json() for choice in self.kernels],
            "memory": [
                {
                    "device": plan.device,
                    "arena": plan.memory.arena,
                    "lower_bound": plan.memory.lower_bound,
                    "without_reuse": plan.memory.without_reuse,
                    "constants": plan.memory.constants,
                    "outputs": plan.memory.outputs,
                }
                for plan in plans_of(self.specialised)
            ],
            "tuning": None if self.tuning is None else {"hits": self.tuning.hits, "misses": dict(self.tuning.misses)},
            "specialisations": {
                "hits": self.cache.hits,
                "misses": self.cache.misses,
                "evictions": self.cache.evictions,
                "size": self.cache.size,
                "capacity": self.cache.capacity,
            },
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _tuning(self) -> str:
        if self.tuning is None:
            return "ignored"
        misses = "".join(f"; {count} not: {reason}" for reason, count in self.tuning.misses.most_common())
        return f"{self.tuning.hits} kernels chosen by them{misses}"

    def _lines(self) -> Iterator[str]:
        yield self.target
        yield f"choices: {self.choices or 'the default passes'}"
        for heading, report in zip(("passes:", "passes, once the sizes were known:"), self.passes, strict=False):
            yield heading
            yield _indented(str(report))
        yield f"placement: {self.placement}"
        for plan in plans_of(self.specialised):
            yield f"memory on {plan.device}: {plan.memory}"
        yield "kernels:"
        for choice in self.kernels:
            yield f"  {choice.node} on {choice.device}: {choice.kernel}{f' ({choice.note})' if choice.note else ''}"
            yield from (f"      {candidate}" for candidate in choice.candidates)
        yield f"tuned times: {self._tuning()}"
        yield (
            f"specialisations: {self.cache.size} of {self.cache.capacity} kept, {self.cache.hits} hits, "
            f"{self.cache.misses} misses, {self.cache.evictions} evictions"
        )


def plans_of(specialised: Specialised | None) -> list[Plan]:
    """The plans of a specialisation, in the order in which they run."""
    return [] if specialised is None else [executable.plan for executable in specialised.executables]


def _choices(plan: Plan) -> Iterator[KernelChoice]:
    for node in plan.aliased:
        name = describe(node.op, node.outputs[0].name, node.origin)
        yield KernelChoice(name, plan.device, "alias", (), plan.notes.get(node, ""))
    for step in plan.steps:
        yield _choice(plan, step)


def _choice(plan: Plan, step: Step) -> KernelChoice:
    note = plan.notes.get(step.node, "")
    return KernelChoice(str(step.node), plan.device, step.kernel.name, step.selection.candidates, note)


def _plain(report: Any) -> Any:
    return asdict(report) if is_dataclass(report) and not isinstance(report, type) else str(report)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
