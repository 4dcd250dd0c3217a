"""Finding the one change that makes a result wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from aicore.ir import Graph
from aicore.passes.base import Pass, is_required
from aicore.passes.manager import run_passes
from aicore.records import dataclass
from aicore.rewrite import Context


@dataclass(frozen=True)
class Culprit:
    """The first change after which the result is bad.

    match: its number, counted over all passes; -1 when there is none.
    runs: how often the passes ran.
    before: how many changes a budget allows before it; those of required passes have numbers, and cost no budget.
    """

    pass_name: str
    rule: str
    match: int
    runs: int
    before: int = 0

    def __str__(self) -> str:
        if self.match < 0:
            return f"{self.pass_name or 'nothing is bad'} ({self.runs} runs)"
        return f"{self.pass_name}: {self.rule or 'change'}#{self.match} ({self.runs} runs)"


def bisect(
    graph: Graph,
    passes: Iterable[Pass],
    is_good: Callable[[Graph], bool],
    make_context: Callable[[], Context] = Context,
) -> Culprit:
    """The change, among N, after which `is_good` says no; takes at most ceil(log2 N) + 2 runs of the passes.

    make_context: a fresh context for each run.
    """
    passes = tuple(passes)
    required = {one.name for one in passes if is_required(one)}
    runs = 0

    def attempt(budget: float) -> tuple[bool, list[tuple[int, str, str]]]:
        """Whether it is good, and (number, pass, rule) of the changes that the budget counts."""
        nonlocal runs
        runs += 1
        ctx = make_context()
        ctx.budget = budget
        result, _ = run_passes(graph, passes, ctx)
        counted = [(i, *change) for i, change in enumerate(ctx.changes) if change[0] not in required]
        return is_good(result), counted

    good, changes = attempt(math.inf)
    if good:
        return Culprit("", "", -1, runs)
    if not attempt(0)[0]:
        return Culprit("bad before any change", "", -1, runs)
    low, high = 0, len(changes)  # good after `low` changes, bad after `high`
    while high - low > 1:
        middle = (low + high) // 2
        good, made = attempt(middle)
        if good:
            low = middle
        else:
            high, changes = middle, made
    match, pass_name, rule = changes[high - 1] if changes else (-1, "a pass that asks for no change", "")
    return Culprit(pass_name, rule, match, runs, max(high - 1, 0))
