"""Loading models and compiling graphs: plugins, passes, kernels and the runtime put together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypeAlias

from aicore.collector import collector_at_rest
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
from aicore.kernels import REFERENCE, KernelTable, Selector
from aicore.passes import Report, default_passes, required_passes, run_passes, specialise_passes
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.program import Program
from aicore.rewrite import Context
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
from aicore.tuning import Chooser, TuningStore

if TYPE_CHECKING:
    import onnx

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
        from aicore.frontends.onnx import load_model  # imports onnx, which hand-built graphs do not need

        return load_model(source, extra_ops=registry.ops.values(), overridable=overridable)


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
    table = KernelTable.of_precision(registry.kernels, parse_precision(precision))
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
        before_placing=build.tuning(backend, measure) if measure and not isinstance(measure, str) else None,
    )
    fallbacks = [build("cpu")] if backend.device.kind != "cpu" and _has_device(registry, "cpu") else []
    verify(graph)
    passes = _Passes(registry, table, backend, optimize)
    with collector_at_rest(), using_threads(options.threads):
        optimised, report = passes.whole(graph)
    home = backend.name if backend.device.kind == "cpu" else HOST  # the CPU's memory is the host's
    specialiser = Specialiser(optimised, backend, fallbacks, options, passes.specialised, home)
    return Program(optimised, backend.device, specialiser, why or f"target {backend.name}: asked for", (report,))


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


class _Passes:
    """The passes of one program: once for the graph as it is, then for each set of input shapes."""

    def __init__(self, registry: PluginRegistry, table: KernelTable, backend: Backend, optimize: bool) -> None:
        self._whole = default_passes(registry.passes) if optimize else required_passes()
        self._specialised = specialise_passes() if optimize else required_passes()
        self._selector = backend.selector
        has_references = any(kernel.device == "cpu" for kernel in table)
        self._evaluate = ReferenceEvaluator(table) if has_references else None

    def whole(self, graph: Graph) -> tuple[Graph, Report]:
        return run_passes(graph, self._whole, Context(supports=self._may_support, evaluate=self._evaluate))

    def specialised(self, graph: Graph) -> tuple[Graph, Report]:
        return run_passes(graph, self._specialised, Context(supports=self._supports, evaluate=self._evaluate))

    def _supports(self, op: Op, *types: TensorType | None) -> str | None:
        return None if is_control_flow(op) else self._selector.reason_against(op, *types)

    def _may_support(self, op: Op, *types: TensorType | None) -> str | None:
        """The answer for typical sizes, while sizes are open: the passes of the concrete graph take back what fails."""
        return self._supports(op, *(t and _at_typical_sizes(t) for t in types))


_TYPICAL_SIZE = 240
"""Stands for each open dim: large enough for the windows of networks, and a multiple of most strides."""


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

    def tuning(self, backend: Backend, how: Measure) -> Callable[[Graph], None]:
        """Measures the kernels that a graph could use on the backend."""
        from aicore.tuning import Tuner  # as in _measure_of

        chooser = backend.selector.tuned
        assert isinstance(chooser, Chooser)  # a backend that is measured for was built with a store
        references = KernelTable(kernel for kernel in self._table if kernel.variant == REFERENCE)
        tuner = Tuner(backend, chooser, ReferenceEvaluator(references))  # never what is to be measured itself

        def measure(graph: Graph) -> None:
            tuner.run(graph, how)

        return measure


def _has_device(registry: PluginRegistry, name: str) -> bool:
    return name in registry.devices()
