"""Checkpoints: tensors as safetensors, everything else as JSON in the file's metadata. Never pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from aicore.errors import ConfigError, ModelError
from aicore.records import dataclass

Array = np.ndarray[Any, Any]

FORMAT = "aicore.training.1"
_HEADER = "aicore"


@dataclass(frozen=True)
class Progress:
    """How far training is: epochs that are over, steps in all, and samples seen in the current epoch.

    sums: loss and metrics of the current epoch so far, times the number of samples.
    """

    epoch: int = 0
    step: int = 0
    seen: int = 0
    sums: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Checkpoint:
    """All that training needs to go on with the same bits.

    tensors: state by name. callbacks: (class, state) in order. history: numbers of each epoch by name.
    """

    tensors: Mapping[str, Array]
    progress: Progress
    history: Mapping[str, list[float]]
    callbacks: list[tuple[str, dict[str, Any]]]
    seed: int


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint. Raises ConfigError for a callback's state that JSON cannot hold."""
    told = {
        "format": FORMAT,
        "progress": asdict(checkpoint.progress),
        "history": dict(checkpoint.history),
        "callbacks": checkpoint.callbacks,
        "seed": checkpoint.seed,
    }
    try:
        text = json.dumps(told)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the state of a callback is no JSON: {error}") from error
    write_tensors(path, checkpoint.tensors, {_HEADER: text})


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors as a safetensors file, which other libraries read too.

    The file is written beside its place and moved there, so that an interruption leaves the old one whole.
    """
    from safetensors.numpy import save

    content = save(_dense(tensors), metadata=None if metadata is None else dict(metadata))
    target = Path(path)
    draft = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(content)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Raises ModelError for a file that is damaged, or no checkpoint of training."""
    tensors, metadata = _opened(path)
    try:
        told = json.loads(metadata[_HEADER])
        if told["format"] != FORMAT:
            raise ModelError(f"{path}: the checkpoint has format {told['format']!r}, this version reads {FORMAT!r}")
        return Checkpoint(
            tensors,
            _progress(told["progress"]),
            {str(name): [float(v) for v in values] for name, values in told["history"].items()},
            [(str(name), dict(state)) for name, state in told["callbacks"]],
            int(told["seed"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelError(f"{path}: no checkpoint of training: {type(error).__name__}: {error}") from error


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The tensors of any safetensors file. Raises ModelError for a damaged one."""
    return _opened(path)[0]


def _dense(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """In C order, which safetensors takes for granted; a scalar stays one."""
    return {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}


def _progress(told: Mapping[str, Any]) -> Progress:
    sums = told["sums"]
    numbers = {name: int(told[name]) for name in ("epoch", "step", "seen")}
    if min(numbers.values()) < 0:
        raise ValueError(f"negative progress {numbers}")
    return Progress(**numbers, sums=None if sums is None else {str(k): float(v) for k, v in sums.items()})


def _opened(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118  # no dict
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:  # of types, the last
        raise ModelError(f"{path}: no safetensors file that can be read: {error}") from error
