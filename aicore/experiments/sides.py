"""One way to compile a model: the program, what it takes, and how far its numbers are from what they should be."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial, reduce
from typing import Any

import numpy as np

from aicore.api import compile, graph_records  # noqa: A004  # aicore.compile
from aicore.config import from_environment
from aicore.errors import AicoreError, ConfigError, InputError, error_text
from aicore.ir import Graph, TensorType
from aicore.numerics.difference import Difference, measure
from aicore.passes import Choices, close
from aicore.passes.base import is_required
from aicore.plugins import PluginRegistry
from aicore.program import Program
from aicore.records import dataclass
from aicore.runtime import SharesMemory, type_of, usable_cores, using_threads
from aicore.runtime.feeds import check_shapes, read_feeds
from aicore.testing.reference import Reference
from aicore.testing.wholes import Whole, specialised
from aicore.tuning import GraphRecords, TuningStore, fingerprint

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
_CLOSE = 1e-4
"""Relative to the largest element, where no reference says how far apart results may be."""


@dataclass(frozen=True)
class Side:
    """A program that certain choices make.

    nodes: of the graph after all passes. steps: kernels that a run starts.
    arena, constants: bytes, over all devices.
    seconds: of one run, the second one.
    difference: from the reference; None without one.
    error: why there is no program, or no result; empty when there is.
    rolled_back: passes that were undone, and why; empty when none was.
    """

    choices: Choices
    nodes: int = 0
    steps: int = 0
    arena: int = 0
    constants: int = 0
    seconds: float = 0.0
    difference: Difference | None = None
    error: str = ""
    rolled_back: str = ""
    fingerprint: str = ""
    outputs: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    program: Program | None = field(default=None, repr=False, compare=False)

    @property
    def wrong(self) -> str:
        """What is wrong with its results; empty when nothing is known to be."""
        return self.error or ("" if self.difference is None else self.difference.text)

    def to_json(self) -> dict[str, Any]:
        far = self.difference
        return {
            "choices": str(self.choices), "nodes": self.nodes, "steps": self.steps, "arena": self.arena,
            "constants": self.constants, "seconds": self.seconds, "error": self.error or None,
            "rolled_back": self.rolled_back or None,
            "difference": None if far is None else difference_json(far),
        }  # fmt: skip


class Bench:
    """Compiles one model in several ways on one target, for the same inputs.

    whole: what should come out; None where the reference lacks an op, and `no_reference` says which.
    Raises InputError for feeds that are not those of the inputs, PluginError for a target that cannot be used.
    """

    def __init__(
        self, graph: Graph, feeds: Feeds, target: str | None, registry: PluginRegistry, threads: int | None = None
    ) -> None:
        self.graph = graph
        self.feeds = read_all(graph, feeds)
        self.target = registry.default_target()[0] if target is None else registry.device_name(target)
        self.registry = registry
        self.threads = threads
        self.no_reference = ""
        self.whole = self._whole()

    @property
    def types(self) -> tuple[TensorType, ...]:
        """Of the inputs, in the order of the graph."""
        return tuple(type_of(self.feeds[value.name]) for value in self.graph.inputs)

    @property
    def records(self) -> GraphRecords:
        """What was kept for the graph on this target."""
        return graph_records(self.graph, self.target, registry=self.registry)

    @property
    def run_threads(self) -> int:
        """Threads that a run may keep busy, on which times depend."""
        return self.threads or from_environment().threads or usable_cores()

    def in_force(self) -> Choices:
        """What `compile` would choose for these inputs by itself."""
        if from_environment().tune == "off":
            return Choices()
        with using_threads(self.run_threads):
            found = self.records.find(self.types)
        try:
            return Choices() if isinstance(found, str) else Choices.parse(found.chosen)
        except ConfigError:  # `compile` says so, and takes the default too
            return Choices()

    def side(self, choices: Choices, tune: Any = None) -> Side:
        """Compile and run it. What goes wrong is in `error`, except for choices that fit no pass, which raise."""
        try:
            return self._side(choices, tune)
        except ConfigError:
            raise
        except AicoreError as error:
            return Side(choices, error=str(error))
        except Exception as error:  # noqa: BLE001  # a pass or a kernel may raise anything: that is a finding
            return Side(choices, error=error_text(error))

    def _side(self, choices: Choices, tune: Any) -> Side:
        program = compile(
            self.graph, self.target, choices=choices, threads=self.threads, tune=tune, registry=self.registry
        )
        program.run(self.feeds)
        start = time.perf_counter()
        outputs = program.run(self.feeds)
        seconds = time.perf_counter() - start
        plans = program.plan
        latest = program.explain().specialised
        graph = program.graph if latest is None else latest.graph
        failed = [error for report in program.explain().passes for error in report.errors]
        return Side(
            choices,
            nodes=len(graph.nodes),
            steps=sum(len(plan.steps) for plan in plans),
            arena=sum(plan.memory.arena for plan in plans),
            constants=sum(plan.memory.constants for plan in plans),
            seconds=seconds,
            difference=None if self.whole is None else self.whole.compare(outputs),
            rolled_back="; ".join(failed),
            fingerprint=fingerprint(graph),
            outputs=outputs,
            program=program,
        )

    def runner(self, side: Side) -> Callable[[], object]:
        """A run as it is timed: the arrays lie on the device where it lets them be bound, so that copies do not count.

        Raises AicoreError for a side without a program.
        """
        if side.program is None:
            raise AicoreError(f"the model does not run with {side.choices}: {side.error}")
        program, device = side.program, side.program.device
        if not isinstance(device, SharesMemory):
            return partial(program.run, self.feeds)
        try:
            bound = program.bind({name: device.upload(array) for name, array in self.feeds.items()})
        except InputError:  # sizes that depend on data have no array before the run
            return partial(program.run, self.feeds)

        def run() -> None:
            bound()
            bound.wait()

        return run

    def between(self, one: Side, other: Side) -> Difference:
        """The outputs of one side beside those of another, by the same limits as beside the reference."""
        if one.error or other.error:
            return Difference()
        allowed = {} if self.whole is None else self.whole.allowed
        found = [
            measure(one.outputs[name], want, allowed.get(name, _limit(want))) for name, want in other.outputs.items()
        ]
        return reduce(Difference.worse, found, Difference())

    def is_close(self, one: Side, other: Side) -> bool:
        """Whether both compute the same, judged without a reference."""
        return all(close(one.outputs[name], want, _CLOSE) for name, want in other.outputs.items())

    def _whole(self) -> Whole | None:
        try:
            return Whole.of(specialised(self.graph, self.feeds), self.feeds, Reference(self.registry))
        except AicoreError as error:
            self.no_reference = str(error)
            return None


def check_store() -> None:
    """Raise TuningError if nothing can be kept: before measuring, which may take long. Makes the store if need be."""
    TuningStore.of(from_environment()).keep(())


def read_all(graph: Graph, feeds: Feeds) -> dict[str, Array]:
    """An array for each input. Raises InputError as `Program.run` does."""
    arrays = read_feeds(graph.inputs, feeds)
    check_shapes(graph.inputs, [array.shape for array in arrays])
    return {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}


def difference_json(far: Difference) -> dict[str, Any]:
    return {
        "max_absolute": far.max_absolute, "max_relative": far.max_relative, "share_of_allowed": far.share,
        "wrong": far.wrong, "elements": far.elements, "text": far.text or None,
    }  # fmt: skip


def pass_names(bench: Bench) -> Sequence[str]:
    """Every pass that a compilation may leave out."""
    from aicore.testing.wholes import all_passes

    return [name for name, one in all_passes(bench.registry).items() if not is_required(one)]


def _limit(want: Array) -> float:
    if want.dtype.kind not in "fc" or not want.size:
        return 0.0
    return _CLOSE * float(np.abs(want[np.isfinite(want)]).max(initial=0.0))
