"""From a path, bytes or a ModelProto to a ModelProto with a graph, of versions that can be read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TypeAlias, cast

from google.protobuf.message import DecodeError

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx.protos import ModelProto, is_message
from aicore.frontends.onnx.published import newest_ir_version, newest_opset
from aicore.frontends.onnx.raw_data import Content, split_raw_data
from aicore.frontends.onnx.texts import text
from aicore.records import dataclass

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | ModelProto"

SIZE_LIMIT = (1 << 31) - 1
"""Bytes of a protobuf; the format allows no more. Larger models keep their weights in external data."""
CONVERTED_SINCE = 6
"""The oldest opset with converters. Of older ones, operators that have not changed since are read."""
_OLDEST_IR = 3
_LARGEST_VERSION = (1 << 31) - 1


@dataclass(frozen=True)
class ModelFile:
    """A parsed model.

    folder: where external data may lie; None when the model did not come from a file.
    opsets: version of each domain that the model imports; the standard one is the empty text.
    raw_data: those of initializers by their number, where they are not in `proto`.
    """

    proto: ModelProto
    folder: Path | None
    opsets: dict[str, int]
    raw_data: Mapping[int, memoryview] = field(default_factory=dict)


def read_model(source: Source) -> ModelFile:
    """Parse and check the outermost layer of a model.

    Raises ModelError for a file that is missing, too large or no ONNX model; UnsupportedError for a version of the
    format or of the standard operators that is too old or too new. TypeError for any other kind of source.
    """
    if is_message(source, "ModelProto"):
        return _checked(cast("ModelProto", source), {}, None, "the model")
    if isinstance(source, bytes | bytearray | memoryview):
        return _checked(*_parse(bytes(source), "the given bytes"), None, "the given bytes")
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _checked(*_parse(_content(path), str(path)), path.parent, str(path))
    raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}")


def domain_name(domain: str) -> str:
    """The domain with the standard one written as the empty text."""
    return "" if domain == "ai.onnx" else domain


def _content(path: Path) -> Content:
    try:
        if not path.is_file():
            raise ModelError(f"{path}: {'is not a file' if path.exists() else 'there is no such file'}")
        size = path.stat().st_size
        if size > SIZE_LIMIT:
            raise ModelError(f"{path}: is larger than a protobuf can be ({SIZE_LIMIT} bytes)")
        if not size:  # nothing can be mapped
            return b""
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ModelError(f"{str(path)!r}: cannot be read: {error}") from error


def _parse(content: Content, what: str) -> tuple[ModelProto, Mapping[int, memoryview]]:
    if not len(content):
        raise ModelError(f"{what}: is empty")
    if len(content) > SIZE_LIMIT:
        raise ModelError(f"{what}: is larger than a protobuf can be ({SIZE_LIMIT} bytes)")
    try:
        rest, raw_data = split_raw_data(content)
        return ModelProto.FromString(rest), raw_data
    except (DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{what}: is no ONNX model, or is damaged: {error}") from error


def _checked(proto: ModelProto, raw_data: Mapping[int, memoryview], folder: Path | None, what: str) -> ModelFile:
    if not proto.HasField("graph"):
        raise ModelError(f"{what}: is no ONNX model: it holds no graph")
    if not proto.HasField("ir_version"):
        raise ModelError(f"{what}: is no ONNX model: it has no IR version")
    newest = newest_ir_version(proto.ir_version)
    if not _OLDEST_IR <= proto.ir_version <= newest:
        raise UnsupportedError(
            f"{what}: IR version {proto.ir_version} is outside {_OLDEST_IR} to {newest}, "
            "the versions that aicore and the installed onnx know"
        )
    return ModelFile(proto, folder, opset_versions(proto.opset_import, what), raw_data)


def opset_versions(imports: object, what: str) -> dict[str, int]:
    """Version by domain of a list of opset imports.

    Raises ModelError when there are none or one domain has two versions; UnsupportedError for a version of the
    standard operators that is newer than aicore and the installed onnx know, or none.
    """
    found: dict[str, int] = {}
    for entry in imports:  # type: ignore[attr-defined]
        domain = domain_name(text(entry.domain))
        if not 1 <= entry.version <= _LARGEST_VERSION:
            raise ModelError(f"{what}: imports version {entry.version} of {domain or 'ai.onnx'!r}")
        if found.setdefault(domain, entry.version) != entry.version:
            raise ModelError(f"{what}: imports versions {found[domain]} and {entry.version} of {domain or 'ai.onnx'!r}")
    if not found:
        raise ModelError(f"{what}: imports no operator set")
    newest = newest_opset(found.get("", 0))
    if "" in found and found[""] > newest:
        raise UnsupportedError(
            f"{what}: opset {found['']} is not among 1 to {newest}, which aicore and the installed onnx know"
        )
    return found
