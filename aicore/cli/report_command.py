"""`aicore report`: what became of a model, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicore.cli._inputs import Fallback, InputFiles, ModelFile, Seed, Shapes, Target, make_feed
from aicore.cli._report import show, size_text, working
from aicore.errors import ConfigError

if TYPE_CHECKING:
    from aicore.cli._inputs import Feed
    from aicore.ir import Graph

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
_EPILOG = """\
`aicore report model.onnx -o report.html --shape x=1x3x224x224`  graph, passes, kernels, memory, profile

`aicore report model.onnx -o report.html --target cuda --parity cpu`  and CUDA beside the CPU, node by node
"""


@app.command(epilog=_EPILOG)
def report(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="The page to write.")],
    target: Target = None,
    parity: Annotated[
        list[str] | None,
        typer.Option("--parity", metavar="TARGET", help="Compare the target with this one, too; may be repeated."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", metavar="N", min=1, help="Profiled runs.")] = 10,
    inputs: InputFiles = None,
    seed: Seed = 0,
    shapes: Shapes = None,
    fallback: Fallback = None,
) -> None:
    """Write what became of a model as one HTML page that needs no network.

    It has the graph, the passes with what they changed, kernels with all candidates, memory, and a profile. Inputs that
    come from no file are random.
    """
    from aicore import __version__
    from aicore.api import compile, load  # noqa: A004  # aicore.compile; heavy, and `--help` needs none of it
    from aicore.config import parse_fallback
    from aicore.report.page import report_page

    policy = None if fallback is None else parse_fallback(fallback, "--fallback")
    if not output.parent.is_dir():  # said before the model runs
        raise ConfigError(f"--output {output}: there is no folder {output.parent}")
    with working(f"loading {model}"):
        graph = load(model)
        feed = make_feed(graph, inputs, shapes, True, seed)
    with working(f"running {model}"):
        program = compile(graph, target, fallback=policy, trace=True)
        profile = program.profile(feed.arrays, runs)
    matrix = None
    if parity:
        with working("comparing targets"):
            matrix = _compared(graph, feed, [program.device.name, *parity], model.name)
    page = report_page(model.name, graph, program, profile, matrix, __version__, _remarks(feed))
    data = page.encode("utf-8", "replace")  # a file's name may hold bytes that are no text
    try:
        output.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"--output {output}: {error.strerror}") from error
    show(f"wrote {output}, {size_text(len(data))}")


def _remarks(feed: Feed) -> list[str]:
    """Which inputs the figures are for."""
    from aicore.runtime import type_of

    said = [f"%{name}: {type_of(array)}, {feed.sources[name]}" for name, array in feed.arrays.items()]
    return [f"inputs: {'; '.join(said)}", *([f"chosen: {', '.join(feed.chosen)}"] if feed.chosen else [])]


def _compared(graph: Graph, feed: Feed, names: list[str], title: str) -> dict[str, Any]:
    """Raises ConfigError for a target that nothing knows."""
    from aicore.plugins import plugin_registry
    from aicore.testing.models import compare_model
    from aicore.testing.parity import find_targets, to_json
    from aicore.testing.reference import Reference
    from aicore.testing.targets import is_known

    registry = plugin_registry()
    unknown = [name for name in names if not is_known(name, registry)]
    if unknown:
        raise ConfigError(f"--parity {unknown[0]}: no installed plugin has this target")
    columns, usable = find_targets(list(dict.fromkeys(names)), registry)
    matrix, _ = compare_model(graph, feed.arrays, columns, usable, Reference(registry), title, lambda *_: None)
    return to_json(matrix)
