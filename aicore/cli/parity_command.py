"""`aicore parity`: whether targets compute the same, op by op or in a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicore.cli._inputs import InputFiles, Json, Seed, Shapes, make_feed
from aicore.cli._report import print_json, show, table, working
from aicore.errors import ConfigError, ModelError, PluginError

if TYPE_CHECKING:
    from aicore.plugins import PluginRegistry
    from aicore.testing.faults import Fault
    from aicore.testing.parity import Column, Matrix, Row
    from aicore.testing.targets import Target

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
_SHOWN_ROWS = 12
_EPILOG = """\
`aicore parity --targets cpu:reference,cpu:fast,cuda --html parity.html`  every op, on references, fast kernels and CUDA

`aicore parity --ops 'Conv*,Gemm' --dtypes float16 --targets cuda --json`  for scripts

`aicore parity model.onnx --targets cpu,cuda --shape batch=8`  a model, and its first divergent node

`aicore parity --training 50 --targets cpu,cuda`  fifty training steps of an MLP, a CNN, an LSTM, a GRU, a transformer

`aicore parity --targets cuda --save there.npz`, then elsewhere `aicore parity --targets cpu --against there.npz`

A target is a device, or some of its kernels: `cpu:reference`, `cpu:im2col`; `cpu:fast` is each one but the reference.
"""


@app.command(epilog=_EPILOG)
def parity(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="ONNX model file; without it, ops are compared.")
    ] = None,
    ops: Annotated[
        str, typer.Option("--ops", metavar="PATTERN", help="Ops by name, such as 'Reduce*,Conv'. Default: all.")
    ] = "*",
    targets: Annotated[
        str | None, typer.Option("--targets", "-t", metavar="A,B,...", help="Columns. Default: every usable device.")
    ] = None,
    dtypes: Annotated[
        str | None, typer.Option("--dtypes", metavar="A,B,...", help="Element types. Default: all that each op takes.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the matrix as one page.")] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE.npz", help="Write verdicts and results, for --against.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="FILE.npz", help="Add the columns that --save wrote elsewhere.")
    ] = None,
    repro: Annotated[
        Path | None, typer.Option("--repro", metavar="FOLDER", help="Write what is wrong in a model, to be replayed.")
    ] = None,
    training: Annotated[
        int | None,
        typer.Option("--training", metavar="STEPS", min=1, help="Training steps of sample networks."),
    ] = None,
    inputs: InputFiles = None,
    seed: Seed = 0,
    shapes: Shapes = None,
    as_json: Json = False,
) -> None:
    """Compare targets with the reference and with each other: every op on its samples, or a model node by node.

    Or so many training steps of small networks in a row: losses, parameters and what the optimiser keeps.

    The reference is that of the plugin which drives `cpu`, in float64. A result is right within what the numerics of
    its op allow. A target that cannot be used is a column that says why. Exits with 1 when something is wrong, with 2
    when nothing could be compared.
    """
    from aicore.plugins import plugin_registry  # heavy, and `--help` needs none of it
    from aicore.testing.parity import find_targets, to_json

    registry = plugin_registry()
    names = list(registry.devices()) if targets is None else _names(targets)
    _check_targets(names, registry)
    columns, usable = find_targets(names, registry)
    faults: dict[str, Fault] = {}
    if training is not None:
        _refuse_other_options(model, ops, dtypes)
        _refuse_model_options(repro, inputs, shapes)
        matrix = _compare_training(registry, columns, usable, training, seed, as_json)
    elif model is None:
        _refuse_model_options(repro, inputs, shapes)
        matrix = _compare_ops(registry, columns, usable, ops, _names(dtypes), seed, as_json)
    else:
        matrix, faults = _compare_model(registry, columns, usable, model, inputs, shapes, seed, as_json)
    matrix = _with_files(matrix, save, against)
    files = [*_write_page(matrix, html), *([save] if save else []), *_write_repros(faults, repro)]
    if as_json:
        print_json(to_json(matrix))
    else:
        _show(matrix)
        show(*(f"wrote {path}" for path in files))
    if not matrix.is_right:
        raise typer.Exit(1)
    _check_compared(matrix)


def _check_targets(names: Sequence[str], registry: PluginRegistry) -> None:
    """At least one is a device of an installed plugin, usable here or not: the others are columns that say why not."""
    from aicore.testing.targets import is_known

    if any(is_known(name, registry) for name in names):
        return
    kinds = [*registry.devices(), *(kind for record in registry.activate().records for kind in record.devices)]
    known = ", ".join(dict.fromkeys(kinds)) or "none"
    asked = f"no installed plugin has a target {' or '.join(map(repr, names))}" if names else "--targets names none"
    raise ConfigError(f"{asked}; there are: {known}")


def _check_compared(matrix: Matrix) -> None:
    """Something ran here, and, where a file was added, something in it fits."""
    idle = [column for column in matrix.columns if not column.reason and not matrix.compared(column.name)]
    if sources := {column.source for column in idle if column.source}:
        raise ModelError(f"{', '.join(sources)} has no result for any of these {len(matrix.entries)} cases")
    if not any(matrix.compared(column.name) for column in matrix.columns if not column.source):
        reasons = "; ".join(f"{column.name}: {column.reason}" for column in matrix.columns if column.reason)
        raise PluginError(f"nothing was compared, as no target could be used: {reasons}")


def _compare_ops(
    registry: PluginRegistry,
    columns: Sequence[Column],
    usable: Sequence[Target],
    pattern: str,
    dtypes: Sequence[str],
    seed: int,
    quiet: bool,
) -> Matrix:
    from aicore.ops import CORE
    from aicore.testing.cases import check_choice, conformance_cases
    from aicore.testing.parity import compare_cases
    from aicore.testing.reference import Reference

    known = {**CORE, **registry.ops}
    check_choice(known, pattern, dtypes)
    cases = list(conformance_cases(known, pattern, dtypes or None, seed=seed))
    if not cases:
        narrower = f" --dtypes {','.join(dtypes)}" if dtypes else ""
        raise ConfigError(f"no case is left by --ops {pattern!r}{narrower}")
    title = " beside ".join(column.name for column in columns)
    with _progress(quiet) as progress:
        return compare_cases(cases, columns, usable, Reference(registry), title, progress)


def _compare_model(
    registry: PluginRegistry,
    columns: Sequence[Column],
    usable: Sequence[Target],
    model: Path,
    inputs: list[str] | None,
    shapes: list[str] | None,
    seed: int,
    quiet: bool,
) -> tuple[Matrix, dict[str, Fault]]:
    from aicore.api import load
    from aicore.testing.models import compare_model
    from aicore.testing.reference import Reference

    with working(f"loading {model}", quiet):
        graph = load(model, registry=registry)
        feed = make_feed(graph, inputs, shapes, True, seed)
    title = f"{model.name}: {' beside '.join(column.name for column in columns)}"
    with _progress(quiet) as progress:
        return compare_model(graph, feed.arrays, columns, usable, Reference(registry), title, progress)


def _compare_training(
    registry: PluginRegistry, columns: Sequence[Column], usable: Sequence[Target], steps: int, seed: int, quiet: bool
) -> Matrix:
    from aicore.nn.trajectories import sample_trajectories
    from aicore.testing.reference import Reference
    from aicore.testing.trajectories import compare_trajectories

    title = f"{steps} training steps: {' beside '.join(column.name for column in columns)}"
    with _progress(quiet) as progress:
        networks = sample_trajectories(steps, seed)
        return compare_trajectories(networks, columns, usable, Reference(registry), title, progress)


def _refuse_other_options(model: Path | None, ops: str, dtypes: str | None) -> None:
    for name, given in (("a model", model), ("--ops", ops != "*"), ("--dtypes", dtypes)):
        if given:
            raise ConfigError(f"--training has networks of its own, and takes no {name.removeprefix('a ')}")


def _refuse_model_options(repro: object, inputs: object, shapes: object) -> None:
    for name, given in (("--repro", repro), ("--input", inputs), ("--shape", shapes)):
        if given:
            raise ConfigError(f"{name} is for a model, and none is given")


def _with_files(matrix: Matrix, save: Path | None, against: Path | None) -> Matrix:
    from aicore.testing.saved import load_matrix, merge, save_matrix

    if save is not None:
        _writable(save, lambda: save_matrix(matrix, save))
    return matrix if against is None else merge(matrix, load_matrix(against), against.stem)


def _write_page(matrix: Matrix, file: Path | None) -> list[Path]:
    if file is None:
        return []
    from aicore import __version__
    from aicore.report.parity_page import parity_page
    from aicore.testing.parity import to_json

    page = parity_page(to_json(matrix), __version__)
    _writable(file, lambda: file.write_text(page, encoding="utf-8"))
    return [file]


def _write_repros(faults: dict[str, Fault], folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    from aicore.testing.repro import file_name, write_repro

    return [write_repro(folder / file_name(target), fault.repro) / "replay.py" for target, fault in faults.items()]


def _writable(file: Path, write: Callable[[], Any]) -> None:
    try:
        write()
    except OSError as error:
        raise ModelError(f"{file} cannot be written: {error}") from error


def _show(matrix: Matrix) -> None:
    show(table(["target", "score", "device, or why it is not used"], [_score(matrix, c) for c in matrix.columns]), "")
    wrong = [row for row in matrix.rows() if any(not cell.verdict.outcome.is_right for cell in _cells(matrix, row))]
    shown = wrong or sorted(matrix.rows(), key=lambda row: -_largest_error(matrix, row))
    what = f"{len(wrong)} rows are wrong" if wrong else "nothing is wrong; the largest relative errors:"
    if not any(matrix.compared(column.name) for column in matrix.columns):
        shown, what = [], "nothing was compared"
    show(f"{len(matrix.rows())} rows, {len(matrix.entries)} cases: {what}")
    names = [column.name for column in matrix.columns if not column.reason]
    lines = [(row.name, row.dtype, row.kind, *(_cell(row, name) for name in names)) for row in shown[:_SHOWN_ROWS]]
    show(table(["name", "dtype", "kind", *names], lines))
    if len(shown) > _SHOWN_ROWS:
        show(f"... and {len(shown) - _SHOWN_ROWS} more rows; --html or --json shows all")
    show(*matrix.remarks)


def _score(matrix: Matrix, column: Column) -> tuple[str, str, str]:
    if column.reason:
        return column.name, "not used", column.reason
    return column.name, str(matrix.score(column.name)), column.fingerprint


def _cells(matrix: Matrix, row: Row) -> Iterator[Any]:
    return filter(None, (row.cell(column.name) for column in matrix.columns))


def _largest_error(matrix: Matrix, row: Row) -> float:
    differences = [cell.verdict.difference for cell in _cells(matrix, row)]
    return max((d.max_relative for d in differences if d is not None), default=0.0)


def _cell(row: Row, column: str) -> str:
    from aicore.testing.trajectories import STEPS

    cell = row.cell(column)
    if cell is None:
        return ""
    verdict = cell.verdict
    if not verdict.outcome.is_right:
        return f"{verdict.outcome}: {cell.worst}: {verdict.reason}"
    if verdict.difference is None:
        return str(verdict.outcome)
    if row.kind == STEPS:  # numbers that should be 0 have no relative error that says anything
        return f"{verdict.outcome}, at {verdict.difference.share:.0%} of what is allowed"
    return f"{verdict.outcome} {verdict.difference.max_relative:.1e}, {verdict.difference.max_ulps:.2g} ulp"


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr while cases run; on no terminal, and when quiet, nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    texts = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*texts, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("")

        def advance(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield advance


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]
