"""Session and run options.

What aicore can honour it honours; what only tunes onnxruntime's own machinery is kept to read back; what would change
results is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from aicore.compat.onnxruntime.errors import Refused


class GraphOptimizationLevel(IntEnum):
    """DISABLE_ALL compiles without passes; every other level runs aicore's default passes."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Accepted; a plan runs in one order."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Accepted; a plan runs in one order."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


@dataclass(slots=True)  # slots: a misspelt option is an AttributeError, as in onnxruntime
class SessionOptions:
    """Options of one session, with onnxruntime's names and defaults."""

    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    _free_dimensions: dict[str, int] = field(default_factory=dict, init=False)
    _providers: list[tuple[str, dict[str, Any]]] = field(default_factory=list, init=False)
    _entries: dict[str, str] = field(default_factory=dict, init=False)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keep an entry, for `get_session_config_entry` to read back."""
        self._entries[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """The entry kept under `key`; raises RuntimeError when there is none, as onnxruntime does."""
        if key not in self._entries:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give a named dim its size: sessions then accept no other."""
        self._free_dimensions[name] = int(size)

    def add_provider(self, name: str, options: Mapping[str, Any]) -> None:
        """Prefer a provider, after those added before; sessions that name providers themselves do not ask."""
        self._providers.append((name, dict(options)))

    def has_providers(self) -> bool:
        return bool(self._providers)

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: such a library holds kernels for onnxruntime's own interface."""
        raise Refused(f"custom op library {path!r}: aicore takes kernels from plugins, see writing-a-backend")

    def add_initializer(self, name: str, value: Any) -> None:
        """Refused: it would change the model's numbers."""
        raise Refused(f"initializer {name!r}: put it into the model instead")

    def add_external_initializers(self, names: Any, values: Any) -> None:
        """Refused: they would change the model's numbers."""
        raise Refused(f"initializers {list(names)}: put them into the model instead")

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Refused: aicore keeps names of dims, not denotations."""
        raise Refused(f"dims of denotation {denotation!r}: override them by name instead")


@dataclass(slots=True)
class RunOptions:
    """Options of one run; `terminate` is honoured, the others are kept to read back."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    _entries: dict[str, str] = field(default_factory=dict, init=False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry, for `get_run_config_entry` to read back."""
        self._entries[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry kept under `key`; raises RuntimeError when there is none."""
        if key not in self._entries:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._entries[key]


def free_dimensions(options: SessionOptions) -> Mapping[str, int]:
    """Sizes by name of the dims that the options fix."""
    return options._free_dimensions


def added_providers(options: SessionOptions) -> list[tuple[str, dict[str, Any]]]:
    """The providers that the options prefer, in order."""
    return list(options._providers)


def warn_of_unmet(options: SessionOptions) -> None:
    """Say aloud which files the client asks for and will not get."""
    if options.optimized_model_filepath:
        warnings.warn(f"aicore writes no {options.optimized_model_filepath!r}: it has no such format", stacklevel=4)
    if options.enable_profiling:
        warnings.warn("aicore writes no profile: `session.program.profile` measures each step", stacklevel=4)
