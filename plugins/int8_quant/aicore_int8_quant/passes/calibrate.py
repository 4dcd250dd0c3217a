"""Runs the float model on the data, and shows every tensor that needs a range to its observer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import length_hint
from typing import Any, ClassVar, TypeVar

import numpy as np

from aicore.errors import InputError
from aicore.ir import Graph, TensorType, Value, retype, static_bytes
from aicore.rewrite import Context
from aicore_int8_quant.errors import CalibrationError
from aicore_int8_quant.job import Feeds, Job
from aicore_int8_quant.observers.magnitudes import Magnitudes
from aicore_int8_quant.passes.base import JobPass
from aicore_int8_quant.passes.correction import ChannelMeans, averaged
from aicore_int8_quant.passes.equalize import equalizable
from aicore_int8_quant.passes.split import measured
from aicore_int8_quant.specs import Plain

Array = np.ndarray[Any, Any]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Calibrate(JobPass):
    """Observes the tensors with a Plain spec, batch by batch; nothing of a batch is kept.

    Those that Equalize may scale are observed channel by channel, and are one tensor again behind it. How large the
    numbers are is seen of first operands.

    max_bytes: of results held at a time. Where the tensors of one batch take more, the batch is run several times,
    each for some of them.
    """

    name: ClassVar[str] = "calibrate-int8"
    max_bytes: int = 1 << 30

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        job = self.job
        wanted = [value for value, spec in job.specs.items() if isinstance(spec, Plain)]
        by_channel = equalizable(graph, job)
        job.observers = {v: job.options.observer(v.name, 1 if v in by_channel else None) for v in wanted}
        job.magnitudes = {v: Magnitudes() for v in measured(job).values()}
        job.means = {v: ChannelMeans(axis) for v, axis in averaged(job).items()}
        values = list(dict.fromkeys((*job.observers, *job.magnitudes, *job.means)))
        if not values:
            return graph
        seen = 0
        with Observation(graph, values, self.max_bytes, job.registry) as run:
            for feeds in tracked(job.feeds, "calibrating", job.progress):
                for value, array in run(feeds):
                    _see(job, value, array)
                seen += 1
        if not seen:
            raise CalibrationError("the calibration data is empty: give at least one batch of inputs")
        return graph


def _see(job: Job, value: Value, array: Array) -> None:
    if value in job.observers:
        job.observers[value].update(array)
    if value in job.magnitudes:
        job.magnitudes[value].update(array)
    if value in job.means:
        job.means[value].update(array)


class Observation:
    """Runs a graph for values inside it: `run(feeds)` gives (value, array) pairs, some at a time."""

    def __init__(self, graph: Graph, values: Sequence[Value], max_bytes: int, registry: Any = None) -> None:
        self._graph, self._values, self._max_bytes, self._registry = graph, values, max_bytes, registry
        self._programs: list[tuple[Any, list[Value]]] = []

    def __enter__(self) -> Observation:
        return self

    def __exit__(self, *error: object) -> None:
        self._programs = []

    def __call__(self, feeds: Feeds) -> Iterator[tuple[Value, Array]]:
        given = {value: np.asarray(feeds[value.name]) for value in self._graph.inputs if value.name in feeds}
        if not self._programs:
            self._compile(given)
        for value in self._values:
            if value in given:
                yield value, given[value]
        for program, values in self._programs:
            results = program.run(feeds)
            for number, value in enumerate(values):
                yield value, results.pop(f"v{number}")

    def _compile(self, given: Mapping[Value, Array]) -> None:
        from aicore.api import compile  # noqa: A004  # aicore.compile

        inside = [value for value in self._values if value not in self._graph.inputs]
        for values in self._chunks(inside, given):
            outputs = tuple((f"v{number}", value) for number, value in enumerate(values))
            part = replace(self._graph, outputs=outputs, state=())
            program = compile(part, "cpu", fallback="error", capacity=4, registry=self._registry)
            self._programs.append((program, values))

    def _chunks(self, values: Sequence[Value], given: Mapping[Value, Array]) -> Iterator[list[Value]]:
        sizes = self._sizes(values, given)
        chunk: list[Value] = []
        for value in values:
            if chunk and sum(sizes[v] for v in (*chunk, value)) > self._max_bytes:
                yield chunk
                chunk = []
            chunk.append(value)
        if chunk:
            yield chunk

    def _sizes(self, values: Sequence[Value], given: Mapping[Value, Array]) -> dict[Value, float]:
        """Bytes of each value for this batch; 0 where data decides, which is then not counted."""
        marked = replace(self._graph, outputs=tuple((f"v{i}", v) for i, v in enumerate(values)), state=())
        types = [TensorType(v.dtype, given[v].shape) if v in given else v.type for v in self._graph.inputs]
        sized = retype(marked, types)
        known = [static_bytes(v.type) for _, v in sized.outputs]
        return {value: size if np.isfinite(size) else 0.0 for value, size in zip(values, known, strict=True)}


@dataclass(frozen=True, eq=False)
class Data:
    """Feeds made while they are read; how many there will be is what the source says, if it says anything."""

    feeds: Callable[[], Iterator[Feeds]]
    source: Any

    def __iter__(self) -> Iterator[Feeds]:
        return self.feeds()

    def __length_hint__(self) -> int:
        return length_hint(self.source)


def tracked(feeds: Iterable[T], text: str, show: bool) -> Iterator[T]:
    """The items, with a progress bar on stderr when that is a terminal and `show` says so."""
    if not show or not sys.stderr.isatty():
        yield from feeds
        return
    from rich.console import Console
    from rich.progress import track

    total = length_hint(feeds) or None
    yield from track(feeds, text, total, console=Console(stderr=True), transient=True)


def as_feeds(graph: Graph, data: Iterable[Any]) -> Iterator[dict[str, Array]]:
    """Each item as arrays by input name: a mapping, a sequence in the order of the inputs, or the one input's array.

    Raises InputError for an item that fits none of these.
    """
    names = [value.name for value in graph.inputs]
    for number, item in enumerate(data):
        if isinstance(item, Mapping):
            found = {str(name): np.asarray(array) for name, array in item.items()}
        elif len(names) == 1 and not (isinstance(item, tuple | list) and len(item) == 1):
            found = {names[0]: np.asarray(item)}
        else:
            found = dict(zip(names, map(np.asarray, item), strict=False))
        if set(found) != set(names):
            raise InputError(f"batch {number} of the data feeds {sorted(found)}, but the model's inputs are {names}")
        yield found
