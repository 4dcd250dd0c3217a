"""ONNX models: `load_model` turns one into a Graph, `export_model` turns a Graph into one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError, EncodeError

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx.importer import import_model
from aicore.frontends.onnx.read import SIZE_LIMIT, Source, read_model
from aicore.ir import Graph, Op
from aicore.lazy import lazy_names

if TYPE_CHECKING:
    from aicore.frontends.onnx.exporter import OLDEST_OPSET, export_model


def load_model(source: Source, *, extra_ops: Iterable[type[Op]] = (), overridable: Collection[str] = ()) -> Graph:
    """The graph of an ONNX model of opset 7 (or 6) to the newest of the installed onnx package.

    source: a path, the file's content, or a ModelProto. External data is mapped from files beside the model.
    extra_ops: ops of plugins; a node of their domain with the name of their class becomes one.
    overridable: initializers that the model also lists as inputs, and that are to be inputs of the graph. The others
        are constants, which passes can fold: files of IR version 3 list every initializer as an input.
    Raises ModelError for a model that is damaged, unsafe or breaks ONNX's rules, UnsupportedError for what aicore
    cannot do, InferenceError where operands contradict an operator; all name node and value.
    """
    model = read_model(source)
    try:
        return import_model(model, extra_ops, overridable)
    except UnicodeDecodeError as error:  # protobuf hands out names lazily
        raise ModelError(f"a name in the model is not UTF-8: {error}") from error
    except (DecodeError, EncodeError) as error:
        raise ModelError(f"the model is damaged: {error}") from error


def save_model(graph: Graph, path: str | os.PathLike[str], opset: int | None = None) -> None:
    """Write the graph as an ONNX model, of the newest opset or of another one that `export_model` takes.

    Raises UnsupportedError as `export_model` does, and for a model that is too large for one protobuf.
    """
    from aicore.frontends.onnx.exporter import export_model

    model = export_model(graph, opset)
    size = model.ByteSize()
    if size > SIZE_LIMIT:
        raise UnsupportedError(f"{path}: {size} bytes are more than one protobuf can hold ({SIZE_LIMIT})")
    Path(path).write_bytes(model.SerializeToString())


__all__ = ["OLDEST_OPSET", "Source", "export_model", "load_model", "save_model"]

_EXPORTER = "aicore.frontends.onnx.exporter"
__getattr__ = lazy_names(__name__, {"OLDEST_OPSET": _EXPORTER, "export_model": _EXPORTER})  # reading needs neither
