"""`aicore ab`: a model with a rule or pass and without it; numbers, time, nodes, memory, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from aicore.cli._inputs import InputFiles, Json, ModelFile, Seed, Shapes, Target, Threads, make_feed
from aicore.cli._report import INTERRUPTED, print_json, show, working
from aicore.errors import ConfigError

if TYPE_CHECKING:
    from aicore.tuning import Comparison

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
_EPILOG = """\
`aicore ab model.onnx --rule fuse-ConvAct --shape batch=8`  does the fusion pay here?

`aicore ab model.onnx --pass place-channels-last --keep`  and follow the verdict from now on, on this device

`aicore ab model.onnx --rule fuse-ConvAct --against none`  against no passes but those that are required

Exits with 1 when the verdict is to reject. Ctrl-C shows what the pairs said until then.
"""


@app.command(epilog=_EPILOG)
def ab(
    model: ModelFile,
    rule: Annotated[str | None, typer.Option("--rule", metavar="NAME", help="The rule to judge.")] = None,
    pass_: Annotated[str | None, typer.Option("--pass", metavar="NAME", help="The pass to judge.")] = None,
    against: Annotated[
        str,
        typer.Option(
            "--against",
            metavar="PIPELINE",
            help="What to compare with: none, default, or choices such as -fuse-Gelu. Default: the same without it.",
        ),
    ] = "",
    seconds: Annotated[float, typer.Option("--seconds", metavar="N", min=0, help="Time to measure for.")] = 10.0,
    keep: Annotated[bool, typer.Option("--keep", help="Store the verdict: later compilations follow it.")] = False,
    threads: Threads = None,
    inputs: InputFiles = None,
    seed: Seed = 0,
    shapes: Shapes = None,
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Compile a model with a rule or pass and without it, and say whether it should stay.

    Results come first: what changes them beyond what the numerics allow is rejected, however fast. Then runs of both
    take turns in random order until one is faster with 95 % confidence, both are equal within 2 %, or the time is up.
    """
    from aicore.api import load  # heavy, and `--help` needs none of it
    from aicore.experiments import ab as compare

    if (rule is None) == (pass_ is None):
        raise ConfigError("what is to be judged? give one of --rule NAME and --pass NAME")
    with working(f"loading {model}", quiet=as_json):
        graph = load(model)
        feed = make_feed(graph, inputs, shapes, True, seed)
    with _timing(as_json) as advance:
        found = compare(
            graph, rule or pass_ or "", feed.arrays, target=target, against=against, seconds=seconds, keep=keep,
            threads=threads, advance=advance,
        )  # fmt: skip
    if as_json:
        print_json({"model": str(model), "chosen": list(feed.chosen), **found.to_json()})
    else:
        show(found.__rich__())
        if feed.chosen:
            show(f"chosen: {', '.join(feed.chosen)}")
    if not found.finished:
        raise typer.Exit(INTERRUPTED)
    if found.verdict == "reject":
        raise typer.Exit(1)


@contextmanager
def _timing(quiet: bool) -> Iterator[Callable[[Comparison], None]]:
    """A line on stderr that tells what the pairs say so far; on no terminal, and when quiet, nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda state: None
        return
    with console.status("compiling, comparing numbers") as status:
        yield lambda state: status.update(f"timing: {state}")
