"""Which of several ways to compute something is fastest: measured as kernels are, and kept in their store."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import AicoreError
from aicore.ir import Graph, Value
from aicore.ops.layout import channels_first, channels_last
from aicore.records import dataclass
from aicore.rewrite.races import Race, RaceResult
from aicore.runtime import Backend, only_renames
from aicore.tuning.chooser import Chooser
from aicore.tuning.contest import contest
from aicore.tuning.problems import problem_text
from aicore.tuning.records import Record
from aicore.tuning.store import Row
from aicore.tuning.trial import Trial, made_up_of
from aicore.tuning.tuner import Measure, Tuner

Array = np.ndarray[Any, Any]
Versions: TypeAlias = Callable[[Graph, str], "tuple[Graph, Graph | None]"]
"""(graph, pass to leave out) -> the graph as a program has it, and the same with the channels of its images last."""
PREFIX = "race "
_SHARE = 0.5
"""Of the budget of a graph that races may take; the rest is for the kernels of what has won."""
_CHANGED = "passes or kernels have changed since it was measured"
_LATE = "not reached within the budget"

_log = logging.getLogger("aicore.tuning")


@dataclass(frozen=True)
class Raced:
    """What became of a race that was to be measured: a record, or the reason why there is none.

    count: how many groups of nodes it decides about.
    """

    text: str
    count: int
    record: Record | None
    reason: str = ""


class Racer:
    """A `Judge` for one device: looks results up in the store, and measures what is missing if it may.

    versions: makes what would run of a way. considered: digest of the passes and kernels that times depend on.
    tuner, how: measure with these; None to look up alone.
    """

    def __init__(
        self,
        backend: Backend,
        chooser: Chooser,
        versions: Versions,
        considered: Callable[[], str],
        tuner: Tuner | None = None,
        how: Measure | None = None,
    ) -> None:
        self._backend, self._chooser, self._versions, self._considered = backend, chooser, versions, considered
        self._tuner, self._how = tuner, how
        self._mine: dict[str, Record] = {}
        self._digest = ""
        self._spent = 0.0

    def __call__(self, races: Sequence[Race]) -> list[RaceResult | str]:
        """The result of each, or why there is none, which is counted with the chooser's misses."""
        texts = [race_text(race, self._chooser.precision) for race in races]
        found = {text: self._look_up(text) for text in dict.fromkeys(texts)}
        if self._tuner is not None and self._how is not None:
            self._measure_missing(races, texts, found, self._how)
        for text, result in found.items():
            if isinstance(result, str):
                self._chooser.misses[f"a race: {result}"] += texts.count(text)
        return [_result(found[text]) for text in texts]

    def take_spent(self) -> float:
        """Seconds that measuring has taken since this was asked last."""
        spent, self._spent = self._spent, 0.0
        return spent

    def _look_up(self, text: str) -> Record | str:
        if text in self._mine:
            return self._mine[text]
        store = self._chooser.store
        if store.unusable:
            return store.unusable
        found = store.find(self._chooser.device_text, text)
        if isinstance(found, str):
            elsewhere = found == "not measured on this device" and store.foreign(self._chooser.device_text, text)
            return "measured on another device, or with other threads" if elsewhere else found
        return found if found.considered == self._code() else _CHANGED

    def _code(self) -> str:
        self._digest = self._digest or self._considered()
        return self._digest

    def _measure_missing(
        self, races: Sequence[Race], texts: Sequence[str], found: dict[str, Record | str], how: Measure
    ) -> None:
        """Heaviest first, until the budget's share is spent."""
        begin = time.monotonic()
        counts = Counter(texts)
        first = dict(zip(texts, races, strict=True))
        wanted = [text for text, known in found.items() if how.again or isinstance(known, str)]
        wanted = [text for text in wanted if not (how.again and text in self._mine)]
        wanted.sort(key=lambda text: -counts[text] * max(first[text].estimates.values(), default=0.0))
        for text in wanted:
            left = how.budget * _SHARE - (time.monotonic() - begin)
            outcome = self._measure(first[text], left) if left > 0 else _LATE
            if isinstance(outcome, Record):
                self._keep(text, outcome)
                found[text] = outcome
            elif isinstance(found[text], str):
                found[text] = outcome
            if how.raced is not None:
                record = outcome if isinstance(outcome, Record) else None
                how.raced(Raced(text, counts[text], record, "" if record else str(outcome)))
        self._spent += time.monotonic() - begin

    def _measure(self, race: Race, budget: float) -> Record | str:
        """Each way with the kernels that are best for it, then all of them in turn."""
        trials: dict[str, Trial] = {}
        results: dict[str, list[Array]] = {}
        refused: dict[str, str] = {}
        try:
            arrays = made_up_of(race.ways[race.default].inputs)
            for name, graph in race.ways.items():
                tried = self._tried(graph, race.without, arrays, budget / len(race.ways))
                if isinstance(tried, str):
                    refused[name] = tried
                    continue
                trials[name], results[name] = tried
            wrong = _wrong(race, results, refused)
            if wrong:
                _log.warning("a race was not measured: %s", wrong)
                return wrong
            return self._contest(race, trials, refused)
        except Exception as error:  # noqa: BLE001  # a kernel may raise anything, and then nothing is known of the race
            _log.warning("a race was not measured: %s: %s", type(error).__name__, error)
            return f"it raised {type(error).__name__}: {error}"
        finally:
            for trial in trials.values():
                trial.executable.release()

    def _contest(self, race: Race, trials: dict[str, Trial], refused: dict[str, str]) -> Record:
        names = list(trials)
        result = contest(len(names), lambda i: trials[names[i]].seconds())
        return Record(
            chosen=names[result.winner],
            default=race.default,
            seconds={names[i]: seconds for i, seconds in result.seconds.items()},
            gain=(result.gain.middle, result.gain.low, result.gain.high),
            considered=self._code(),
            refused=refused,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _tried(
        self, graph: Graph, without: str, arrays: Sequence[Array], budget: float
    ) -> tuple[Trial, list[Array]] | str:
        """A way ready to be timed, in the better one of both orders of axes, with its results in the first order."""
        assert self._tuner is not None  # nothing is measured without
        assert self._how is not None
        plain, last = self._versions(graph, without)
        seconds = {id(one): self._seconds(one) for one in (plain, last) if one is not None}
        chosen = plain if last is None or seconds[id(plain)] <= seconds[id(last)] else last
        if math.isinf(seconds[id(chosen)]):
            return "the device lacks a kernel for a part of it"
        self._tuner.run(chosen, Measure(budget, self._how.again, self._how.started, self._how.finished))
        given = arrays if chosen is plain else [_turned(array, channels_last(array.ndim)) for array in arrays]
        trial = Trial.of_graph(chosen, given, self._backend)
        results = trial.results()
        if chosen is not plain:
            results = [_turned(array, channels_first(array.ndim)) for array in results]
        trial.prepare()
        return trial, results

    def _seconds(self, graph: Graph) -> float:
        """As expected of the kernels that would be chosen; infinity where there is none."""
        try:
            nodes = [node for node in graph.nodes if not only_renames(node)]
            return sum(self._backend.select(node).candidates[0].seconds or 0.0 for node in nodes)
        except AicoreError:
            return math.inf

    def _keep(self, text: str, record: Record) -> None:
        self._mine[text] = record
        self._chooser.store.keep_or_say([Row(self._chooser.device_text, text, record)])


def race_text(race: Race, precision: Any = "float32") -> str:
    """How the store names a race: each way by its name, ops, types and wiring; weights count by their types."""
    ways = "; or ".join(f"{name}: {_graph_text(graph, precision)}" for name, graph in race.ways.items())
    return f"{PREFIX}{ways}"


def _graph_text(graph: Graph, precision: Any) -> str:
    number: dict[Value, int] = {}
    for value in (*graph.inputs, *(v for node in graph.nodes for v in node.outputs)):
        number[value] = len(number)
    return " ".join(_node_text(node.op, node.inputs, node.outputs[0], number, precision) for node in graph.nodes)


def _node_text(op: Any, inputs: Sequence[Value | None], made: Value, number: dict[Value, int], precision: Any) -> str:
    constant = [i for i, v in enumerate(inputs) if v is not None and v.constant is not None]
    text = problem_text(op, [None if v is None else v.type for v in inputs], constant, precision)
    wires = ",".join("" if v is None or v.constant is not None else f"%{number[v]}" for v in inputs)
    return f"%{number[made]}={repr(op) if text is None else text}<{wires}>"


def _wrong(race: Race, results: Mapping[str, list[Array]], refused: Mapping[str, str]) -> str:
    """Why the ways cannot race; empty where they can."""
    if race.default not in results or len(results) < 2:
        return "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    expected = results[race.default]
    faults = {name: race.fault(expected, found) for name, found in results.items() if name != race.default}
    return "; ".join(f"{name} gives other numbers than {race.default}: {text}" for name, text in faults.items() if text)


def _result(found: Record | str) -> RaceResult | str:
    return found if isinstance(found, str) else RaceResult(found.chosen, found.seconds)


def _turned(array: Array, perm: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(array.transpose(perm))
