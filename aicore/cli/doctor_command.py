"""`aicore plugins doctor`: why a plugin is not used, and the command that fixes it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicore.cli._report import Json, print_json, show, time_text

if TYPE_CHECKING:
    from rich.table import Table

    from aicore.plugins.doctor import Diagnosis, Examination

_COLOURS = {"ok": "green", "failed": "bold red", "unavailable": "yellow", "disabled": "dim"}
_EXIT = {"ok": 0, "failed": 1, "unavailable": 2}


def doctor(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Plugin to try; all when absent.")] = None,
    as_json: Json = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.1, help="Seconds for each plugin [AICORE_PLUGIN_TIMEOUT, or 30].")
    ] = None,
) -> None:
    """Try each plugin in a process of its own, and name what is wrong and the command that fixes it.

    It works however broken the plugins are: none is imported here. What it finds replaces the verdicts that other
    commands remember, so a plugin that was repaired is used again.

    Exit status: 0 all can be used, 1 one failed or the environment is broken, 2 a device is not here.
    """
    from aicore.config import from_environment  # `--help` needs none of it
    from aicore.plugins.doctor import examine

    config = from_environment()
    config = replace(config, plugin_timeout=timeout or config.plugin_timeout or 30.0)
    with _progress(quiet=as_json) as done:
        examination = examine(config, name, done)
    if as_json:
        print_json(_to_json(examination))
    else:
        _show(examination, with_details=name is not None)
    raise typer.Exit(_EXIT[examination.status])


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr that counts the plugins that were tried; nothing on no terminal, and when quiet."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda plugin: None
        return
    tried: list[str] = []
    with console.status("trying plugins") as status:

        def done(plugin: str) -> None:
            tried.append(plugin)
            status.update(f"trying plugins: {', '.join(tried)} done")

        yield done


def _show(examination: Examination, with_details: bool) -> None:
    if examination.plugins:
        show(_table(examination.plugins))
    else:
        from aicore.plugins.registry import INSTALL_HINT  # costs the imports of a registry

        show(f"No plugin is installed, so no device can be used: {INSTALL_HINT}.")
    for problem in examination.problems:
        show("", f"environment: {problem.finding}: {problem.reason}", f"fix: {problem.fix}")
    for diagnosis in examination.plugins:
        if with_details and diagnosis.details:
            show("", diagnosis.details.rstrip())


def _table(diagnoses: Iterable[Diagnosis]) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    for heading in ("plugin", "version", "status", "class"):
        made.add_column(heading, no_wrap=True)
    made.add_column("time", justify="right", no_wrap=True)
    made.add_column("found, reason, fix", overflow="fold")
    for diagnosis in diagnoses:
        colour = _COLOURS[diagnosis.status]
        label = [diagnosis.record.name, diagnosis.record.version]
        time = time_text(diagnosis.seconds) if diagnosis.seconds else ""
        state = [Text(diagnosis.status, style=colour), Text(diagnosis.finding or "ok", style=colour)]
        made.add_row(*map(Text, label), *state, Text(time), Text(_remarks(diagnosis)))
    return made


def _remarks(diagnosis: Diagnosis) -> str:
    found = f"found {', '.join(diagnosis.devices)}" if diagnosis.devices else ""
    fix = f"fix: {diagnosis.fix}" if diagnosis.fix else ""
    return "\n".join(filter(None, (found, diagnosis.reason, fix, *diagnosis.notes)))


def _to_json(examination: Examination) -> dict[str, Any]:
    from aicore.plugins.discovery import core_version  # see doctor

    return {
        "aicore": core_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "status": examination.status,
        "plugins": [diagnosis.to_json() for diagnosis in examination.plugins],
        "environment": [{"class": p.finding, "reason": p.reason, "fix": p.fix} for p in examination.problems],
    }
