"""What is decided by time for a program: ways that race, kernels, and versions of the graph for the types of a call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import proxy

from aicore.errors import ConfigError
from aicore.ir import Graph, TensorType, retype
from aicore.kernels import REFERENCE, KernelTable
from aicore.passes import Choices, Report
from aicore.rewrite import Race, RaceResult
from aicore.runtime import Backend, ReferenceEvaluator, Version
from aicore.tuning import Chooser, GraphRecords

if TYPE_CHECKING:
    from aicore.tuning import Measure, Racer, Tuner

_log = logging.getLogger("aicore")


class ProgramPasses(Protocol):
    """The passes of one program, with its choices.

    is_open: a race was decided while sizes are open. verdicts: the way taken, by race.
    """

    is_open: bool
    verdicts: dict[str, str]

    def anew(self) -> ProgramPasses: ...

    def whole(self, graph: Graph) -> tuple[Graph, Report]: ...

    def specialised(self, graph: Graph) -> tuple[Graph, Any]: ...


class Pipeline(Protocol):
    """The passes of one program on its target, whatever is chosen of them."""

    def passes(self, choices: Choices) -> ProgramPasses: ...

    def versions(self, graph: Graph, without: str) -> tuple[Graph, Graph | None]: ...

    def considered(self) -> str: ...


class Races:
    """Measures, or looks up, which of several ways is fastest; then the kernels, in what is left of the budget."""

    def __init__(
        self, backend: Backend, pipeline: Pipeline, table: KernelTable, measure: Measure | Literal["cached"]
    ) -> None:
        self._backend, self._table = backend, table
        self._pipeline: Pipeline = proxy(pipeline)  # it has these races: in a circle, weights would outlive the program
        self._how = None if isinstance(measure, str) else measure
        self._racer: Racer | None = None
        self._tuner: Tuner | None = None

    @property
    def before_placing(self) -> Callable[[Graph], None] | None:
        """Measures kernels for a graph; None where nothing may be measured."""
        return None if self._how is None else self._measure_kernels

    def judge(self, races: Sequence[Race]) -> Sequence[RaceResult | str]:
        from aicore.tuning import Racer  # most models hold no races

        if self._racer is None:
            tuner = None if self._how is None else self._made_tuner()
            chooser, pipeline = self._chooser(), self._pipeline
            versions = lambda graph, without: pipeline.versions(graph, without)  # noqa: E731, PLW0108  # see below
            considered = lambda: pipeline.considered()  # noqa: E731, PLW0108  # a bound method would hold the pipeline
            self._racer = Racer(self._backend, chooser, versions, considered, tuner, self._how)
        return self._racer(races)

    def _measure_kernels(self, graph: Graph) -> None:
        assert self._how is not None  # else nobody is told to call this
        spent = 0.0 if self._racer is None else self._racer.take_spent()
        self._made_tuner().run(graph, replace(self._how, budget=max(self._how.budget - spent, 0.0)))

    def _made_tuner(self) -> Tuner:
        from aicore.tuning import Tuner  # as in _measure_of

        if self._tuner is None:
            references = KernelTable(kernel for kernel in self._table if kernel.variant == REFERENCE)
            evaluate = ReferenceEvaluator(references)  # never what is to be measured itself
            self._tuner = Tuner(self._backend, self._chooser(), evaluate)
        return self._tuner

    def _chooser(self) -> Chooser:
        chooser = self._backend.selector.tuned
        assert isinstance(chooser, Chooser)  # a backend that may be measured was built with a store
        return chooser


class Versions:
    """Versions of the graph for given types of its inputs: the fastest that was measured, and races of open sizes."""

    def __init__(self, records: GraphRecords | None, pipeline: Pipeline, graph: Graph, base: ProgramPasses) -> None:
        self._records, self._pipeline, self._graph, self._base = records, pipeline, graph, base
        self._made: dict[str, tuple[Graph, Report, ProgramPasses]] = {}

    def __call__(self, types: Sequence[TensorType]) -> Version | None:
        return self._measured(types) or (self._for_sizes(types) if self._base.is_open else None)

    def _for_sizes(self, types: Sequence[TensorType]) -> Version | None:
        """The passes again, now that sizes are known; None where they find what they found while sizes were open."""
        passes = self._base.anew()
        graph, report = passes.whole(retype(self._graph, types))
        before = self._base.verdicts
        others = sum(before.get(name) != verdict for name, verdict in passes.verdicts.items())
        if not others:
            return None
        note = f"for these sizes {others} of {len(passes.verdicts)} races are won by another way than the default"
        return Version(graph, passes.specialised, report, note)

    def _measured(self, types: Sequence[TensorType]) -> Version | None:
        record = "measured times are ignored" if self._records is None else self._records.find(types)
        if isinstance(record, str) or record.chosen == record.default:
            return None
        try:
            graph, report, passes = self._version(record.chosen, types)
        except ConfigError as error:  # a store is never trusted
            _log.warning("the choices that were measured for this graph are ignored: %s", error)
            return None
        told = f"{record.chosen}: measured on this device for these shapes, {record.gain[0]:.2f} of the time of others"
        note = f"{told} (tune='off' or AICORE_TUNE=off ignores it)"
        _log.info("choices: %s", note)
        return Version(graph, passes.specialised, report, note)

    def _version(self, chosen: str, types: Sequence[TensorType]) -> tuple[Graph, Report, ProgramPasses]:
        if self._base.is_open:
            passes = self._pipeline.passes(Choices.parse(chosen))
            return (*passes.whole(retype(self._graph, types)), passes)
        if chosen not in self._made:
            passes = self._pipeline.passes(Choices.parse(chosen))
            self._made[chosen] = (*passes.whole(self._graph), passes)
        return self._made[chosen]
