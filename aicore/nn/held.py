"""Which results of the forward pass a plan holds until the backward pass reads them, and what they take."""

from __future__ import annotations

from collections.abc import Iterable

from aicore.ir import RECOMPUTED, Node
from aicore.records import dataclass
from aicore.runtime import Plan, Step, Storage
from aicore.runtime.memory import size_text


@dataclass(frozen=True)
class Held:
    """One buffer that is written by the forward pass and read by the backward pass.

    layer: the source of the node that writes it. op: that node's op. readers: ops that read it in the backward pass.
    """

    name: str
    layer: str
    op: str
    nbytes: int
    readers: tuple[str, ...]


@dataclass(frozen=True)
class HeldView:
    """All of them, largest first; text by `str`. arena: bytes of the step's arena."""

    rows: tuple[Held, ...]
    arena: int

    @property
    def nbytes(self) -> int:
        return sum(row.nbytes for row in self.rows)

    def __str__(self) -> str:
        head = f"{len(self.rows)} activations are held, {size_text(self.nbytes)}; the arena has {size_text(self.arena)}"
        lines = [
            f"  {size_text(r.nbytes):>10}  {r.layer or r.name} ({r.op}), for {', '.join(dict.fromkeys(r.readers))}"
            for r in self.rows
        ]
        return "\n".join([head, *lines])

    __repr__ = __str__


def held_activations(plans: Iterable[Plan]) -> HeldView:
    """Of all plans of a training step together."""
    found: list[Held] = []
    arena = 0
    for plan in plans:
        arena += plan.memory.arena
        found.extend(_held_of(plan))
    return HeldView(tuple(sorted(found, key=lambda one: -one.nbytes)), arena)


def _held_of(plan: Plan) -> Iterable[Held]:
    writers: dict[int, Step] = {}
    readers: dict[int, list[str]] = {}
    for step in plan.steps:
        if _is_backward(step.node):
            for number in step.inputs:
                if number is not None:
                    readers.setdefault(plan.buffers[number].root, []).append(type(step.node.op).__name__)
        else:
            for number in step.outputs:
                writers[plan.buffers[number].root] = step
    for root, step in writers.items():
        buffer = plan.buffers[root]
        if root in readers and buffer.storage is Storage.ARENA:
            layer = ", ".join(step.node.origin.names()[:2])
            yield Held(buffer.name, layer, type(step.node.op).__name__, buffer.nbytes, tuple(readers[root]))


def _is_backward(node: Node) -> bool:
    return any(rule.startswith(("grad#", f"{RECOMPUTED}#")) for rule in node.origin.rules())
