"""What `aicore inspect` shows of a program's passes: versions of the graph, what changed, why a rule did not match."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicore.cli._report import print_json, show
from aicore.errors import ConfigError, InputError

if TYPE_CHECKING:
    from aicore.passes import PassTrace

ALL = "all"
_CHOICES_HELP = "Rules and passes to leave out, options, a limit: -fuse-ConvAct,fuse-pointwise.largest=8,limit=250."

PassChoices = Annotated[str | None, typer.Option("--choices", metavar="CHOICES", help=_CHOICES_HELP)]
Diff = Annotated[
    str | None, typer.Option("--diff", metavar="PASS|all", help="What a pass changed in the graph, line by line.")
]
Dump = Annotated[
    Path | None,
    typer.Option(
        "--dump", metavar="FOLDER", help="Write the graph after each pass that changed it, as numbered files."
    ),
]
NodeName = Annotated[
    str | None,
    typer.Option("--node", metavar="NAME", help="With --why-not: the node to ask about, by any of its names."),
]


def show_diff(trace: PassTrace, name: str, as_json: bool) -> None:
    """Raises ConfigError, listing the passes, when none of this name ran."""
    steps = list(trace.steps) if name == ALL else trace.named(name)
    changed = [step for step in steps if step.changed]
    if as_json:
        print_json({"diffs": [{**step.diff.to_json(), "stage": step.stage} for step in changed]})
        return
    if not changed:
        show(f"{name} changed nothing")
    for i, step in enumerate(changed):
        show(*([""] if i else []), step.diff.__rich__())


def write_dump(trace: PassTrace, folder: Path, as_json: bool) -> None:
    """Raises InputError when the folder or a file cannot be written."""
    files = trace.files()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--dump {folder}: cannot be written: {error}") from error
    if as_json:
        print_json({"files": [str(folder / name) for name in files]})
        return
    idle = [step.name for step in trace.steps if not step.changed]
    show(*(f"wrote {folder / name}" for name in files))
    if idle:
        show(f"these changed nothing: {', '.join(dict.fromkeys(idle))}")


def show_why_not(trace: PassTrace, rule: str, node: str, as_json: bool) -> None:
    """Raises ConfigError when there is no such rule or node."""
    from aicore.passes import why_not

    found = why_not(trace, rule, node)
    if as_json:
        print_json(found.to_json())
    else:
        show(found.__rich__())


def check_node(node: str | None, why_not: str | None) -> None:
    """A node alone asks nothing."""
    if node is not None and why_not is None:
        raise ConfigError(f"--node {node!r} needs --why-not RULE, which is asked about it")
