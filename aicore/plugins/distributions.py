"""Installed distributions, read in a tenth of the time that importlib-metadata takes, its import included.

Read here is what installers write: a folder of metadata for each distribution, in a folder of `sys.path`. Whatever else
there is, such as archives, finders of other tools and metadata that is damaged, raises OddError, and is left to
importlib-metadata, which knows all of it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from functools import reduce
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing import Protocol

    class EntryPoint(Protocol):
        """The part of an entry point that aicore reads, whoever found it."""

        @property
        def value(self) -> str: ...

    class Distribution(Protocol):
        """The part of an installed distribution that aicore reads, whoever found it."""

        @property
        def entry_points(self) -> Iterable[EntryPoint]: ...

        def read_text(self, filename: str, /) -> str | None: ...

        def locate_file(self, path: str, /) -> object: ...


_REFERENCE = re.compile(r"([\w.]+)\s*(?::\s*([\w.]+)\s*)?(?:\[.*\]\s*)?$")
_INFOS = (".dist-info", ".egg-info")
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


class OddError(Exception):
    """Something that this module does not read."""


class Entry(NamedTuple):
    """An entry point: the name, the object that it refers to, such as `package.module:attribute`, and its group."""

    name: str
    value: str
    group: str
    dist: Distribution | None = None

    @property
    def module(self) -> str:
        """Raises OddError for a text that refers to no object."""
        return self._parts()[0]

    @property
    def attr(self) -> str:
        """Empty where the module itself is meant."""
        return self._parts()[1]

    def load(self) -> Any:
        """The object, imported."""
        module, attr = self._parts()
        return reduce(getattr, filter(None, attr.split(".")), import_module(module))

    def _parts(self) -> tuple[str, str]:
        found = _REFERENCE.match(self.value)
        if found is None:
            raise OddError(f"{self.value!r} refers to no object")
        return found[1], found[2] or ""


class PlainDistribution:
    """One distribution, by the folder of its metadata."""

    def __init__(self, place: str) -> None:
        self.place = place

    @property
    def entry_points(self) -> list[Entry]:
        """Raises OddError for a file that does not hold entry points."""
        try:
            lines = (self.read_text("entry_points.txt") or "").splitlines()
        except ValueError as error:
            raise OddError(str(error)) from error
        group = ""
        found = []
        for line in map(str.strip, lines):
            if not line or line.startswith("#"):
                continue
            if line.startswith("[") and line.endswith("]"):
                group = line.strip("[]")
                continue
            name, equals, value = line.partition("=")
            if not equals:
                raise OddError(f"{line!r} is no entry point")
            if group:
                found.append(Entry(name.strip(), value.strip(), group, self))
        return found

    def read_text(self, filename: str, /) -> str | None:
        """A file of the metadata, or None. Raises UnicodeDecodeError for what is no text, OSError as `open` does."""
        try:
            with open(f"{self.place}{os.sep}{filename}", "rb", buffering=0) as file:
                return file.read().decode().replace("\r\n", "\n")
        except _ABSENT:
            return None

    def locate_file(self, path: str, /) -> str:
        """A file that belongs to the distribution."""
        return os.path.join(os.path.dirname(self.place), path)

    def files(self) -> list[str]:
        """Every file that it lists. Raises what importlib-metadata raises for a list that it cannot read."""
        text = self.read_text("RECORD")
        if text is None or '"' in text:
            from importlib_metadata import Distribution  # for lists of other kinds

            return [str(file.locate()) for file in Distribution.at(self.place).files or ()]
        return [self.locate_file(line.partition(",")[0]) for line in text.splitlines() if line]


def plain_distributions(path: Iterable[str]) -> dict[str, PlainDistribution]:
    """Those in the folders of a path, by normalised name; of two of one name the first, as Python imports it."""
    others = [f for f in sys.meta_path if hasattr(f, "find_distributions") and f is not PathFinder]
    if any(type(finder).__module__ != "importlib_metadata" for finder in others):
        raise OddError("another tool finds distributions")
    found: dict[str, PlainDistribution] = {}
    for folder in path:
        for name in _listed(folder or "."):
            if name.lower().endswith(_INFOS):
                key = normalized(name.rpartition(".")[0].partition("-")[0])
                found.setdefault(key, PlainDistribution(f"{folder}{os.sep}{name}" if folder else name))
    return found


def search_path() -> list[str]:
    """The folders in which distributions are looked for."""
    return sys.path


def normalized(name: str) -> str:
    """A distribution's name as it is compared."""
    return re.sub(r"[-_.]+", "_", name).lower()


def _listed(folder: str) -> list[str]:
    if not isinstance(folder, str):
        raise OddError(f"{folder!r} is no text")
    if folder.lower().endswith(".egg"):
        raise OddError(f"{folder} is an egg")
    try:
        return os.listdir(folder)
    except NotADirectoryError:
        raise OddError(f"{folder} is no folder") from None
    except (OSError, ValueError):  # ValueError: a name that no folder can have
        return []
