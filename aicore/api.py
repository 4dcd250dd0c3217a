"""Loading models and compiling graphs: plugins, passes, kernels and the runtime put together."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias

from aicore.collector import collector_at_rest, keep_for_good
from aicore.config import (
    FallbackPolicy,
    Precision,
    TunePolicy,
    from_environment,
    parse_fallback,
    parse_precision,
    parse_tune,
)
from aicore.errors import ConfigError
from aicore.ir import Graph, Op, TensorType, substitute, symbols, verify, walk_graphs
from aicore.kernels import KernelTable, Selector
from aicore.passes import Choices, Pass, Report, default_passes, required_passes, run_passes, specialise_passes
from aicore.passes.choices import options_text
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.program import Program
from aicore.rewrite import Context, Race, RaceResult
from aicore.rewrite.races import nobody_measured
from aicore.runtime import (
    HOST,
    Backend,
    Constants,
    MemoryOptions,
    Options,
    ReferenceEvaluator,
    Specialiser,
    is_control_flow,
    usable_cores,
    using_threads,
)
from aicore.tuning import Chooser, GraphRecords, TuningStore, considered_passes
from aicore.versions import Races, Versions

if TYPE_CHECKING:
    import onnx

    from aicore.passes import Recorder
    from aicore.passes.trace import Stage
    from aicore.tuning import Measure

_log = logging.getLogger("aicore")

Source: TypeAlias = "str | PathLike[str] | bytes | onnx.ModelProto"


def load(source: Source, *, overridable: Collection[str] = (), registry: PluginRegistry | None = None) -> Graph:
    """The graph of an ONNX model: a path, the bytes of a file, or a ModelProto.

    overridable: initializers that the model also lists as inputs, and that are to be inputs, not constants.
    registry: plugins whose ops the model may use, instead of the installed ones.
    Raises ModelError for a damaged or unsafe file, UnsupportedError for an op or attribute that aicore lacks.
    """
    registry = plugin_registry() if registry is None else registry
    with collector_at_rest():
        from aicore.frontends.onnx import load_model  # imports protobuf, which hand-built graphs do not need

        keep_for_good()
        return load_model(source, extra_ops=registry.ops.values(), overridable=overridable)


@collector_at_rest()
def compile(  # the public name, aicore.compile
    model: Graph | Source,
    target: str | None = None,
    *,
    fallback: FallbackPolicy | None = None,
    optimize: bool = True,
    reuse_memory: bool = True,
    poison: bool | None = None,
    kernels: Mapping[str, str] | None = None,
    precision: Precision = "float32",
    threads: int | None = None,
    tune: TunePolicy | Measure | None = None,
    choices: Choices | str | None = None,
    trace: bool = False,
    capacity: int = 32,
    registry: PluginRegistry | None = None,
) -> Program:
    """A program that runs the model on a device.

    model: a graph, or what `load` takes.
    target: device such as `cpu` or `cuda:0`; None means AICORE_TARGET, else the best active device, and the log says
        in one line (level INFO), as `program.target` does, which one and why.
    fallback: `error`, `warn` or `quiet`, for nodes that the target cannot run; None means AICORE_FALLBACK.
    optimize: False leaves out passes that only make programs faster; results are the same, up to rounding.
    reuse_memory: False gives every buffer memory of its own.
    poison: fill dead buffers with NaN patterns; None means AICORE_DEBUG.
    kernels: variant by op (`{"Conv": "im2col"}`) or by node name, instead of the selector's choice.
    precision: `float32` keeps all its digits; `tf32` lets kernels round factors of products of float32 numbers to 11
        significant bits, on devices that have kernels which do so.
    threads: how many a run may keep busy on the host; None means AICORE_THREADS, else as many as there are cores.
    tune: `off`, `cached` (use what `aicore tune` measured), `measure` (also measure what is missing, on the first call
        of each set of shapes), or a Measure with details; None means AICORE_TUNE.
    choices: rules and passes to leave out, options of passes, a limit of changes: `Choices`, or its text, such as
        `-fuse-ConvAct,fuse-pointwise.largest=8`. None means those that measuring found best for this graph, these
        shapes and this device, as far as `tune` allows them, else the default.
    trace: keep each version of the graph, for `program.trace`.
    capacity: how many sets of input shapes to keep compiled.
    registry: plugins to use instead of the installed ones.

    Raises PluginError when the target cannot be used, UnsupportedError when a node can run nowhere, ConfigError for an
    option that is not among its choices.
    """
    if not isinstance(capacity, int) or capacity < 1:
        raise ConfigError(f"capacity={capacity!r} is no number of sets of shapes; choose 1 or more")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ConfigError(f"threads={threads!r} is no number of threads; choose 1 or more")
    config = from_environment()
    registry = plugin_registry() if registry is None else registry
    graph = model if isinstance(model, Graph) else load(model, registry=registry)
    name, why = registry.default_target() if target is None else (target, "")
    if why:
        _log.info("%s", why)
    table = KernelTable.of_precision(registry.kernel_items, parse_precision(precision))
    _check_overrides(kernels or {}, table, graph)
    measure = _measure_of(tune, config.tune)
    store = None if measure is None else TuningStore.of(config)
    build = _BackendBuilder(registry, table, kernels or {}, store, precision)
    backend = build(name)
    options = Options(
        fallback=parse_fallback(fallback) if fallback is not None else config.fallback,
        memory=MemoryOptions(reuse_memory, config.debug if poison is None else poison, config.memory_limit),
        capacity=capacity,
        threads=threads or config.threads or usable_cores(),
    )
    fallbacks = [build("cpu")] if backend.device.kind != "cpu" and _has_device(registry, "cpu") else []
    if graph is model:  # what was loaded just now was inferred node by node
        verify(graph)
    asked = _choices_of(choices)
    pipeline = _Pipeline(registry, table, backend, optimize)
    if measure is not None:
        pipeline.races = Races(backend, pipeline, table, measure)
        options = replace(options, before_placing=pipeline.races.before_placing)
    passes = pipeline.passes(asked or Choices(), trace)
    with using_threads(options.threads):
        optimised, report = passes.whole(graph)
    records = None
    if asked is None and store is not None and optimize:
        records = GraphRecords(store, backend.device, graph, pipeline.considered, precision)
    if not trace and (records is not None or passes.is_open):
        options = replace(options, version=Versions(records, pipeline, graph, passes))
    home = backend.name if backend.device.kind == "cpu" else HOST  # the CPU's memory is the host's
    specialiser = Specialiser(optimised, backend, fallbacks, options, passes.specialised, home)
    told = f"{asked}: asked for" if asked else ""
    because = why or f"target {backend.name}: asked for"
    return Program(optimised, backend.device, specialiser, because, (report,), choices=told, recorder=passes.recorder)


def graph_records(
    graph: Graph, target: str | None = None, *, precision: Precision = "float32", registry: PluginRegistry | None = None
) -> GraphRecords:
    """What was measured for a whole graph on a device, where `compile` looks for choices; arguments as there."""
    registry = plugin_registry() if registry is None else registry
    name = registry.default_target()[0] if target is None else target
    table = KernelTable.of_precision(registry.kernel_items, parse_precision(precision))
    store = TuningStore.of(from_environment())
    backend = _BackendBuilder(registry, table, {}, None, precision)(name)
    pipeline = _Pipeline(registry, table, backend, optimize=True)
    return GraphRecords(store, backend.device, graph, pipeline.considered, precision)


def _choices_of(choices: Choices | str | None) -> Choices | None:
    return Choices.parse(choices) if isinstance(choices, str) else choices


def _measure_of(tune: TunePolicy | Measure | None, default: TunePolicy) -> Measure | Literal["cached"] | None:
    """How to measure; `cached` to only look up, None to do neither."""
    wanted = default if tune is None else tune
    if wanted == "off":
        return None
    if wanted == "cached":
        return "cached"
    from aicore.tuning import Measure  # most processes measure nothing, and need not pay for what does

    if isinstance(wanted, Measure):
        return wanted
    parse_tune(wanted)
    return Measure()


def _check_overrides(kernels: Mapping[str, str], table: KernelTable, graph: Graph) -> None:
    """Raise ConfigError for a choice of kernels that no node could ever follow, such as one with a typo."""
    if not isinstance(kernels, Mapping):
        raise ConfigError(f"kernels={kernels!r} is no mapping of ops or nodes to variants")
    if not kernels:
        return
    ops = {kernel.op.__name__ for kernel in table}
    nodes = {value.name for inner in walk_graphs(graph) for node in inner.nodes for value in node.outputs}
    for name, variant in kernels.items():
        if name not in ops | nodes:
            raise ConfigError(f"kernels={kernels!r}: {name!r} is neither an op with kernels nor a node of the model")
        if not isinstance(variant, str) or not variant:
            raise ConfigError(f"kernels={kernels!r}: {variant!r} is no name of a variant")


class _Pipeline:
    """The passes of one program on its target, whatever is chosen of them."""

    def __init__(self, registry: PluginRegistry, table: KernelTable, backend: Backend, optimize: bool) -> None:
        self.whole = default_passes(registry.passes) if optimize else required_passes()
        self.sized = specialise_passes() if optimize else required_passes()
        self._table = table
        self._device = backend.device
        self._selector = backend.selector
        self.races: Races | None = None
        self.evaluate = ReferenceEvaluator(table) if table.has("cpu") else None

    def passes(self, choices: Choices, trace: bool = False) -> _Passes:
        """Raises ConfigError for choices that fit none of the passes."""
        choices.check((*self.whole, *self.sized))
        return _Passes(self, choices, trace)

    def considered(self) -> str:
        """Digest of all that choices and times depend on: the passes, and the code of passes and kernels."""
        passes = [(one.name, options_text(one)) for one in (*self.whole, *self.sized)]
        packages = {type(one).__module__.partition(".")[0] for one in self.whole}
        return considered_passes(passes, packages | self._table.packages(self._device.kind))

    def versions(self, graph: Graph, without: str) -> tuple[Graph, Graph | None]:
        """What would run of a small graph, with a pass left out; and with the channels of its images last."""
        from aicore.passes.in_channels_last import in_channels_last  # for races alone

        passes = self.passes(Choices(off=(without, "fuse-pointwise", "place-channels-last")))
        plain, rest = passes.whole(graph)[0], self.passes(Choices(off=(without, "place-channels-last")))
        found = [None if g is None else rest.specialised(rest.whole(g)[0])[0] for g in (plain, in_channels_last(plain))]
        assert found[0] is not None  # the first one is always there
        return found[0], found[1]

    def race(self, races: Sequence[Race]) -> Sequence[RaceResult | str]:
        return nobody_measured(races) if self.races is None else self.races.judge(races)

    def supports(self, op: Op, *types: TensorType | None) -> str | None:
        return None if is_control_flow(op) else self._selector.reason_against(op, *types)

    @property
    def device(self) -> str:
        """Kind of the target."""
        return self._device.kind

    def seconds(self, op: Op, *types: TensorType | None, constant: Collection[int] = ()) -> float | None:
        """Of the best kernel, for typical sizes while sizes are open; None where neither measured nor estimated."""
        sized = [t and _at_typical_sizes(t) for t in types]
        if self.supports(op, *sized) is not None:
            return None
        return self._selector.select(op, *sized, constant=constant).candidates[0].seconds

    def may_support(self, op: Op, *types: TensorType | None) -> str | None:
        """The answer for typical sizes, while sizes are open: the passes of the concrete graph take back what fails."""
        return self.supports(op, *(t and _at_typical_sizes(t) for t in types))


class _Passes:
    """The passes of one program: once for the graph as it is, then for each set of input shapes.

    Changes are numbered through: those for known sizes go on where those on the whole graph ended. With a limit or a
    recorder, each set of shapes, and each body of a loop, goes on where the one before it ended.
    """

    def __init__(self, pipeline: _Pipeline, choices: Choices, trace: bool) -> None:
        self._pipeline = pipeline
        self._choices = choices
        self.recorder = _recorder() if trace else None
        self._changes: list[tuple[str, str]] = []
        self._spent = 0
        self._lock = threading.Lock()
        self.is_open = False
        self.verdicts: dict[str, str] = {}

    def anew(self) -> _Passes:
        """The same choices, for other sizes."""
        return self._pipeline.passes(self._choices)

    def whole(self, graph: Graph) -> tuple[Graph, Report]:
        return self._run(graph, self._pipeline.whole, self._pipeline.may_support, "whole", goes_on=True)

    def specialised(self, graph: Graph) -> tuple[Graph, Report]:
        in_a_row = self.recorder is not None or self._choices.limit is not None
        with self._lock if in_a_row else nullcontext():
            return self._run(graph, self._pipeline.sized, self._pipeline.supports, "sized", goes_on=in_a_row)

    def _run(
        self, graph: Graph, passes: Sequence[Pass], supports: Callable[..., str | None], stage: Stage, goes_on: bool
    ) -> tuple[Graph, Report]:
        limit = self._choices.limit
        ctx = Context(
            supports=supports,
            seconds=self._pipeline.seconds,
            race=self._pipeline.race,
            device=self._pipeline.device,
            evaluate=self._pipeline.evaluate,
            off=frozenset(self._choices.off),
            budget=math.inf if limit is None else limit,
            matches=len(self._changes),
            spent=self._spent,
            changes=list(self._changes),
        )
        if self.recorder is not None:
            self.recorder.begin(stage)
        found = run_passes(graph, self._choices.apply(passes), ctx, recorder=self.recorder)
        if goes_on:
            self._changes, self._spent = ctx.changes, ctx.spent
        if stage == "whole":
            self.is_open, self.verdicts = ctx.is_open, ctx.verdicts
        return found


def _recorder() -> Recorder:
    from aicore.passes import Recorder  # few programs are traced

    return Recorder()


_TYPICAL_SIZE = 240
"""Stands for each open dim: large enough for the windows of networks, and a multiple of most strides."""


@lru_cache(maxsize=4096)
def _at_typical_sizes(tensor: TensorType) -> TensorType:
    if tensor.shape is None or tensor.is_static:
        return tensor
    sizes = {name: _TYPICAL_SIZE for dim in tensor.shape for name in symbols(dim)}
    return TensorType(tensor.dtype, tuple(substitute(dim, sizes) for dim in tensor.shape))


class _BackendBuilder:
    """Backends of one program; each has its own constants, so that they are freed with the program."""

    def __init__(
        self,
        registry: PluginRegistry,
        table: KernelTable,
        overrides: Mapping[str, str],
        store: TuningStore | None,
        precision: Precision,
    ) -> None:
        self._registry = registry
        self._table = table
        self._overrides = overrides
        self._store = store
        self._precision: Precision = precision

    def __call__(self, name: str) -> Backend:
        record, device = self._registry.devices()[self._registry.device_name(name)]
        tuned = None if self._store is None else Chooser(self._store, device, self._precision)
        selector = Selector(self._table, device.kind, self._overrides, tuned)
        return Backend(device, self._registry.launcher(name), selector, Constants(device), record.name)


def _has_device(registry: PluginRegistry, name: str) -> bool:
    return name in registry.devices()
