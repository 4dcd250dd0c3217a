"""What a pass is: a frozen dataclass that turns a graph into a better one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

from aicore.errors import AicoreError
from aicore.ir import Graph, Op, subgraphs, walk_graphs
from aicore.records import dataclass
from aicore.rewrite import Context, Rule, rewrite

PHASES = ("simplify", "fuse", "lower", "clean")
"""In this order: make the graph smaller; join ops; replace what the target lacks; sweep up what is left."""

_SWEEP_LIMIT = 50


@dataclass(frozen=True)
class Pass:
    """Options are fields. The graph given is never changed: `apply` returns another one, or the same.

    name: a verb in kebab-case, unique.
    phase: one of PHASES.
    before, after: names of passes of the same phase that this one must precede or follow, where they are present.
    required: programs may not run without it, so it is never left out.
    """

    name: ClassVar[str] = ""
    phase: ClassVar[str] = "simplify"
    before: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    required: ClassVar[bool] = False

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        """The better graph. Ask `ctx.change()` before each change."""
        raise NotImplementedError(f"{type(self).__name__}.apply")

    def alternatives(self, graph: Graph, ctx: Context) -> dict[str, Sequence[Any]]:
        """Values of fields, by field, that may make a faster program of this graph than those that the pass has.

        Tuning tries each by itself, and keeps what a whole program gains by. Names in a tuple are tried one by one,
        and those that pay together.
        """
        return {}


def is_required(one: Pass) -> bool:
    """Whether it is never left out. A plugin's pass need not be a Pass, and may have only what it is asked for."""
    return bool(getattr(one, "required", False))


@dataclass(frozen=True)
class RulePass(Pass):
    """Applies its rules in order, each until it finds nothing more, so a large fusion listed first wins."""

    rules: ClassVar[tuple[Rule, ...]] = ()

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        for rule in self.rules:
            if rule.name in ctx.off:
                continue
            for stage in _stages(rule):
                graph = _to_fixpoint(graph, stage, ctx)
        return graph


@cache
def _stages(rule: Rule) -> tuple[Rule, ...]:
    """The rule, split where its patterns end in different ops.

    A sweep meets a multiplication before the addition that follows it, so the pattern that ends in the addition, an
    optional bias, needs a sweep of its own first.
    """
    groups = itertools.groupby(rule.patterns, key=lambda outputs: outputs[0].call.op.classes)
    return tuple(replace(rule, patterns=tuple(patterns)) for _, patterns in groups)


def _to_fixpoint(graph: Graph, rule: Rule, ctx: Context) -> Graph:
    for _ in range(_SWEEP_LIMIT):
        before, graph = graph, rewrite(graph, (rule,), ctx)
        if graph is before:
            return graph
    ctx.note(f"rule {rule.name} still found work after {_SWEEP_LIMIT} sweeps")
    return graph


def is_random(op: Op) -> bool:
    """Whether the op, or one in its sub-graphs, draws random numbers: it is impure, or has a stream to draw from."""
    if not op.pure or hasattr(op, "stream"):
        return True
    inner = (node.op for graph in subgraphs(op).values() for one in walk_graphs(graph) for node in one.nodes)
    return any(not one.pure or hasattr(one, "stream") for one in inner)


def order_passes(passes: Iterable[Pass]) -> tuple[Pass, ...]:
    """The passes by phase, then as `before` and `after` ask, then as given.

    Raises AicoreError for an unknown phase, two passes of one name, or requests that contradict each other.
    """
    given = list(passes)
    names = [p.name for p in given]
    for one in given:
        if one.phase not in PHASES:
            raise AicoreError(f"pass {one.name}: phase {one.phase!r} is none of {', '.join(PHASES)}")
        if names.count(one.name) > 1:
            raise AicoreError(f"two passes are called {one.name}")
    return tuple(one for phase in PHASES for one in _ordered([p for p in given if p.phase == phase]))


def _ordered(passes: list[Pass]) -> list[Pass]:
    """The first pass that waits for none of the others, again and again."""
    waits = {one.name: {other.name for other in passes if _precedes(other, one)} for one in passes}
    ordered: list[Pass] = []
    left = list(passes)
    while left:
        free = next((one for one in left if not waits[one.name] & {other.name for other in left}), None)
        if free is None:
            raise AicoreError(f"passes wait for each other: {', '.join(one.name for one in left)}")
        ordered.append(free)
        left.remove(free)
    return ordered


def _precedes(first: Pass, second: Pass) -> bool:
    return second.name in first.before or first.name in second.after
