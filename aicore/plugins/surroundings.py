"""Defects of the Python environment that no single plugin is to blame for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from aicore.errors import error_text
from aicore.plugins.discovery import PLUGINS, Ruin, installed, place_of, read_headers, ruins
from aicore.plugins.fingerprint import listed_files
from aicore.plugins.states import Finding

if TYPE_CHECKING:
    from aicore.plugins.distributions import Distribution

_OUR_COMMAND = "aicore.cli:main"
_CUPY = re.compile(r"cupy(-cuda\w+|-rocm[\w-]+)?")


class Problem(NamedTuple):
    """What is wrong with the environment, and the command that fixes it."""

    finding: Finding
    reason: str
    fix: str


def examine_surroundings() -> list[Problem]:
    """Every known defect of what is installed. Imports nothing of it."""
    from importlib_metadata import distributions

    broken = {ruin.place: ruin for ruin in ruins()}
    named: list[tuple[str, Distribution]] = []
    for dist in distributions():
        try:
            name = _name(dist)
            _ = name == "aicore" and tuple(dist.entry_points)  # read below, also of one that another one hides
            named.append((name, dist))
        except Exception as error:  # noqa: BLE001  # as in the scan
            broken.setdefault(place_of(dist), Ruin(place_of(dist), error_text(error)))
    readable = [(name, dist) for name, dist in named if name and place_of(dist) not in broken]
    return [
        *_foreign_aicore(readable),
        *_several_cupys(name for name, _ in readable),
        *(
            Problem("broken metadata", f"{ruin.place} cannot be read: {ruin.problem}", ruin.fix)
            for ruin in broken.values()
        ),
        *_broken_lists(),
    ]


def _broken_lists() -> Iterator[Problem]:
    """A list of files only tells whether a plugin was edited, so the plugin is used without."""
    for item in installed(PLUGINS):
        _, problem = listed_files(item)
        if problem:
            reason = f"the list of files of {item.label} cannot be read: {problem}"
            yield Problem("broken metadata", reason, f"pip install --force-reinstall {item.distribution}")


def uses_cupy(requirements: Iterable[str]) -> bool:
    """Whether one of the requirements is CuPy, in any of its wheels."""
    return any(re.match(r"cupy\b", requirement, re.IGNORECASE) for requirement in requirements)


def _foreign_aicore(named: Iterable[tuple[str, Distribution]]) -> Iterator[Problem]:
    """The package index has an unrelated project of this name, which a plain `pip install` of a plugin fetches."""
    for name, dist in named:
        if name != "aicore" or any(entry.value == _OUR_COMMAND for entry in dist.entry_points):
            continue
        version = read_headers(dist).get("version", ["?"])[0]
        reason = f"a distribution aicore {version} of another project is installed in {dist.locate_file('')}"
        fix = "pip uninstall aicore, then from a checkout of this project: pip install . ./plugins/cpu_numpy"
        yield Problem("foreign aicore", reason, fix)


def _several_cupys(names: Iterable[str]) -> Iterator[Problem]:
    wheels = sorted({name for name in names if _CUPY.fullmatch(name)})
    if len(wheels) > 1:
        reason = f"{' and '.join(wheels)} are installed, which overwrite each other's files"
        yield Problem("two CuPy wheels", reason, f"pip uninstall --yes {' '.join(wheels)} && pip install {wheels[-1]}")


def _name(dist: Distribution) -> str:
    """The distribution's name as package indexes compare it; empty for a ruin."""
    names = read_headers(dist).get("name", [""])
    return re.sub(r"[-_.]+", "-", names[0]).lower()
