"""What a verdict on an installed plugin is valid for: its version, its files, and what it stands on."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicore.errors import error_text
from aicore.plugins.discovery import Installed, core_version, find_distribution, find_module, read_headers
from aicore.plugins.distributions import PlainDistribution

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def fingerprint(item: Installed) -> dict[str, str]:
    """Facts that must all be unchanged for an old verdict to hold. Nothing of the plugin is imported.

    `files` is a digest of path, size and time of change of every file that the distribution lists and of every file of
    the package that holds the plugin; the latter sees edits of an editable installation, whose list has no sources.
    `requirements` are the installed versions of what it requires directly.
    """
    return {
        "plugin": item.entry.name,
        "module": item.entry.value,
        "distribution": item.label,
        "aicore": core_version(),
        "python": python_identity(),
        "requirements": ", ".join(sorted(set(_requirements(item)))),
        "files": _digest(item),
    }


@functools.cache
def python_identity() -> str:
    """The Python environment that this process runs in."""
    machine = os.uname().machine if hasattr(os, "uname") else ""  # on Windows `sys.version` has it
    return f"{sys.implementation.name} {sys.version} {machine} {sys.prefix}"


def _requirements(item: Installed) -> Iterator[str]:
    for text in item.requires:
        name = re.match(_NAME, text)
        if name is None or name[0].lower() == "aicore" or "extra" in text.partition(";")[2]:
            continue
        dist = find_distribution(name[0])
        try:
            versions = ["absent"] if dist is None else read_headers(dist).get("version", ["unknown"])
        except (UnicodeDecodeError, OSError):
            versions = ["unreadable"]
        yield f"{name[0]} {versions[0]}"


def _digest(item: Installed) -> str:
    import hashlib  # costs milliseconds that discovery alone need not pay

    found: dict[str, str] = {}
    for path in (*listed_files(item)[0], *_in_package(item)):
        if not path.endswith(".pyc"):
            found[path] = stamp(path)
    text = "\n".join(f"{path} {stamp}" for path, stamp in sorted(found.items()))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def stamp(path: str) -> str:
    """Size and time of change of a file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return "absent"
    return f"{status.st_size} {status.st_mtime_ns}"


def listed_files(item: Installed) -> tuple[list[str], str]:
    """Every file that the distribution lists, and why its list cannot be read, or an empty text."""
    try:
        return [os.path.normpath(file) for file in _listed(item.entry.dist)], ""
    except Exception as error:  # noqa: BLE001  # a parser of several formats raises several errors
        return [], error_text(error)


def _listed(dist: Any) -> list[str]:
    if dist is None:
        return []
    if isinstance(dist, PlainDistribution):
        return dist.files()
    return [str(file.locate()) for file in dist.files or ()]


def _in_package(item: Installed) -> Iterator[str]:
    """Files below the folder of the plugin's package; the module's own file when it is in no package."""
    module = item.entry.module
    spec = _spec(module.partition(".")[0])
    if spec is not None and spec.origin is None:  # a namespace, in which others have a part
        spec = _spec(module)
    if spec is None or spec.origin is None:
        return
    if not spec.submodule_search_locations:
        yield spec.origin
        return
    for folder, folders, files in os.walk(Path(spec.origin).parent):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        yield from (os.path.join(folder, name) for name in files)


def _spec(module: str) -> ModuleSpec | None:
    try:
        return find_module(module)
    except (ImportError, ValueError):  # ValueError: an imported module without a spec
        return None
