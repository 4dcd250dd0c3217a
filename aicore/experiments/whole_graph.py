"""Choices that interact, searched over whole programs: layout, fusions, sizes of Regions.

Greedy: each choice is tried on top of those that paid so far, by its numbers first and then by time in pairs. At the
end programs that are compiled anew, the default and the best, run in pairs once more; ties go to the default.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from aicore.api import compile  # noqa: A004  # aicore.compile
from aicore.errors import AicoreError
from aicore.experiments.sides import Bench, Feeds, Side, check_store
from aicore.ir import Graph
from aicore.passes import Choices, PassStep, RulePass
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.records import dataclass
from aicore.runtime import using_threads
from aicore.tuning import Comparison, Measure, compare_runs
from aicore.tuning.graphs import DEFAULT, Verdict
from aicore.tuning.paired import LEAST_PAIRS
from aicore.views import View

_SHARE_OF_THE_END = 0.25
"""Of the time, for the last comparison with the default."""
_KERNELS, _KERNELS_OF_DEFAULT = 0.5, 0.15
"""Of the time for one choice, and of all the time, to measure kernels that are not measured yet, on both sides."""

Change: TypeAlias = "tuple[str, str, Any]"
"""("", rule or pass, None) leaves it out; (pass, field, value) sets an option, and adds names to a tuple of names."""


@dataclass(frozen=True)
class Tried:
    """One choice, tried on top of others.

    choices: all together. time: over the best ones before; None where it was not timed, and `note` says why.
    """

    change: str
    choices: str
    time: Comparison | None
    accepted: bool
    note: str


@dataclass(frozen=True)
class GraphTuning(View):
    """What searching found.

    final: the best program over the default one, both compiled anew; None when nothing paid.
    tried: in order. left: choices that the time did not reach.
    finished: False when it was interrupted; what was accepted until then is kept.
    kept: where; empty when nothing was stored.
    """

    target: str
    chosen: Choices
    final: Comparison | None
    tried: tuple[Tried, ...]
    left: int
    seconds: float
    finished: bool = True
    kept: str = ""

    @property
    def summary(self) -> str:
        count = f"{len(self.tried)} choices tried in {self.seconds:.0f} s"
        count += f", {self.left} not reached" if self.left else ""
        if not self.chosen:
            return f"the default stays: nothing was faster beyond the noise ({count})"
        gain = "" if self.final is None else f": {self.final}"
        return f"{self.chosen}{gain} ({count})"

    def rows(self) -> list[tuple[str, str, str]]:
        return [(one.change, "" if one.time is None else str(one.time), one.note) for one in self.tried]

    def __str__(self) -> str:
        lines = [f"{change:44} {took:64} {note}".rstrip() for change, took, note in self.rows()]
        return "\n".join([*lines, self.summary, *([self.kept] if self.kept else [])])

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table("choice", "time over the best before", "", box=None, pad_edge=False)
        for one, row in zip(self.tried, self.rows(), strict=True):
            table.add_row(*map(Text, row), style="green" if one.accepted else "")
        return Group(table, Text(self.summary, "bold"), Text(self.kept))

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "chosen": str(self.chosen),
            "final": None if self.final is None else self.final.to_json(),
            "tried": [
                {
                    "change": one.change, "choices": one.choices, "accepted": one.accepted, "note": one.note,
                    "time": None if one.time is None else one.time.to_json(),
                }
                for one in self.tried
            ],
            "left": self.left,
            "seconds": self.seconds,
            "finished": self.finished,
            "kept": self.kept or None,
        }  # fmt: skip


def tune_graph(
    graph: Graph,
    feeds: Feeds,
    *,
    target: str | None = None,
    seconds: float = 60.0,
    keep: bool = True,
    threads: int | None = None,
    registry: PluginRegistry | None = None,
    advance: Callable[[int, int, str], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> GraphTuning:
    """Search the choices of the passes that make the model fastest on a device, for inputs of these shapes.

    feeds: an array for each input. seconds: to search for. keep: store the result, which `compile` then uses; what was
    accepted is stored at once, so Ctrl-C loses nothing.
    advance: is told how many choices were tried, of how many, and which one is next.
    Raises AicoreError when the default program fails or is wrong, TuningError when the store cannot be written.
    """
    registry = plugin_registry() if registry is None else registry
    if keep:
        check_store()
    search = _Search(Bench(graph, feeds, target, registry, threads), seconds, keep, clock)
    finished = True
    try:
        search.run(advance or (lambda done, total, what: None))
    except KeyboardInterrupt:
        finished = False
    return search.result(finished)


class _Search:
    def __init__(self, bench: Bench, seconds: float, keep: bool, clock: Callable[[], float]) -> None:
        self._bench, self._keep, self._clock = bench, keep, clock
        self._begin = clock()
        self._end = self._begin + seconds
        self._final_seconds = seconds * _SHARE_OF_THE_END
        self._tried: list[Tried] = []
        self._refused: dict[str, str] = {}
        self._left = 0
        self._kept = ""
        self._final: Comparison | None = None
        self.default = _sound(self._side(Choices(), seconds * _KERNELS_OF_DEFAULT))
        self.best = self.default

    def run(self, advance: Callable[[int, int, str], object]) -> None:
        waiting = list(self._changes())
        total, seen, improved = len(waiting), {self.default.fingerprint}, True
        while improved and waiting:
            improved, again = False, []
            for place, change in enumerate(waiting):
                if self._clock() > self._end - self._final_seconds:
                    self._left = len(waiting) - place
                    break
                advance(len(self._tried), total, _text(change))
                accepted = self._try(change, seen, len(waiting) - place)
                improved |= accepted
                again += [] if accepted or self._tried[-1].choices in self._refused else [change]
            waiting = again if improved and not self._left else []
            total += len(waiting)
        advance(len(self._tried), total, "the default again")
        self._confirm()

    def result(self, finished: bool) -> GraphTuning:
        taken = self._clock() - self._begin
        return GraphTuning(
            self._bench.target, self.best.choices, self._final, tuple(self._tried), self._left, taken, finished,
            self._kept,
        )  # fmt: skip

    def _changes(self) -> Iterator[Change]:
        """Layout first, then sizes of Regions, then fusions, those with most matches first."""
        bench = self._bench
        program = compile(
            bench.graph, bench.target, choices=Choices(), trace=True, threads=bench.threads, registry=bench.registry
        )
        steps = [step for step in program.trace.steps if step.applied.phase == "fuse" and step.stage == "whole"]
        for step in sorted(steps, key=lambda step: step.name != "place-channels-last"):
            offered = getattr(step.applied, "alternatives", None)  # a plugin's own class need not have it
            for field, values in offered(step.before, step.told.anew()).items() if offered else ():
                yield from ((step.name, field, value) for value in values)
        found = [(row, name) for step in steps for row, name in _rules(step)]
        yield from (("", name, None) for matches, name in sorted(found, reverse=True) if matches)

    def _try(self, change: Change, seen: set[str], waiting: int) -> bool:
        """Whether it was accepted. waiting: changes that share the time which is left."""
        choices = _with(self.best.choices, change)
        share = max(self._end - self._final_seconds - self._clock(), 0.0) / waiting
        side = self._side(choices, share * _KERNELS)
        note, took, accepted = self._objection(side, seen), None, False
        seen.add(side.fingerprint)
        if not note:
            took = self._compared(self.best, side, share, only_gains=True)
            accepted = took.verdict == "faster"
            note = "accepted" if accepted else "slower in each pair" if took.pairs < LEAST_PAIRS else ""
        if accepted:
            self.best = side
            self._store(took)
        self._tried.append(Tried(_text(change), str(choices), took, accepted, note))
        return accepted

    def _side(self, choices: Choices, budget: float) -> Side:
        """A program with measured kernels, as far as results may be stored."""
        return self._bench.side(choices, Measure(budget=budget) if self._keep else "cached")

    def _objection(self, side: Side, seen: set[str]) -> str:
        if side.wrong or (self._bench.whole is None and not self._bench.is_close(side, self.default)):
            self._refused[str(side.choices)] = side.wrong or "other results than the default"
            return f"refused: {self._refused[str(side.choices)]}"
        return "the program is one that was tried already" if side.fingerprint in seen else ""

    def _confirm(self) -> None:
        """Both compiled anew, so that no accident of one program, such as where its memory lies, decides."""
        if self.best is not self.default:
            default, best = (self._bench.side(side.choices, "cached") for side in (self.default, self.best))
            self._final = self._compared(default, best, self._final_seconds)
            self.best = best if self._final.verdict == "faster" and not best.wrong else default
        self._store(self._final)

    def _compared(self, base: Side, other: Side, seconds: float, only_gains: bool = False) -> Comparison:
        return compare_runs(
            self._bench.runner(base), self._bench.runner(other), seconds, only_gains=only_gains, clock=self._clock
        )

    def _store(self, took: Comparison | None) -> None:
        if not self._keep:
            return
        chosen = str(self.best.choices)
        seconds = {DEFAULT: self.default.seconds, chosen: self.best.seconds}
        gain = (1.0, 1.0, 1.0)
        if took is not None and chosen != DEFAULT:
            seconds[chosen] = took.seconds[1]
            gain = took.ratio, took.low, took.high
        records = self._bench.records
        with using_threads(self._bench.run_threads):
            records.keep(self._bench.types, Verdict(chosen, seconds, gain, self._refused))
        self._kept = f"kept in {records.store.path}; `compile` uses it for these shapes"


def _rules(step: PassStep) -> Sequence[tuple[int, str]]:
    """(matches, name) of what may be left out of a pass."""
    if isinstance(step.applied, RulePass):
        return [(row.matches, row.name) for row in step.row.rules]
    return [(step.row.matches, step.name)]


def _with(choices: Choices, change: Change) -> Choices:
    name, field, value = change
    if not name:
        return choices.without(field)
    if isinstance(value, tuple):
        now = [item for n, f, v in choices.settings if (n, f) == (name, field) and isinstance(v, tuple) for item in v]
        value = tuple(dict.fromkeys([*now, *value]))
    return choices.set(name, field, value)


def _text(change: Change) -> str:
    return str(_with(Choices(), change))


def _sound(side: Side) -> Side:
    if side.program is None or side.wrong:
        raise AicoreError(
            f"the default is wrong, so there is nothing to compare with: {side.wrong}; `aicore bisect` tells why"
        )
    return side
