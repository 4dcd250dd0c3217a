"""Defects of the Python environment that no single plugin is to blame for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from aicore.plugins.discovery import read_headers
from aicore.plugins.states import Finding

if TYPE_CHECKING:
    from aicore.plugins.discovery import Distribution

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

    installed = [(name, dist) for dist in distributions() if (name := _name(dist))]
    return [*_foreign_aicore(installed), *_several_cupys(name for name, _ in installed)]


def uses_cupy(requirements: Iterable[str]) -> bool:
    """Whether one of the requirements is CuPy, in any of its wheels."""
    return any(re.match(r"cupy\b", requirement, re.IGNORECASE) for requirement in requirements)


def _foreign_aicore(installed: Iterable[tuple[str, Distribution]]) -> Iterator[Problem]:
    """The package index has an unrelated project of this name, which a plain `pip install` of a plugin fetches."""
    for name, dist in installed:
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
