"""`aicore bisect`: which change of which rule makes the results of a model wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from aicore.cli._inputs import InputFiles, Json, ModelFile, Seed, Shapes, Target, make_feed
from aicore.cli._passes import PassChoices
from aicore.cli._report import print_json, show, working
from aicore.errors import InputError

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
_EPILOG = """\
`aicore bisect model.onnx --target cuda`  the first change after which results differ from the reference

`aicore bisect model.onnx --target cuda --reference cpu --repro wrong`  compared with another device, and a repro

`aicore bisect model.onnx --choices -fuse-ConvAct`  look for another one, with the first one left out

Exits with 1 when something is wrong.
"""


@app.command(epilog=_EPILOG)
def bisect(
    model: ModelFile,
    reference: Annotated[
        str,
        typer.Option(
            "--reference", metavar="TARGET", help="What is right: a target without passes, or the reference in float64."
        ),
    ] = "reference",
    repro: Annotated[
        Path | None, typer.Option("--repro", metavar="FOLDER", help="Write the change alone, to be replayed.")
    ] = None,
    choices: PassChoices = None,
    inputs: InputFiles = None,
    seed: Seed = 0,
    shapes: Shapes = None,
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Find the change that makes a model's results wrong: its pass, rule, number and node.

    Each run compiles the model with fewer changes, runs it on the target and compares outputs; N changes take at most
    log2 N + 2 runs; for one that is wrong only together with others, some more find these. A kernel that is wrong
    without any change is told apart.
    """
    from aicore.api import load  # heavy, and `--help` needs none of it
    from aicore.experiments import bisect as search

    with working(f"loading {model}", quiet=as_json):
        graph = load(model)
        feed = make_feed(graph, inputs, shapes, True, seed)
    with _runs(as_json) as advance:
        try:
            found = search(
                graph, feed.arrays, target=target, reference=reference, choices=choices, folder=repro, advance=advance
            )
        except OSError as error:
            raise InputError(f"--repro {repro}: cannot be written: {error}") from error
    if as_json:
        print_json({"model": str(model), "chosen": list(feed.chosen), **found.to_json()})
    else:
        show(found.__rich__())
        if feed.chosen:
            show(f"chosen: {', '.join(feed.chosen)}")
    if found.ending != "right":
        raise typer.Exit(1)


@contextmanager
def _runs(quiet: bool) -> Iterator[Callable[[int, int, bool], None]]:
    """A line on stderr for each run; on no terminal, and when quiet, nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda runs, limit, right: None
        return

    def tell(runs: int, limit: int, right: bool) -> None:
        what = "no limit of changes" if limit < 0 else f"the first {limit} changes"
        console.print(f"run {runs}: {what}: {'right' if right else 'wrong'}", markup=False, highlight=False)

    with console.status("comparing with the reference"):
        yield tell
