"""`aicore run`: a model on inputs from files, or on random ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicore.cli._arrays import save_arrays
from aicore.cli._inputs import Fallback, Feed, InputFiles, Json, ModelFile, Random, Seed, Shapes, Target, make_feed
from aicore.cli._passes import PassChoices
from aicore.cli._report import print_json, show, table, time_text, working

if TYPE_CHECKING:
    import numpy as np

    from aicore.program import Program

    Array = np.ndarray[Any, Any]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
_SHOWN_VALUES = 5
_JSON_VALUES = 16
_EPILOG = """\
`aicore run model.onnx --random`  random numbers; a free batch dim becomes 1

`aicore run model.onnx --random --shape height=320 --shape width=480`  sizes of named dims

`aicore run model.onnx --input x=page.npy --output results`  NumPy files in, NumPy files out

`aicore run model.onnx --input all.npz --target cuda --json`  several inputs by name; for scripts
"""


@app.command(epilog=_EPILOG)
def run(
    model: ModelFile,
    inputs: InputFiles = None,
    random: Random = False,
    seed: Seed = 0,
    shapes: Shapes = None,
    target: Target = None,
    fallback: Fallback = None,
    choices: PassChoices = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write each output to a .npy file there.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a model on inputs from files, or on random ones, and show its outputs.

    Inputs that come from no file are random with --random: floats standard normal, integers from 0 to 9. Free dims
    take the sizes of the files and of --shape; a batch that nobody gives is 1, and said to be.
    """
    from aicore.api import compile, load  # noqa: A004  # aicore.compile; heavy, and `--help` needs none of it
    from aicore.config import parse_fallback

    policy = None if fallback is None else parse_fallback(fallback, "--fallback")
    start = time.perf_counter()
    with working(f"loading {model}", quiet=as_json):
        graph = load(model)
        feed = make_feed(graph, inputs, shapes, random, seed)
    loaded = time.perf_counter()
    with working(f"compiling and running {model}", quiet=as_json):
        program = compile(graph, target, fallback=policy, choices=choices)
        outputs = program.run(feed.arrays)
    seconds = {"load": loaded - start, "compile_and_run": time.perf_counter() - loaded}
    files = {} if output is None else save_arrays(output, outputs)
    if as_json:
        print_json(_to_json(model, program, feed, seed, outputs, files, seconds))
    else:
        _show(program, feed, seed, outputs, files, seconds)


def _summary(array: Array) -> dict[str, Any]:
    """Smallest, mean and largest of the finite elements, and how many are not finite; nothing for texts."""
    import numpy as np

    if array.dtype == object or array.dtype.kind == "c" or not array.size:
        return {}
    is_float = array.dtype.kind not in "iub"
    numbers = array.astype(np.float64) if is_float else array
    finite = numbers[np.isfinite(numbers)] if is_float else numbers
    found: dict[str, Any] = (
        {"nan": int(np.isnan(numbers).sum()), "inf": int(np.isinf(numbers).sum())} if is_float else {}
    )
    if finite.size:
        found |= {"min": finite.min().item(), "mean": float(finite.mean()), "max": finite.max().item()}
    return found


def _values(array: Array, count: int) -> list[Any]:
    import numpy as np

    flat = array.ravel()[:count]
    if array.dtype.kind == "c":
        return [str(number) for number in flat.tolist()]
    is_float = array.dtype.kind not in "iubOUS"  # those of ml_dtypes are of other kinds
    return [*(flat.astype(np.float64) if is_float else flat).tolist()]


def _show(
    program: Program, feed: Feed, seed: int, outputs: Mapping[str, Array], files: Mapping[str, Path],
    seconds: Mapping[str, float],
) -> None:  # fmt: skip
    from aicore.runtime import type_of

    source = {name: f"random, seed {seed}" if what == "random" else what for name, what in feed.sources.items()}
    show(table(["input", "type", "from"], [(n, str(type_of(a)), source[n]) for n, a in feed.arrays.items()]))
    if feed.chosen:
        show(f"chosen: {', '.join(feed.chosen)}")
    headings = ["output", "type", "min", "mean", "max", "values"]
    show("", table(headings, [_row(name, array) for name, array in outputs.items()], right=("min", "mean", "max")), "")
    show(program.target, f"placement: {program.placement}")
    if choices := program.explain().choices:
        show(f"choices: {choices}")
    show(f"loaded in {time_text(seconds['load'])}, compiled and run in {time_text(seconds['compile_and_run'])}")
    for path in files.values():
        show(f"wrote {path}")


def _row(name: str, array: Array) -> tuple[str, ...]:
    from aicore.runtime import type_of

    summary = _summary(array)
    numbers = [f"{summary[key]:.6g}" if key in summary else "" for key in ("min", "mean", "max")]
    values = " ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in _values(array, _SHOWN_VALUES))
    more = " ..." if array.size > _SHOWN_VALUES else ""
    odd = "".join(f" ({summary[key]} {key})" for key in ("nan", "inf") if summary.get(key))
    return name, str(type_of(array)), *numbers, values + more + odd


def _to_json(
    model: Path, program: Program, feed: Feed, seed: int, outputs: Mapping[str, Array], files: Mapping[str, Path],
    seconds: Mapping[str, float],
) -> dict[str, Any]:  # fmt: skip
    return {
        "model": str(model),
        "target": program.device.name,
        "placement": str(program.placement),
        "choices": program.explain().choices or None,
        "seed": seed if "random" in feed.sources.values() else None,
        "chosen": list(feed.chosen),
        "inputs": {name: {**_type(array), "from": feed.sources[name]} for name, array in feed.arrays.items()},
        "outputs": {
            name: {
                **_type(array), **_summary(array), "values": _values(array, _JSON_VALUES),
                **({"file": str(files[name])} if name in files else {}),
            }
            for name, array in outputs.items()
        },
        "seconds": dict(seconds),
    }  # fmt: skip


def _type(array: Array) -> dict[str, Any]:
    from aicore.ir import dtype_name

    return {"dtype": dtype_name(array.dtype), "shape": list(array.shape)}
