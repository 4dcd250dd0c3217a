"""`aicore demo`: a real client, a real model and real files, on every device that is usable."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from aicore.cli._inputs import Json
from aicore.cli._report import print_json, show, table, working
from aicore.errors import InputError, UnsupportedError

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
_SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist", "node_modules"})
_FILES_OF_A_KIND = 2
_MOST_FILES = 32


@dataclass(frozen=True, slots=True)
class Identified:
    """What the client says of one file: its type, and how probable it is (0 to 1)."""

    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class TargetRun:
    """One target's answers, in the order of the files, with seconds in all and where the nodes ran."""

    target: str
    answers: tuple[Identified, ...]
    seconds: float
    placement: str


@app.command()
def demo(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files to identify; without any, some of aicore's own."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", metavar="DEVICE", help="Device; may be repeated. Default: every usable one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Identify the types of files with the magika client, on aicore instead of onnxruntime.

    The client is installed as it is; it imports `onnxruntime` and gets aicore. Every target identifies every file, and
    the table says whether they agree. Exit status 1 means that two targets disagree.
    """
    from aicore.plugins import plugin_registry  # `--help` needs no plugin

    registry = plugin_registry()
    targets = [registry.device_name(name) for name in target or registry.devices()]
    if not targets:
        registry.default_target()  # raises, saying what to install
    paths = _checked(files) if files else _own_files()
    runs = _run_all(targets, paths, quiet=as_json)
    agree = [len({run.answers[i].label for run in runs}) == 1 for i in range(len(paths))]
    if as_json:
        print_json({"files": list(map(str, paths)), "runs": [asdict(run) for run in runs], "agree": agree})
    else:
        _print_table(paths, runs, agree)
    if not all(agree):
        raise typer.Exit(1)


def identify(target: str, paths: Sequence[Path]) -> TargetRun:
    """Identify the files with a fresh magika client whose sessions run on `target`.

    Raises UnsupportedError saying how to install magika when it is missing.
    """
    from aicore.compat.onnxruntime import install

    _forget("magika")
    with install(target=target):
        try:
            return _identify_with(_client(), target, paths)
        finally:
            _forget("magika")


def _client() -> Any:
    """The client's module, newly imported."""
    try:
        return importlib.import_module("magika")
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"the demo needs the magika client ({error}); `make demo` sets everything up, or: "
            "pip install 'click>=8.1.7' && pip install --no-deps magika==1.0.3"
        ) from error


def _identify_with(magika: Any, target: str, paths: Sequence[Path]) -> TargetRun:
    started = time.perf_counter()
    client = magika.Magika()
    results = client.identify_paths(list(paths))
    seconds = time.perf_counter() - started
    placement = client._onnx_session.program.placement  # the client keeps its session to itself
    return TargetRun(target, tuple(_answer(result) for result in results), seconds, str(placement))


def _answer(result: Any) -> Identified:
    return Identified(str(result.output.label), float(result.score))


def _forget(package: str) -> None:
    """Drop the package's modules, so that the next import binds `onnxruntime` anew."""
    for name in [name for name in sys.modules if name == package or name.startswith(package + ".")]:
        del sys.modules[name]


def _checked(files: Iterable[Path]) -> list[Path]:
    paths = [Path(file) for file in files]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise InputError(f"{missing[0]} is not a file")
    return paths


def _own_files() -> list[Path]:
    """A few files of each kind from the folder that holds the package: the repository, or site-packages' aicore."""
    package = Path(__file__).resolve().parent.parent
    root = package.parent if (package.parent / "pyproject.toml").is_file() else package
    chosen: list[Path] = []
    of_kind: dict[str, int] = {}
    for path in sorted(root.rglob("*"), key=lambda p: (len(p.relative_to(root).parts), p)):
        inside = path.relative_to(root).parts
        if not path.is_file() or any(_is_made(part) for part in inside):
            continue
        if any(part.startswith(".") for part in inside[:-1]) and inside[0] != ".ci":
            continue
        kind = path.suffix or path.name
        of_kind[kind] = of_kind.get(kind, 0) + 1
        if of_kind[kind] <= _FILES_OF_A_KIND and len(chosen) < _MOST_FILES:
            chosen.append(path)
    return chosen


def _is_made(part: str) -> bool:
    """Whether a folder of this name holds what tools make, not what people write."""
    return part.startswith(".venv") or part.endswith(".egg-info") or part in _SKIPPED_FOLDERS


def _run_all(targets: Sequence[str], paths: Sequence[Path], quiet: bool) -> list[TargetRun]:
    runs = []
    for target in targets:
        with working(f"identifying {len(paths)} files on {target}", quiet):
            runs.append(identify(target, paths))
    return runs


def _print_table(paths: Sequence[Path], runs: Sequence[TargetRun], agree: Sequence[bool]) -> None:
    several = len(runs) > 1
    of_each = [(f"type on {run.target}", "probability") for run in runs]
    headings = ["file", *(heading for pair in of_each for heading in pair), *(["agree"] if several else [])]
    rows = []
    for i, path in enumerate(paths):
        answers = [(run.answers[i].label, f"{run.answers[i].probability:.4f}") for run in runs]
        verdict = ["yes" if agree[i] else "NO"] if several else []
        rows.append([_short(path), *(cell for pair in answers for cell in pair), *verdict])
    show(table(headings, rows, right=["probability"]))
    for run in runs:
        show(f"{run.target}: {len(paths)} files in {run.seconds:.2f} s, compilation included; {run.placement}")
    if several:
        show(f"{sum(agree)} of {len(paths)} files: the targets agree; {_largest_difference(runs)}")


def _largest_difference(runs: Sequence[TargetRun]) -> str:
    rows = zip(*(run.answers for run in runs), strict=True)
    spread = max((max(p) - min(p) for p in ([a.probability for a in row] for row in rows)), default=0.0)
    return f"largest difference of a probability {spread:.1e}"


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
