"""Models as files: what of a model is written, and how a file becomes part of a model again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aicore.errors import ConfigError, InputError
from aicore.nn.callbacks import Callback, matching, with_state
from aicore.nn.checkpoint import Checkpoint, read_checkpoint, write_checkpoint, write_tensors
from aicore.nn.history import History
from aicore.nn.programs import Training

if TYPE_CHECKING:
    from aicore.nn.model import Model

Path = str | os.PathLike[str]


def save(model: Model, path: Path) -> None:
    """See `Model.save`."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix == ".onnx":
        from aicore.frontends.onnx import save_model  # imports onnx, which training does not need

        save_model(model.graph(), path)
    elif suffix == ".safetensors":
        write_tensors(path, model.state_dict())
    else:
        raise ConfigError(f"{os.fspath(path)!r}: models are saved as .onnx or .safetensors")


def save_checkpoint(model: Model, training: Training, path: Path) -> None:
    """See `Model.save_checkpoint`."""
    callbacks = with_state(training.callbacks)
    tensors = training.state.read()
    for i, callback in enumerate(callbacks):
        tensors |= {f"callback.{i}.{name}": array for name, array in callback.tensors().items()}
    told = [(type(callback).__name__, callback.state()) for callback in callbacks]
    write_checkpoint(path, Checkpoint(tensors, model.progress, model.history.history, told, model.seed))


def load_checkpoint(model: Model, training: Training, path: Path, callbacks: Sequence[Callback]) -> None:
    """See `Model.load_checkpoint`."""
    found = read_checkpoint(path)
    types = training.state.types
    own = {n: array for n, array in found.tensors.items() if n in types or not n.startswith("callback.")}
    missing = [name for name in types if name not in own]
    if missing:
        raise InputError(f"{os.fspath(path)}: there is no {missing[0]!r}; it belongs to another model or optimiser")
    kinds = [name for name, _ in found.callbacks]
    kept = matching(callbacks, kinds)
    if kept is None:
        got = [type(callback).__name__ for callback in with_state(callbacks)]
        raise InputError(f"{os.fspath(path)}: made with callbacks {kinds}, got {got}")
    training.state.write(own)
    for i, (callback, (_, state)) in enumerate(zip(kept, found.callbacks, strict=True)):
        prefix = f"callback.{i}."
        tensors = {n.removeprefix(prefix): a for n, a in found.tensors.items() if n.startswith(prefix)}
        callback.load_state(state, tensors)
    model.progress, model.seed = found.progress, found.seed
    model.history = History(found.history)
