"""`aicore plugins`: what is installed, in which state, and why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from aicore.cli._report import Json, print_json
from aicore.cli.doctor_command import doctor
from aicore.cli.new_command import new

if TYPE_CHECKING:
    from aicore.plugins.states import PluginRecord

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")
app.command()(doctor)
app.command()(new)

_COLOURS = {"active": "green", "failed": "bold red", "incompatible": "red", "unavailable": "yellow", "disabled": "dim"}


@app.callback()
def plugins() -> None:
    """Show which backends are installed, and why one is not used; begin a new one."""


@app.command("list")
def list_plugins(
    as_json: Json = False,
    load: Annotated[bool, typer.Option("--load", help="Import and probe each plugin, and show how it ended.")] = False,
) -> None:
    """List the installed plugins with their state, and the reason and fix where one is not used.

    Without --load nothing of a plugin runs, so `compatible` is the best state that it can show: the versions fit.
    With --load the states are final: `active`, `unavailable` (its device is not here) or `failed`.

    AICORE_PLUGINS=a,b uses only these plugins; AICORE_DISABLE_PLUGINS=a,b uses all but these.
    """
    from aicore.plugins.registry import plugin_registry  # `--help` needs none of it

    registry = plugin_registry()
    if load:
        logging.getLogger("aicore.plugins").setLevel(logging.CRITICAL)  # the table says it all
    records = registry.activate().records if load else registry.records
    if as_json:
        _print_json(records)
    elif records:
        _print_table(records)
    else:
        _print_none()


def _print_json(records: tuple[PluginRecord, ...]) -> None:
    from aicore.plugins.discovery import core_version  # see list_plugins
    from aicore.plugins.info import API_VERSION

    plugins = [record.to_json() for record in records]
    print_json({"aicore": core_version(), "api_version": API_VERSION, "plugins": plugins})


def _print_table(records: tuple[PluginRecord, ...]) -> None:
    from rich.console import Console  # --json needs no colours
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("plugin", "version", "kind", "devices", "state"):
        table.add_column(heading, no_wrap=True)
    table.add_column("about, reason, fix", overflow="fold")
    for record in records:
        colour = _COLOURS.get(record.state, "default")
        finding = f": {record.finding}" if record.finding not in {"", "disabled"} else ""
        state = f"[{colour}]{record.state}{finding}[/]"
        table.add_row(
            escape(record.name), escape(record.version), record.kind, escape(", ".join(record.devices)), state,
            escape(_remarks(record)),
        )  # fmt: skip
    Console().print(table)


def _remarks(record: PluginRecord) -> str:
    summary = record.info.summary if record.info and not record.reason else ""
    fix = f"fix: {record.fix}" if record.fix else ""
    return "\n".join(filter(None, (summary, record.reason, fix)))


def _print_none() -> None:
    from aicore.plugins.registry import INSTALL_HINT  # see list_plugins

    print(f"No plugin is installed, so no device can be used: {INSTALL_HINT}.")
