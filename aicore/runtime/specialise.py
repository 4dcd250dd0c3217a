"""Graphs for concrete shapes: infer again, optimise, place, plan, launch; kept for the next call of these shapes."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import field, replace
from typing import Any, TypeAlias

from aicore.collector import collector_at_rest
from aicore.config import FallbackPolicy
from aicore.errors import ExecutionError
from aicore.ir import Graph, Node, TensorType, Value, retype
from aicore.kernels import Choose
from aicore.records import dataclass
from aicore.runtime.backend import Backend
from aicore.runtime.control_flow import Arrays, Body, control_flow
from aicore.runtime.device import HOST, type_of
from aicore.runtime.memory import bytes_of, check_room
from aicore.runtime.plan import Plan
from aicore.runtime.planner import MemoryOptions, make_plan
from aicore.runtime.schedule import CORE, Placement, Segment, make_segments, place_nodes
from aicore.runtime.specialised import Optimise, Specialised, Version
from aicore.runtime.stages import Call, RunPlan, StageList
from aicore.runtime.threads import using_threads

Signature: TypeAlias = tuple[TensorType, ...]

_log = logging.getLogger("aicore.runtime")


@dataclass(frozen=True)
class Options:
    """How graphs are specialised.

    fallback: what happens to a node that the target cannot run.
    memory: how buffers share memory.
    capacity: specialisations kept; the least recently used one goes first.
    threads: how many a run may keep busy.
    before_placing: is shown each graph of concrete shapes before kernels are chosen for it, to measure them.
    version: another version of the whole graph for these input types, where one was found to be faster.
    """

    fallback: FallbackPolicy = "warn"
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    capacity: int = 32
    threads: int = 1
    before_placing: Callable[[Graph], None] | None = None
    version: Callable[[Signature], Version | None] | None = None


@dataclass(frozen=True)
class CacheStatistics:
    """How often a signature was there, had to be compiled, and was pushed out; `size` of `capacity` are kept now."""

    hits: int
    misses: int
    evictions: int
    size: int
    capacity: int


class Specialiser:
    """Specialisations of one graph by signature, compiled once each however many threads ask.

    home: where inputs come from and results go to: HOST, or the target for the body of a loop.
    """

    def __init__(
        self,
        graph: Graph,
        target: Backend,
        fallbacks: Sequence[Backend],
        options: Options,
        optimise: Optimise,
        home: str = HOST,
    ) -> None:
        self.graph = graph
        self._target = target
        self._fallbacks = () if options.fallback == "error" else tuple(fallbacks)
        forbidden = ", ".join(backend.plugin or backend.name for backend in fallbacks if not self._fallbacks)
        self._advice = f"; fallback='warn' or 'quiet' lets {forbidden} try it" if forbidden else ""
        self._options = options
        self._optimise = optimise
        self.home = home
        self._backends = {backend.name: backend for backend in (target, *self._fallbacks)}
        self._lock = threading.Lock()
        self._cache: OrderedDict[Signature, Future[Specialised]] = OrderedDict()
        self._hits = self._misses = self._evictions = 0
        self._said: set[str] = set()

    def at_home(self, home: str) -> Specialiser:
        """One of the same graph and settings, whose arrays come from and go to another place."""
        return Specialiser(self.graph, self._target, self._fallbacks, self._options, self._optimise, home)

    def beside(self, graph: Graph) -> Specialiser:
        """One of another graph, with the same devices and settings and no passes."""
        return Specialiser(graph, self._target, self._fallbacks, self._options, lambda given: (given, None), self.home)

    @property
    def target(self) -> str:
        """Name of the device."""
        return self._target.name

    @property
    def threads(self) -> int:
        """How many a run may keep busy."""
        return self._options.threads

    def find(self, signature: Signature) -> Specialised | None:
        """The specialisation for inputs of these types, if it is there or being compiled."""
        with self._lock:
            future = self._cache.get(signature)
            if future is None:
                return None
            self._cache.move_to_end(signature)
            self._hits += 1
        return future.result()

    def count_hit(self) -> None:
        """Somebody used the specialisation that was asked for last once more."""
        with self._lock:
            self._hits += 1

    def get(self, signature: Signature) -> Specialised:
        """The specialisation for inputs of these types, compiled now if it is not there.

        Raises InferenceError when the types contradict the graph, UnsupportedError when a node can run nowhere.
        """
        mine: Future[Specialised] = Future()
        with self._lock:  # for the look-up alone; other threads wait on the future, not on the lock
            future = self._cache.setdefault(signature, mine)
            self._cache.move_to_end(signature)
            if future is mine:
                self._misses += 1
                self._evict()
            else:
                self._hits += 1
        if future is not mine:
            return future.result()
        try:
            with collector_at_rest(), using_threads(self._options.threads):
                specialised = self._specialise(signature)
            mine.set_result(specialised)
        except BaseException as error:
            mine.set_exception(error)
            with self._lock:
                if self._cache.get(signature) is mine:
                    del self._cache[signature]
            raise
        return mine.result()

    @property
    def tuning(self) -> Choose | None:
        """What looks up measured times for the target; None when they are ignored."""
        return self._target.selector.tuned

    @property
    def statistics(self) -> CacheStatistics:
        with self._lock:
            return CacheStatistics(self._hits, self._misses, self._evictions, len(self._cache), self._options.capacity)

    def kept(self) -> list[Specialised]:
        """The specialisations that are ready, least recently used first."""
        with self._lock:
            futures = list(self._cache.values())
        return [future.result() for future in futures if future.done() and future.exception() is None]

    def release(self) -> None:
        """Give back memory that no run is using."""
        for specialised in self.kept():
            specialised.release()

    def run(self, arrays: Sequence[Any]) -> Arrays:
        """Specialise for these arrays and run."""
        return self.get(tuple(map(type_of, arrays))).run(arrays)

    def _evict(self) -> None:
        if len(self._cache) > self._options.capacity:
            self._cache.popitem(last=False)
            self._evictions += 1

    def _specialise(self, signature: Signature) -> Specialised:
        version = None if self._options.version is None else self._options.version(signature)
        optimise = self._optimise if version is None else version.optimise
        typed = retype(self.graph if version is None else version.graph, signature)
        _check_tensors(typed, self._options.memory.limit)
        graph, report = optimise(typed)
        if self._options.before_placing is not None:
            self._options.before_placing(graph)
        placement = place_nodes(graph, self._target, self._fallbacks, self._advice)
        if placement.refusals:
            self._tell(str(placement))
        devices = {name: backend.device for name, backend in self._backends.items()}
        stages = StageList(graph, devices, self.home)
        bodies: list[Specialiser] = []
        for segment in make_segments(graph, placement):
            if segment.device == CORE:
                bodies += self._add_control_flow(stages, segment.nodes[0], optimise)
            else:
                self._add_plan(stages, segment, placement)
        return Specialised(graph, placement, report, stages, self._results(graph, stages), bodies, version)

    def _add_plan(self, stages: StageList, segment: Segment, placement: Placement) -> None:
        backend = self._backends[segment.device]
        plan = make_plan(
            backend.name,
            segment.nodes,
            segment.inputs,
            segment.outputs,
            placement.selections,
            self._options.memory,
            backend.constants,
            backend.pitched,
        )
        _check_memory(plan)
        executable = backend.launch(plan)
        reads = tuple(stages.slot(value, backend.name) for value in segment.inputs)
        writes = tuple(stages.new(value, backend.name) for value in segment.outputs)
        stages.stages.append(RunPlan(executable, reads, writes))

    def _add_control_flow(self, stages: StageList, node: Node, optimise: Optimise) -> list[Specialiser]:
        target, options = self._target, replace(self._options, version=None)
        bodies: list[Specialiser] = []

        def compile_body(graph: Graph) -> Body:
            # It shares constants and settings with this graph, and its arrays stay on the target.
            bodies.append(Specialiser(graph, target, self._fallbacks, options, optimise, target.name))
            return bodies[-1].run

        walk = control_flow(node, target.device, compile_body, self._options.memory.limit)
        loaded = [None if v is None or v.constant is None else target.constants[v.constant] for v in node.inputs]
        variable = [i for i, v in enumerate(node.inputs) if v is not None and v.constant is None]

        def run(arrays: Arrays) -> Arrays:
            operands = list(loaded)
            for i, array in zip(variable, arrays, strict=True):
                operands[i] = array
            results = walk(operands)
            _check_results(node, results)
            return results

        values = [node.inputs[i] for i in variable]
        reads = tuple(stages.slot(value, target.name) for value in values if value is not None)
        writes = tuple(stages.new(value, target.name) for value in node.outputs)
        stages.stages.append(Call(str(node), run, reads, writes))
        return bodies

    def _results(self, graph: Graph, stages: StageList) -> list[int]:
        results, taken = [], set(graph.inputs)
        for _, value in graph.outputs:
            if value.constant is not None and value not in taken:
                self._add_constant(stages, value)
            owned = value not in taken and value.constant is None
            taken.add(value)
            results.append(stages.output(value, self.home, owned))
        return results

    def _add_constant(self, stages: StageList, value: Value) -> None:
        array = self._target.constants[value.constant] if value.constant is not None else None
        write = stages.new(value, self._target.name)
        stages.stages.append(Call(f"constant %{value.name}", lambda _: [array], (), (write,)))

    def _tell(self, text: str) -> None:
        """Say a placement aloud, once."""
        if self._options.fallback == "warn" and text not in self._said:
            self._said.add(text)
            _log.warning("placement: %s", text)


def _check_tensors(graph: Graph, limit: int | None) -> None:
    """Raise ExecutionError for a tensor that fits into no memory, before kernels are asked what they need for it."""
    made = [(bytes_of([value.type]), node, value) for node in graph.nodes for value in node.outputs]
    if made:
        nbytes, node, value = max(made, key=lambda row: row[0])
        check_room(nbytes, f"{node}: %{value.name}: {value.type}", limit)


def _check_memory(plan: Plan) -> None:
    """Raise ExecutionError, naming the largest tensor, where a run would take more memory than there is."""
    made = [(plan.buffers[i].nbytes, step.node, plan.buffers[i]) for step in plan.steps for i in step.outputs]
    if not made:
        return
    _, node, buffer = max(made, key=lambda row: row[0])
    what = f"{node}: a run on {plan.device}, whose largest tensor is %{buffer.name}: {buffer.type},"
    check_room(plan.memory.arena + plan.memory.outputs, what, plan.limit)


def _check_results(node: Node, results: Sequence[Any]) -> None:
    """Raise ExecutionError where sizes contradict what later nodes were planned for."""
    for value, result in zip(node.outputs, results, strict=True):
        if value.type.is_static and type_of(result) != value.type:
            raise ExecutionError(f"{node}: %{value.name} should be {value.type}, but it became {type_of(result)}")
