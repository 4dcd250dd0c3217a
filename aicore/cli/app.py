"""The application: the table of subcommands, and what happens to errors.

To add a subcommand, write a module with an `app` and add one line to COMMANDS:

    # aicore/cli/inspect_command.py
    app = typer.Typer(add_completion=False)

    @app.command()
    def inspect(model: Path) -> None:
        '''Show what aicore makes of a model.'''
        from aicore.api import load  # heavy imports go here, not to the top

    # here
    "inspect": Subcommand("aicore.cli.inspect_command", "Show what aicore makes of a model."),

A Typer with one command becomes `aicore inspect`; one with several and a callback becomes a group such as
`aicore plugins list`. The module is imported when its command is invoked, so that `aicore plugins list` stays light and
`--help` needs nothing but this table. Raise AicoreError for what a user can cure: `run` prints it, without a traceback,
and exits with status 2. Installed plugins add commands with an entry point in the group `aicore.commands` whose value
is such a Typer; it too is loaded when invoked.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from aicore.cli._report import printable
from aicore.config import from_environment
from aicore.errors import AicoreError, ConfigError, PluginError

if TYPE_CHECKING:
    from aicore.plugins.discovery import Installed


class Subcommand(NamedTuple):
    """Where a subcommand lives, and its line in `aicore --help`."""

    module: str
    summary: str


COMMANDS: Mapping[str, Subcommand] = {
    "run": Subcommand("aicore.cli.run_command", "Run a model on inputs from files, or on random ones."),
    "inspect": Subcommand("aicore.cli.inspect_command", "Show what aicore makes of a model, and why."),
    "bench": Subcommand("aicore.cli.bench_command", "Time a model on one or several targets."),
    "report": Subcommand("aicore.cli.report_command", "Write what became of a model as one HTML page."),
    "tune": Subcommand("aicore.cli.tune_command", "Choose the kernels of a model by measuring them."),
    "ab": Subcommand("aicore.cli.ab_command", "Judge a rule or pass: the model with it and without it."),
    "bisect": Subcommand("aicore.cli.bisect_command", "Find the change that makes a model's results wrong."),
    "parity": Subcommand("aicore.cli.parity_command", "Prove that targets compute the same, op by op or in a model."),
    "demo": Subcommand("aicore.cli.demo_command", "Identify the types of files with a real client and model."),
    "plugins": Subcommand("aicore.cli.plugins_commands", "Show which backends work, and why not; begin a new one."),
}

_EPILOG = """\
[bold]aicore plugins list --load[/bold]  which backends are installed, and which of them work here

[bold]aicore COMMAND --help[/bold]       what a command does, with its options

AICORE_DEBUG=1 adds a traceback to an error.
"""


class _Subcommands(TyperGroup):
    """A group that lists its commands from a table, and imports the one that is invoked."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, subcommand in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=subcommand.summary)

    def list_commands(self, ctx: Any) -> list[str]:
        for name, item in _plugin_commands().items():
            self.commands.setdefault(
                name, TyperCommand(name, help=f"From the plugin distribution {item.distribution}.")
            )
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name in COMMANDS:
            self.commands[name] = typer.main.get_command(importlib.import_module(COMMANDS[name].module).app)
        elif name in _plugin_commands():
            self.commands[name] = typer.main.get_command(_load(_plugin_commands()[name]))
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Subcommands,
    epilog=_EPILOG,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    # A traceback of aicore is for its developers, who read the plain one.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the application on these arguments, or on those of the process, and return the exit status."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="aicore")
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except AicoreError as error:
        if _debug():
            traceback.print_exc()
        print(f"aicore: error: {printable(str(error))}", file=sys.stderr)
        return 2
    return 0


def _print_version(wanted: bool) -> None:
    if wanted:
        from aicore.plugins.discovery import core_version  # only for this option

        print(f"aicore {core_version()}")
        raise typer.Exit


@app.callback()
def _aicore(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Compile and run AI models on the backends that are installed as plugins."""


def _plugin_commands() -> dict[str, Installed]:
    """Commands of plugins by name. The core's own names are taken."""
    from aicore.plugins import discovery  # most invocations need no scan

    found: dict[str, Installed] = {}
    for item in discovery.installed(discovery.COMMANDS):
        name = item.entry.name
        if name in COMMANDS or name in found:
            print(f"aicore: warning: command {name!r} of {item.label} is ignored: the name is taken", file=sys.stderr)
            continue
        found[name] = item
    return found


def _load(item: Installed) -> typer.Typer:
    what = f"command {item.entry.name!r} of {item.label} ({item.entry.value})"
    try:
        command = item.entry.load()
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise PluginError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(command, typer.Typer):
        raise PluginError(f"{what} is a {type(command).__name__}; it must be a typer.Typer")
    return command


def _debug() -> bool:
    try:
        return from_environment().debug
    except ConfigError:
        return False
