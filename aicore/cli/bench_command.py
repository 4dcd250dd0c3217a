"""`aicore bench`: how long a model takes, on one or several targets in turn."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicore.cli._inputs import Fallback, Feed, InputFiles, Json, ModelFile, Seed, Shapes, make_feed
from aicore.cli._report import print_json, show, table, time_text, working
from aicore.errors import ConfigError
from aicore.views import rich_part

if TYPE_CHECKING:
    from aicore.config import FallbackPolicy
    from aicore.ir import Graph
    from aicore.program import Program
    from aicore.runtime import Profile

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
_EPILOG = """\
`aicore bench model.onnx --target cpu --target cuda`  two targets, their runs in turn

`aicore bench model.onnx --shape batch=8 --runs 50 --json`  for scripts

`aicore bench model.onnx --profile trace.json`  which steps take the time; ui.perfetto.dev opens the trace
"""


@dataclass
class Timing:
    """One target: its program, seconds until the first result, and seconds of each later run."""

    program: Program
    first: float
    steps: int
    runs: list[float] = field(default_factory=list)
    difference: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.runs)


@app.command(epilog=_EPILOG)
def bench(
    model: ModelFile,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", metavar="DEVICE", help="Device; may be repeated. Default: AICORE_TARGET, or the best."
        ),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", metavar="N", min=1, help="Timed runs of each target.")] = 20,
    warmup: Annotated[int, typer.Option("--warmup", metavar="N", min=0, help="Runs before them, not timed.")] = 3,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE",
            dir_okay=False,
            help="Time each step too, show the slowest, and write a trace for Perfetto; one file for each target.",
        ),
    ] = None,
    inputs: InputFiles = None,
    random: Annotated[
        bool, typer.Option("--random", help="The default here: random inputs where no file is given.")
    ] = True,
    seed: Seed = 0,
    shapes: Shapes = None,
    fallback: Fallback = None,
    as_json: Json = False,
) -> None:
    """Time a model on one or several targets.

    The first run compiles for its input shapes and is shown by itself. Later runs of several targets take turns, so
    that drift of the machine hits all alike. Inputs that come from no file are random. With several targets, the
    largest difference of a result from the first target's is shown: its norm over the result's norm.
    """  # fmt: skip
    from aicore.api import load  # heavy, and `--help` needs none of it
    from aicore.config import parse_fallback

    policy = None if fallback is None else parse_fallback(fallback, "--fallback")
    with working(f"loading {model}", quiet=as_json):
        graph = load(model)
        feed = make_feed(graph, inputs, shapes, random, seed)
    with working(f"timing {model}", quiet=as_json):
        timings = measure(graph, feed, list(dict.fromkeys(target or [])), policy, runs, warmup)
        profiles = [] if profile is None else [timing.program.profile(feed.arrays, runs) for timing in timings]
    files = [] if profile is None else _trace_files(profile, timings)
    for file, one in zip(files, profiles, strict=True):
        _write(file, one)
    if as_json:
        print_json(_to_json(model, feed, seed, timings, profiles))
        return
    _show(feed, timings)
    for file, one in zip(files, profiles, strict=True):
        show("", *map(rich_part, one.parts()), f"trace: {file}")


def measure(
    graph: Graph, feed: Feed, targets: Sequence[str], fallback: FallbackPolicy | None, runs: int, warmup: int
) -> list[Timing]:
    """Time the graph on each target, on the default one if none is named."""
    timings: list[Timing] = []
    outputs: list[Mapping[str, Any]] = []
    for target in targets or (None,):
        timing, results = _first_run(graph, feed, target, fallback)
        timings.append(timing)
        outputs.append(results)
        timing.difference = _largest_difference(results, outputs[0])
    for i in range(warmup + runs):
        for timing in timings:
            start = time.perf_counter()
            timing.program.run(feed.arrays)
            if i >= warmup:
                timing.runs.append(time.perf_counter() - start)
    return timings


def _first_run(
    graph: Graph, feed: Feed, target: str | None, fallback: FallbackPolicy | None
) -> tuple[Timing, Mapping[str, Any]]:
    from aicore.api import compile  # noqa: A004  # aicore.compile

    start = time.perf_counter()
    program = compile(graph, target, fallback=fallback)
    results = program.run(feed.arrays)
    return Timing(program, time.perf_counter() - start, program.steps_run), results


def _largest_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Norm of the difference over the norm, of the output where that is largest; anything but numbers must be equal."""
    return max((_difference(ours[name], theirs[name]) for name in ours), default=0.0)


def _difference(ours: Any, theirs: Any) -> float:
    import numpy as np

    if ours is theirs:
        return 0.0
    if ours.dtype == object or ours.shape != theirs.shape:
        return 0.0 if np.array_equal(ours, theirs) else float("inf")
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    a, b = ours.astype(wide).ravel(), theirs.astype(wide).ravel()
    same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinities and NaN in the same places are no difference
    gap = float(np.linalg.norm(a[~same] - b[~same]))
    scale = float(np.linalg.norm(b[np.isfinite(b)]))
    return gap / scale if scale else gap


def _show(feed: Feed, timings: Sequence[Timing]) -> None:
    from aicore.runtime import type_of

    show(table(["input", "type", "from"], [(n, str(type_of(a)), feed.sources[n]) for n, a in feed.arrays.items()]))
    if feed.chosen:
        show(f"chosen: {', '.join(feed.chosen)}")
    headings = ["target", "median", "min", "max", "runs", "first run", "steps", "steps/s"]
    extra = ["difference"] if len(timings) > 1 else []
    rows = [(*_row(timing), f"{timing.difference:.1e}")[: len(headings) + len(extra)] for timing in timings]
    show("", table(headings + extra, rows, right=(headings + extra)[1:]), "")
    for timing in timings:
        show(f"placement: {timing.program.placement}")


def _row(timing: Timing) -> tuple[str, ...]:
    times = [time_text(t) for t in (timing.median, min(timing.runs), max(timing.runs))]
    rate = f"{timing.steps / timing.median:,.0f}"
    return timing.program.device.name, *times, str(len(timing.runs)), time_text(timing.first), str(timing.steps), rate


def _trace_files(file: Path, timings: Sequence[Timing]) -> list[Path]:
    """The file itself for one target; for several, each has the target in its name."""
    if len(timings) == 1:
        return [file]
    names = [timing.program.device.name.replace(":", "") for timing in timings]
    return [file.with_name(f"{file.stem}-{name}{file.suffix}") for name in names]


def _write(file: Path, profile: Profile) -> None:
    """Raises ConfigError where the file cannot be written."""
    try:
        file.write_text(json.dumps(profile.trace()), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--profile {file}: {error.strerror}") from error


def _to_json(
    model: Path, feed: Feed, seed: int, timings: Sequence[Timing], profiles: Sequence[Profile]
) -> dict[str, Any]:
    from aicore.ir import dtype_name

    return {
        "model": str(model),
        "seed": seed if "random" in feed.sources.values() else None,
        "chosen": list(feed.chosen),
        "inputs": {
            name: {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "from": feed.sources[name]}
            for name, array in feed.arrays.items()
        },
        "targets": [
            {
                "target": timing.program.device.name,
                "median": timing.median,
                "min": min(timing.runs),
                "max": max(timing.runs),
                "runs": timing.runs,
                "first_run": timing.first,
                "steps": timing.steps,
                "steps_per_second": timing.steps / timing.median,
                "difference": timing.difference,
                "placement": str(timing.program.placement),
                **({"profile": profiles[i].to_json()} if profiles else {}),
            }
            for i, timing in enumerate(timings)
        ],
    }
