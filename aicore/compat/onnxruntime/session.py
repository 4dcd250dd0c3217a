"""InferenceSession: a program of aicore behind onnxruntime's interface."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import aicore
from aicore.compat.onnxruntime.errors import Fail, InvalidArgument, MissingInput, NoSuchFile, translated
from aicore.compat.onnxruntime.iobinding import IOBinding
from aicore.compat.onnxruntime.options import (
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    added_providers,
    free_dimensions,
    warn_of_unmet,
)
from aicore.compat.onnxruntime.ortvalue import OrtValue, memory_of, tensor_type_name
from aicore.compat.onnxruntime.providers import Choice, Provider, choose_device, provider_name
from aicore.frontends.onnx.metadata import PROPERTY, overridable_names
from aicore.ir import Dim, Graph, TensorType, Value, is_unknown, retype, substitute, symbol, symbols

Callback = Callable[[list[Any], Any, str], None]
"""(results, the caller's data, error or an empty text)."""

_NO_VERSION = (1 << 63) - 1
"""What onnxruntime says of a model that says nothing."""


@dataclass(frozen=True)
class NodeArg:
    """Name, type such as `tensor(float)`, and shape of an input or output; a dim is an int, a name, or None."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """What the model's file says about itself; the version is 2**63 - 1 where it gives none."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = _NO_VERSION
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


class Session:
    """The base of InferenceSession; clients test instances against it."""


class InferenceSession(Session):
    """Loads and compiles a model; `run` computes it. Threads may share it.

    path_or_bytes: a file, or its content.
    providers: names, or (name, options) pairs, in order of preference; the first that can be used is.
    forced_target: a device of aicore that overrides providers (see `install`).
    """

    def __init__(
        self,
        path_or_bytes: str | PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        forced_target: str | None = None,
        **_: Any,
    ) -> None:
        self._options = SessionOptions() if sess_options is None else deepcopy(sess_options)
        self._forced = forced_target
        self._started = time.time_ns()
        source = _checked_source(path_or_bytes)
        self._path = "" if isinstance(source, bytes) else str(source)
        warn_of_unmet(self._options)
        self._source = source
        self._lock = threading.Lock()
        self._graph = self._load(frozenset())
        self._overridable = frozenset(overridable_names(self._graph.metadata))
        self.set_providers(providers or added_providers(self._options), provider_options)

    def set_providers(
        self, providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Compile again for the first of these providers that can be used."""
        choice = _forced(self._forced) if self._forced else choose_device(providers, provider_options)
        self._device = choice.device
        self._program = self._compile(self._graph)
        self._overriding: dict[frozenset[str], aicore.Program] = {}
        self._provider_options = choice.options

    @property
    def program(self) -> aicore.Program:
        """The aicore program behind this session."""
        return self._program

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Values of the named outputs, or of all; feeds are arrays, OrtValues or nested lists.

        Raises InvalidArgument naming an unknown output, or a missing, unknown or ill-fitting input (a missing one is a
        ValueError too).
        """
        known = [name for name, _ in self._graph.outputs]
        if isinstance(output_names, str):
            raise TypeError(f"output_names must be a sequence of names, not {output_names!r}")
        wanted = list(output_names) if output_names else known
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise InvalidArgument(f"Invalid output name: {unknown[0]}; the model has {', '.join(known)}")
        missing = [value.name for value in self._graph.inputs if value.name not in input_feed.keys()]  # noqa: SIM118
        if missing:  # `.keys()`: a feed that is no mapping is an AttributeError, as in onnxruntime
            raise MissingInput(f"Required inputs ({missing}) are missing from input feed ({list(input_feed)}).")
        if run_options is not None and run_options.terminate:
            raise Fail("Exiting due to terminate flag being set to true.")
        feeds = {name: memory_of(v) if isinstance(v, OrtValue) else v for name, v in input_feed.items()}
        program = self._program_for(frozenset(feeds) & self._overridable)
        with translated():
            results = program.run(feeds)
        return [results[name] for name in wanted]

    def _program_for(self, overridden: frozenset[str]) -> aicore.Program:
        """The program; one in which these initializers are inputs, compiled when such feeds first come."""
        if not overridden:
            return self._program
        with self._lock:
            if overridden not in self._overriding:
                self._overriding[overridden] = self._compile(self._load(overridden))
            return self._overriding[overridden]

    def _load(self, overridden: frozenset[str]) -> Graph:
        with translated():
            graph = aicore.load(self._source, overridable=overridden)
            return _with_sizes(graph, free_dimensions(self._options))

    def _compile(self, graph: Graph) -> aicore.Program:
        optimize = self._options.graph_optimization_level != GraphOptimizationLevel.ORT_DISABLE_ALL
        with translated():
            return aicore.compile(graph, target=self._device, optimize=optimize)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, with OrtValues in and out."""
        return [OrtValue(array) for array in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """As `run` in a thread of its own, which then calls `callback` with the results or the text of the error."""

        def work() -> None:
            try:
                results, problem = self.run(output_names, input_feed, run_options), ""
            except Exception as error:  # noqa: BLE001  # the callback is where the caller hears of it
                results, problem = [], f"{type(error).__name__}: {error}"
            callback(results, user_data, problem)

        threading.Thread(target=work, name="aicore-run-async").start()

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on bound inputs; results are then in the binding."""
        iobinding.run(self)

    def get_inputs(self) -> list[NodeArg]:
        return [_node_arg(value.name, value.type) for value in self._graph.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Dims that are computed from named ones have no name here."""
        return [_node_arg(name, value.type) for name, value in self._graph.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that the model also lists as inputs: an array fed under such a name replaces the value."""
        inputs = self._load(self._overridable).inputs if self._overridable else ()
        return [_node_arg(value.name, value.type) for value in inputs if value.name in self._overridable]

    def get_modelmeta(self) -> ModelMetadata:
        return _metadata(self._graph.metadata)

    def get_providers(self) -> list[str]:
        return list(self._provider_options)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: dict(options) for name, options in self._provider_options.items()}

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_profiling_start_time_ns(self) -> int:
        return self._started

    def end_profiling(self) -> str:
        """An empty name: no profile was written; `program.profile` measures."""
        return ""

    def disable_fallback(self) -> None:
        """Nothing to do: a session never moves to another provider after it is made."""

    def enable_fallback(self) -> None:
        """Nothing to do: a session never moves to another provider after it is made."""


def _checked_source(given: Any) -> Path | bytes:
    if isinstance(given, bytes):
        return given
    if not isinstance(given, str | PathLike):
        raise TypeError(f"Unable to load from type '{type(given)}'")
    path = Path(fspath(given))
    if not path.is_file():
        raise NoSuchFile(f"Load model from {path} failed: the file does not exist")
    return path


def _forced(target: str) -> Choice:
    return Choice(target, {provider_name(target): {}, provider_name("cpu"): {}})


def _node_arg(name: str, tensor: TensorType) -> NodeArg:
    return NodeArg(name, tensor_type_name(tensor.dtype), [_dim(dim) for dim in tensor.shape or ()])


def _dim(dim: Dim) -> int | str | None:
    if isinstance(dim, int):
        return dim
    names = symbols(dim)
    if is_unknown(dim) or len(names) != 1:
        return None
    name = names.pop()
    return name if dim == symbol(name) else None


def _metadata(said: Mapping[str, str]) -> ModelMetadata:
    names = ("producer_name", "graph_name", "domain", "description", "graph_description")
    return ModelMetadata(
        **{name: said.get(name, "") for name in names},
        version=int(said.get("model_version", _NO_VERSION)),
        custom_metadata_map={
            key.removeprefix(PROPERTY): text for key, text in said.items() if key.startswith(PROPERTY)
        },
    )


def _with_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with these named dims fixed."""
    if not sizes:
        return graph

    def sized(value: Value) -> TensorType:
        shape = value.shape
        return TensorType(value.dtype, None if shape is None else tuple(substitute(dim, sizes) for dim in shape))

    return retype(graph, [sized(value) for value in graph.inputs])
