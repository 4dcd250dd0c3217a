"""Measures the kernels that a graph could use, and keeps the results where the selector finds them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aicore.errors import AicoreError, OutOfMemoryError
from aicore.ir import Graph, Node, Op, walk_graphs
from aicore.kernels import Candidate
from aicore.numerics.expected import Evaluate, expect
from aicore.records import dataclass
from aicore.runtime import Backend, is_control_flow, only_renames
from aicore.tuning.chooser import Chooser, considered
from aicore.tuning.contest import contest
from aicore.tuning.problems import problem_text
from aicore.tuning.records import Record
from aicore.tuning.repeats import repeats_of
from aicore.tuning.store import Row, TuningStore
from aicore.tuning.trial import Trial, made_up, variables

if TYPE_CHECKING:
    from aicore.tuning.races import Raced

Array = np.ndarray[Any, Any]
Fault: TypeAlias = Callable[[Sequence[Array]], str]
"""Says what is wrong with results; nothing when they are right."""
MOST_CANDIDATES = 24
"""Best ones by estimate that are timed for one problem."""
_SURE_CANDIDATES, _REACH = 8, 1.75
"""So many are timed whatever their estimates; others only if theirs are within this factor of the default's."""
_FOREIGN_FACTOR = 1.25
"""On the word of another device, only candidates within this factor of its best are timed."""

_log = logging.getLogger("aicore.tuning")


@dataclass(frozen=True)
class Problem:
    """Nodes that are alike to every kernel.

    text: what is measured, as the store names it.
    node: one of them. count: how many there are.
    candidates: usable kernels, the default first.
    """

    text: str
    node: Node
    count: int
    candidates: tuple[Candidate, ...]

    @property
    def weight(self) -> float:
        """Seconds of a run that the default is expected to take for all of these nodes."""
        return self.count * (self.candidates[0].seconds or 0.0)


@dataclass(frozen=True)
class Outcome:
    """What became of one problem: a record, or the reason why there is none.

    timed: how many candidates were timed.
    """

    problem: Problem
    record: Record | None
    reason: str = ""
    timed: int = 0


@dataclass(frozen=True)
class Measure:
    """How to measure what is not known yet, when a graph is specialised.

    budget: seconds for one graph, from the heaviest problem down; what it does not reach keeps its default.
    again: measure also what the store has an answer for.
    started, finished: are told of the problems, and of what became of each; raced: of each race between ways.
    """

    budget: float = 60.0
    again: bool = False
    started: Callable[[Sequence[Problem]], None] | None = None
    finished: Callable[[Outcome], None] | None = None
    raced: Callable[[Raced], None] | None = None


class Tuner:
    """Tunes graphs for one device.

    evaluate: computes ops with reference kernels; what a kernel gives is compared before it is timed.
    chooser: what the selector of the backend asks; it learns each record at once, the store after each problem.
    """

    def __init__(self, backend: Backend, chooser: Chooser, evaluate: Evaluate) -> None:
        self._backend = backend
        self._untuned = replace(backend, selector=replace(backend.selector, tuned=None))
        self._chooser = chooser
        self._store: TuningStore = chooser.store
        self._evaluate = evaluate
        self._measured: set[str] = set()

    def problems(self, graph: Graph, again: bool = False) -> list[Problem]:
        """Problems of a graph of concrete shapes that have more than one kernel, heaviest first.

        again: also those that the store has an answer for, but not from this tuner.
        """
        found: dict[str, Problem] = {}
        for node in (node for one in walk_graphs(graph) for node in one.nodes):
            problem = self._problem(node)
            if problem is None or problem.text in self._measured or (not again and self._is_known(problem)):
                continue
            known = found.get(problem.text)
            found[problem.text] = problem if known is None else replace(known, count=known.count + 1)
        return sorted(found.values(), key=lambda problem: -problem.weight)

    def run(self, graph: Graph, how: Measure) -> list[Outcome]:
        """Measure the graph's problems until the budget is spent; each result is kept at once.

        What was measured stays when this is interrupted. A store that cannot be written is said once, in the log.
        """
        problems = self.problems(graph, how.again)
        if how.started is not None:
            how.started(problems)
        end = time.monotonic() + how.budget
        outcomes: list[Outcome] = []
        for problem in problems:
            if time.monotonic() >= end:
                break
            outcome = self.measure(problem)
            outcomes.append(outcome)
            self._measured.add(problem.text)
            if outcome.record is not None:
                self._keep(problem, outcome.record)
            if how.finished is not None:
                how.finished(outcome)
        return outcomes

    def measure(self, problem: Problem) -> Outcome:
        """Time the candidates whose numbers are right, and say which one to use."""
        candidates = self._worth_timing(problem)
        try:
            arrays, fault = self._numbers(problem.node)
        except AicoreError as error:
            return Outcome(problem, None, f"no numbers to compare with: {error}")
        trials: dict[str, Trial] = {}
        refused: dict[str, str] = {}
        for candidate in candidates:
            try:
                tried = self._tried(problem.node, candidate, arrays, fault)
            except OutOfMemoryError as error:
                if not trials:
                    return Outcome(problem, None, f"there is no room to try it: {error}")
                break  # those with the best estimates are in
            if isinstance(tried, Trial):
                trials[candidate.name] = tried
            else:
                refused[candidate.name] = tried
                _log.warning("%s is not used for %s: %s", candidate.name, problem.node, tried)
        if not trials:
            return Outcome(problem, None, f"no kernel computes it rightly: {next(iter(refused.values()))}")
        names = list(trials)
        result = contest(len(names), lambda i: trials[names[i]].seconds())
        for trial in trials.values():
            trial.executable.release()
        record = Record(
            chosen=names[result.winner],
            default=names[0],
            seconds={names[i]: seconds for i, seconds in result.seconds.items()},
            gain=(result.gain.middle, result.gain.low, result.gain.high),
            considered=considered(problem.candidates),
            refused=refused,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return Outcome(problem, record, timed=len(trials))

    def _numbers(self, node: Node) -> tuple[list[Array], Fault]:
        """Operands, and what says whether results for them are right."""
        repeats = repeats_of(node)
        few = made_up(node, repeats)
        expected = expect(self._evaluate, *_given(node, few), self._chooser.precision)
        if repeats is None:
            return few, expected.fault
        arrays = [repeats.repeated(value, array) for value, array in zip(variables(node), few, strict=True)]
        return arrays, partial(repeats.fault, expected)

    def _tried(self, node: Node, candidate: Candidate, arrays: Sequence[Array], fault: Fault) -> Trial | str:
        """The candidate ready to be timed, or what is wrong with it. Raises OutOfMemoryError."""
        try:
            trial = Trial.of(node, candidate, arrays, self._backend)
            wrong = fault(trial.results())
            if wrong:
                return wrong
            trial.prepare()
        except OutOfMemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # a kernel may raise anything, and then it is no candidate
            return f"{type(error).__name__}: {error}"
        return trial

    def _problem(self, node: Node) -> Problem | None:
        if is_control_flow(node.op) or only_renames(node):
            return None
        values = [v for v in (*node.inputs, *node.outputs) if v is not None]
        if not all(value.type.is_static and value.type.size for value in values):
            return None
        types = [None if v is None else v.type for v in node.inputs]
        constant = [i for i, v in enumerate(node.inputs) if v is not None and v.constant is not None]
        text = problem_text(node.op, types, constant, self._chooser.precision)
        try:
            candidates = self._untuned.select(node).candidates
        except AicoreError:  # it runs on another device
            return None
        usable = tuple(candidate for candidate in candidates if candidate.usable)
        if text is None or len(usable) < 2 or usable[0].note == "asked for":
            return None
        return Problem(text, node, 1, usable)

    def _is_known(self, problem: Problem) -> bool:
        record = self._chooser.known(problem.text)
        return record is not None and record.considered == considered(problem.candidates)

    def _worth_timing(self, problem: Problem) -> Sequence[Candidate]:
        """The default, and the best by estimate; if other devices know the problem, only what was good there."""
        default, *others = problem.candidates
        foreign = self._store.foreign(self._chooser.device_text, problem.text)
        if foreign:
            ratios = _ratios(foreign)
            others = sorted((c for c in others if c.name in ratios), key=lambda c: ratios[c.name])
        elif default.seconds is not None:
            limit = _REACH * default.seconds
            others = [c for i, c in enumerate(others, 1) if i < _SURE_CANDIDATES or (c.seconds or 0.0) <= limit]
        return [default, *others][:MOST_CANDIDATES]

    def _keep(self, problem: Problem, record: Record) -> None:
        self._chooser.add(problem.text, record)
        self._store.keep_or_say([Row(self._chooser.device_text, problem.text, record)])


def _given(node: Node, arrays: Sequence[Array]) -> tuple[Op, list[Array | None], list[str]]:
    made = dict(zip(variables(node), arrays, strict=True))
    operands = [None if v is None else made[v] if v.constant is None else v.constant.array for v in node.inputs]
    return node.op, operands, [value.dtype for value in node.outputs]


def _ratios(records: Sequence[Record]) -> dict[str, float]:
    """For each candidate that was good on some device, its time over the best one's, the lowest of all devices."""
    found: dict[str, float] = {}
    for record in records:
        best = min(record.seconds.values())
        for name, seconds in record.seconds.items():
            if seconds <= best * _FOREIGN_FACTOR:
                found[name] = min(found.get(name, seconds / best), seconds / best)
    return found
