"""External tensor data: files beside the model, mapped read-only, and nothing but files beside the model.

The locations come from the model file, so they are treated as an attack until shown harmless. Every part of a path
is looked at without following links; the file that was looked at is the one that is opened.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from aicore.errors import ModelError
from aicore.frontends.onnx.protos import TensorProto
from aicore.frontends.onnx.texts import texts

_KEYS = frozenset({"location", "offset", "length", "checksum"})
_LARGEST = 1 << 62


class ExternalData:
    """The external data of one model.

    folder: where the model file lies; None for a model that did not come from a file.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: dict[str, np.ndarray[Any, Any]] = {}
        self._digests: dict[str, str] = {}

    def map(self, tensor: TensorProto, needed: int, what: str) -> np.ndarray[Any, Any]:
        """The tensor's bytes, as a read-only uint8 array over the mapped file.

        needed: how many bytes its shape asks for.
        Raises ModelError for a path that is not a plain file below the model's folder, for unknown keys, for an offset
        or length that is no number or does not fit the file, and for a wrong checksum.
        """
        entries = _entries(tensor, what)
        if self._folder is None:
            raise ModelError(
                f"{what}: its data is in the file {entries['location']!r}, but the model was given as bytes; "
                "load it by its path"
            )
        location = entries["location"]
        offset = _number(entries.get("offset", "0"), "offset", what)
        length = _number(entries["length"], "length", what) if "length" in entries else needed
        if length != needed:
            raise ModelError(f"{what}: its shape needs {needed} bytes, its external data has the length {length}")
        data = self._file(location, self._folder, what)
        if offset + length > data.size:
            raise ModelError(
                f"{what}: bytes {offset} to {offset + length} lie outside {location!r}, which has {data.size}"
            )
        if "checksum" in entries:
            self._check_digest(location, data, entries["checksum"], what)
        return data[offset : offset + length]

    def _file(self, location: str, folder: Path, what: str) -> np.ndarray[Any, Any]:
        if location not in self._files:
            self._files[location] = _map_file(folder, location, what)
        return self._files[location]

    def _check_digest(self, location: str, data: np.ndarray[Any, Any], wanted: str, what: str) -> None:
        if location not in self._digests:
            digest = hashlib.sha1(usedforsecurity=False)  # the format's choice; it guards against accidents only
            digest.update(data.data)
            self._digests[location] = digest.hexdigest()
        if self._digests[location] != wanted.strip().lower():
            raise ModelError(f"{what}: {location!r} does not have the checksum {wanted!r}")


def _entries(tensor: TensorProto, what: str) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        texts((entry.key, entry.value))
        if entry.key not in _KEYS:
            raise ModelError(f"{what}: unknown key {entry.key!r} of external data")
        if entry.key in entries:
            raise ModelError(f"{what}: external data has the key {entry.key!r} twice")
        entries[entry.key] = entry.value
    if not entries.get("location"):
        raise ModelError(f"{what}: external data has no location")
    return entries


def _number(text: str, key: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20) or int(text) > _LARGEST:
        raise ModelError(f"{what}: the {key} {text!r} of external data is no size")
    return int(text)


def _map_file(folder: Path, location: str, what: str) -> np.ndarray[Any, Any]:
    path, seen = _plain_file(folder, location, what)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise ModelError(f"{what}: cannot open external data {location!r}: {error.strerror}") from error
    try:
        opened = os.fstat(descriptor)
        if (opened.st_dev, opened.st_ino) != (seen.st_dev, seen.st_ino):
            raise ModelError(f"{what}: external data {location!r} was exchanged while it was opened")
        if not opened.st_size:  # nothing can be mapped
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(descriptor, opened.st_size, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError, OverflowError) as error:
        raise ModelError(f"{what}: cannot map external data {location!r}: {error}") from error
    finally:
        os.close(descriptor)


def _plain_file(folder: Path, location: str, what: str) -> tuple[Path, os.stat_result]:
    """The path and status of a file below the folder, reached through no link; raises ModelError for anything else."""
    parts = _parts(location, what)
    path = folder
    for index, part in enumerate(parts):
        path = path / part
        try:
            status = os.lstat(path)
        except (OSError, ValueError) as error:
            raise ModelError(f"{what}: there is no external data {location!r} beside the model") from error
        if stat.S_ISLNK(status.st_mode):
            raise ModelError(f"{what}: external data {location!r} is reached through a symbolic link")
        if index < len(parts) - 1 and not stat.S_ISDIR(status.st_mode):
            raise ModelError(f"{what}: there is no external data {location!r} beside the model")
    if not stat.S_ISREG(status.st_mode):
        raise ModelError(f"{what}: external data {location!r} is not a plain file")
    if status.st_nlink > 1:
        raise ModelError(f"{what}: external data {location!r} is a hard link, so it may be a file from elsewhere")
    return path, status


def _parts(location: str, what: str) -> list[str]:
    rooted = location.startswith(("/", "\\")) or location[1:2] == ":"
    if rooted or "\0" in location:
        raise ModelError(f"{what}: external data {location!r} is not a path relative to the model")
    parts = location.split("/")
    if os.sep != "/":
        parts = [piece for part in parts for piece in part.split(os.sep)]
    if ".." in parts or any("\\.." in part or "..\\" in part for part in parts):
        raise ModelError(f"{what}: external data {location!r} leaves the model's folder")
    parts = [part for part in parts if part not in ("", ".")]
    if not parts:
        raise ModelError(f"{what}: external data {location!r} names no file")
    return parts
