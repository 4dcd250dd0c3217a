"""`aicore quantize`: a float model to int8, and what that costs, layer by layer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from aicore_int8_quant.quantized import QuantizedModel

_EPILOG = """\
`aicore quantize model.onnx --data calibration/ -o model.int8.onnx`  .npz or .npy files, one batch each

`aicore quantize model.onnx --data c.npz -o m.onnx --exclude auto:2`  the two most sensitive layers stay in float

`aicore quantize model.onnx --data c.npz -o m.onnx --target-drop 0.5 --metric top1`  as few as the metric needs

`aicore quantize analyze model.onnx --data c.npz --html report.html`  which layer costs what
"""


class _Group(TyperGroup):
    """A group whose first command also answers to no name: `aicore quantize MODEL` is `aicore quantize model MODEL`."""

    default = "model"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Group, add_completion=False, rich_markup_mode="markdown", no_args_is_help=True, epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


class Method(StrEnum):
    """How ranges of activations are found."""

    minmax = "minmax"
    moving_average = "moving-average"
    percentile = "percentile"
    entropy = "entropy"
    mse = "mse"


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A float32 ONNX model.", show_default=False)]
Data = Annotated[
    Path, typer.Option("--data", metavar="FILE|DIR", help="Inputs: a .npz or .npy file, or a folder of them.")
]
MethodOption = Annotated[Method, typer.Option("--method", help="How ranges of activations are found.")]
PerChannel = Annotated[
    bool, typer.Option("--per-channel/--per-tensor", help="A weight scale for each output channel, or one.")
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="NAME", help="Node that stays in float (`*` matches); auto:N finds N of them."),
]
SplitBelow = Annotated[
    float,
    typer.Option("--split-below", metavar="DB", help="Two codes a number for inputs of fewer decibels; 0 for none."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.callback()
def _quantize() -> None:
    """Quantise a model to int8 (aicore quantize MODEL --data FILE -o OUT), or analyze what that costs."""


@app.command("model", epilog=_EPILOG)
def quantize_model(
    model: Model,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.onnx", help="Where to write the model.")],
    method: MethodOption = Method.minmax,
    per_channel: PerChannel = True,
    exclude: Exclude = None,
    split_below: SplitBelow = 24.0,
    target_drop: Annotated[
        float | None,
        typer.Option("--target-drop", metavar="PCT", help="Keep layers in float until --metric drops by no more."),
    ] = None,
    metric: Annotated[str, typer.Option("--metric", help="top1, cosine, relative, or module:function.")] = "top1",
    batches: Annotated[int, typer.Option("--batches", min=1, help="Batches on which layers are measured.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Write an int8 version of a model as standard ONNX, with QuantizeLinear and DequantizeLinear."""
    with _reserved(as_json):
        options = {"method": method.value, "per_channel": per_channel, "split_below": split_below or None}
        made, excluded, score = _made(model, data, options, exclude, target_drop, metric, batches, as_json)
        opset = made.save(output)
        covered = made.coverage("cpu")
    if as_json:
        _print_json(
            {
                "output": str(output), "opset": opset, "coverage": covered.to_json(), "notes": made.notes,
                "excluded": list(excluded), "metric": metric if score is not None else None, "score": score,
            }
        )  # fmt: skip
        return
    for note in made.notes:
        print(note)
    for name in excluded:
        print(f"{name} stays in floating point")
    if score is not None:
        print(f"{metric}: {score:.4g}")
    print(covered.summary())
    print(f"wrote {output}, opset {opset}")


@app.command("analyze")
def analyze_model(
    model: Model,
    data: Data,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page that stands alone.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON there.")] = None,
    method: MethodOption = Method.minmax,
    per_channel: PerChannel = True,
    exclude: Exclude = None,
    split_below: SplitBelow = 24.0,
    metric: Annotated[str, typer.Option("--metric", help="top1, cosine, relative, or module:function.")] = "top1",
    batches: Annotated[int, typer.Option("--batches", min=1, help="Batches to measure on.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Measure every int8 layer: sensitivity, noise by weight and activation, saturation, coverage."""
    from aicore_int8_quant.analysis.analyze import analyze

    with _reserved(as_json):
        options = {"method": method.value, "per_channel": per_channel, "split_below": split_below or None}
        made, _, _ = _made(model, data, options, exclude, None, metric, batches, as_json)
        source = _files(data, made)
        found = analyze(made, source, batches=batches, metric=metric, name=model.stem, progress=not as_json)
        page = found.page() if html else ""
        covered = made.coverage("cpu")
    if html:
        _write(html, page)
    if output:
        _write(output, json.dumps(_plain(found.to_json()), indent=2, allow_nan=False) + "\n")
    if as_json:
        _print_json(found.to_json())
        return
    print(f"{'alone':>7} {'spared':>7} {'local':>7} {'accum.':>7} {'sat. %':>7}  layer")
    for layer in found.layers:
        numbers = [layer[key] for key in ("alone_sqnr", "spared_sqnr", "local_sqnr", "accumulated_sqnr")]
        print(*(f"{n:7.1f}" for n in (*numbers, 100 * layer["saturation"])), f" {layer['name']} ({layer['op']})")
    for kept in found.kept:
        print(f"{kept['count']} in float: {kept['sqnr']:.1f} dB, {metric} {kept['metric']:.4g}")
    print(covered.summary())
    for file in filter(None, (html, output)):
        print(f"wrote {file}")


def _made(
    model: Path, data: Path, options: dict[str, Any], exclude: list[str] | None,
    target_drop: float | None, metric: str, batches: int, quiet: bool,
) -> tuple[QuantizedModel, tuple[str, ...], float | None]:  # fmt: skip
    """The model, what was found to stay in float, and the score where one was asked for."""
    from itertools import islice

    from aicore.api import load
    from aicore_int8_quant.analysis.metrics import find_metric
    from aicore_int8_quant.api import quantize
    from aicore_int8_quant.data_files import DataFiles
    from aicore_int8_quant.exclusion import exclude_most_sensitive, keep_until, split_exclusions
    from aicore_int8_quant.linear_nodes import node_name

    names, count = split_exclusions(exclude or [])
    measure = find_metric(metric)
    graph = load(model)
    files = DataFiles(data, graph)
    made = quantize(graph, files, exclude=names, progress=not quiet, **options)
    before = set(made.kept)
    score = None
    if count:
        made = exclude_most_sensitive(made, list(islice(files, batches)), count, progress=not quiet)
    if target_drop is not None:
        search = keep_until(made, list(islice(files, batches)), measure, target_drop, progress=not quiet)
        made, score = search.model, search.score
    kept = [node_name(node) for node in made.job.kept]
    return made, tuple(name for name in kept if name not in before), score


def _files(data: Path, made: QuantizedModel) -> Any:
    from aicore_int8_quant.data_files import DataFiles

    return DataFiles(data, made.prepared)


def _write(path: Path, text: str) -> None:
    from aicore.errors import InputError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error}") from error


@contextmanager
def _reserved(wanted: bool) -> Iterator[None]:
    """Keep stdout for JSON: what libraries print meanwhile goes to stderr."""
    if not wanted:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def _print_json(data: Any) -> None:
    print(json.dumps(_plain(data), indent=2, allow_nan=False))


def _plain(data: Any) -> Any:
    from aicore_int8_quant.analysis.page import plain

    return plain(data)
