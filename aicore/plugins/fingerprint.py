"""What a verdict on an installed plugin is valid for: its version, its files, and what it stands on."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from aicore.plugins.discovery import Installed, core_version, find_module, read_headers

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
        "python": f"{sys.implementation.name} {platform.python_version()} {platform.machine()} {sys.prefix}",
        "requirements": ", ".join(sorted(set(_requirements(item)))),
        "files": _digest(item),
    }


def _requirements(item: Installed) -> Iterator[str]:
    from importlib_metadata import PackageNotFoundError, distribution

    for text in item.requires:
        name = _NAME.match(text)
        if name is None or name[0].lower() == "aicore" or "extra" in text.partition(";")[2]:
            continue
        try:
            versions = read_headers(distribution(name[0])).get("version", ["unknown"])
        except PackageNotFoundError:
            versions = ["absent"]
        yield f"{name[0]} {versions[0]}"


def _digest(item: Installed) -> str:
    found: dict[str, str] = {}
    for path in (*_listed(item), *_in_package(item)):
        if not path.endswith(".pyc"):
            found[path] = _stamp(path)
    text = "\n".join(f"{path} {stamp}" for path, stamp in sorted(found.items()))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "absent"
    return f"{status.st_size} {status.st_mtime_ns}"


def _listed(item: Installed) -> Iterator[str]:
    for file in (item.entry.dist and item.entry.dist.files) or ():
        yield os.path.normpath(str(file.locate()))


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
