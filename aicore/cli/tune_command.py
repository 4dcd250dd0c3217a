"""`aicore tune`: choose kernels by measurement, and keep what was measured for every later run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aicore.cli._inputs import Feed, InputFiles, Json, Seed, Shapes, Target, Threads, make_feed
from aicore.cli._report import INTERRUPTED, print_json, show, table, time_text, working
from aicore.errors import InputError

if TYPE_CHECKING:
    from aicore.experiments import GraphTuning
    from aicore.ir import Graph
    from aicore.tuning import Comparison, Outcome, Problem, Raced, Record, TuningStore

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
_EPILOG = """\
`aicore tune model.onnx --budget 120`  measure, heaviest layers first, for at most two minutes

`aicore tune model.onnx --shape batch=8 --threads 1`  times hold for these sizes and this number of threads

`aicore tune model.onnx --whole-graph`  search layouts and fusions too

`aicore tune --export times.json`  what was measured on this machine, and `--import times.json` on another
"""
_SECONDS = 5.0
"""To compare tuned and untuned runs for, at most."""


@app.command(epilog=_EPILOG)
def tune(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="ONNX model file.", show_default=False)] = None,
    target: Target = None,
    budget: Annotated[float, typer.Option("--budget", metavar="SECONDS", min=0, help="Time to measure for.")] = 60.0,
    threads: Threads = None,
    again: Annotated[bool, typer.Option("--again", help="Measure also what is known already.")] = False,
    whole_graph: Annotated[
        bool,
        typer.Option("--whole-graph", help="Then search layouts and fusions over whole programs, as long again."),
    ] = False,
    inputs: InputFiles = None,
    seed: Seed = 0,
    shapes: Shapes = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write all records as JSON, and end.")
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", metavar="FILE", help="Add the records of such a file first.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose the kernels of a model by measuring them on this machine.

    Each kernel's numbers are compared with the reference before it is timed. The default stays unless another one is
    faster beyond the noise. Results are kept at once, so Ctrl-C loses nothing, and later runs use them by themselves;
    `AICORE_TUNE=off` ignores them. At the end tuned and untuned programs are compared; if the tuned one is slower, what
    was chosen is taken back.
    """
    from aicore.config import from_environment
    from aicore.tuning import TuningStore

    store = TuningStore.of(from_environment())
    if model is None and export is None and import_ is None:
        raise InputError("what is to be tuned? give a MODEL, or --export or --import a FILE")
    exchanged = _exchange(store, export, import_)
    if model is None:
        _tell(exchanged, as_json)
        return
    from aicore.api import load

    with working(f"loading {model}", quiet=as_json):
        graph = load(model)
        feed = make_feed(graph, inputs, shapes, True, seed)
    run = _Run(graph, feed, target, threads)
    finished = run.measure(budget, again, quiet=as_json)
    searched: GraphTuning | None = None
    gain: Comparison | None = None
    withdrawn = 0
    try:
        searched = run.search(budget, quiet=as_json) if finished and whole_graph else None
        finished = finished and (searched is None or searched.finished)
        gain = run.compare() if finished else None
        withdrawn = run.withdraw(store) if gain is not None and gain.low > 1 else 0
    except KeyboardInterrupt:  # before the search began, or while comparing: what was measured is kept
        finished = False
    report = run.to_json(model, store, budget, finished, gain) | {"withdrawn": withdrawn}
    if as_json:
        print_json({**report, "whole_graph": None if searched is None else searched.to_json(), **exchanged})
    else:
        _tell(exchanged, False)
        _show(run, store, finished, gain)
        show(*([f"{withdrawn} choices are taken back: each was faster alone, the program is not"] if withdrawn else []))
        show(*([] if searched is None else ["", searched.__rich__()]))
    if not finished:
        raise typer.Exit(INTERRUPTED)


class _Run:
    """Tunes one model for one set of shapes."""

    def __init__(self, graph: Graph, feed: Feed, target: str | None, threads: int | None) -> None:
        self.graph = graph
        self.feed = feed
        self.target = target
        self.threads = threads
        self.problems: list[Problem] = []
        self.outcomes: list[Outcome] = []
        self.races: list[Raced] = []

    def measure(self, budget: float, again: bool, quiet: bool) -> bool:
        """Measure; False when the user has interrupted it."""
        from aicore.tuning import Measure

        with _progress(quiet) as (started, advance):

            def begin(problems: Sequence[Problem]) -> None:
                self.problems += problems
                started(self.problems)

            def finish(outcome: Outcome) -> None:
                self.outcomes.append(outcome)
                advance(outcome)

            try:
                self._compile(Measure(budget, again, begin, finish, self.races.append)).run(self.feed.arrays)
            except KeyboardInterrupt:
                return False
        return True

    @property
    def left(self) -> int:
        """Problems that were not reached; a race and the kernels of what won may have the same ones."""
        return len({one.text for one in self.problems} - {one.problem.text for one in self.outcomes})

    def search(self, budget: float, quiet: bool) -> GraphTuning:
        """Choices of passes that interact, over whole programs."""
        from aicore.experiments import tune_graph

        with _choices_bar(quiet) as advance:
            return tune_graph(
                self.graph, self.feed.arrays, target=self.target, seconds=budget, threads=self.threads, advance=advance
            )

    def compare(self) -> Comparison:
        """A tuned run over an untuned one: runs of both in pairs."""
        from aicore.tuning import compare_runs

        untuned, tuned = self._compile("off"), self._compile("cached")
        arrays = self.feed.arrays
        return compare_runs(lambda: untuned.run(arrays), lambda: tuned.run(arrays), _SECONDS)

    def withdraw(self, store: TuningStore) -> int:
        """Let defaults stand where something else was chosen just now; returns how many choices that were.

        Steps that are faster by themselves need not make a faster program: they share caches, and what they leave.
        """
        found = [(o.problem.text, o.record) for o in self.outcomes] + [(r.text, r.record) for r in self.races]
        changed = {text: one for text, one in found if one is not None and one.chosen != one.default}
        rows = [row for row in store.rows() if changed.get(row.problem) == row.record]
        return store.keep(row._replace(record=_by_default(row.record)) for row in rows)

    def to_json(
        self, model: Path, store: TuningStore, budget: float, finished: bool, gain: Comparison | None
    ) -> dict[str, Any]:
        return {
            "model": str(model),
            "store": str(store.path),
            "budget": budget,
            "finished": finished,
            "problems": len({one.text for one in self.problems}),
            "measured": [
                {
                    "problem": o.problem.text,
                    "nodes": o.problem.count,
                    "timed": o.timed,
                    "reason": o.reason,
                    "record": None if o.record is None else o.record.to_json(),
                }
                for o in self.outcomes
            ],
            "races": [
                {
                    "race": r.text,
                    "groups": r.count,
                    "reason": r.reason,
                    "record": None if r.record is None else r.record.to_json(),
                }
                for r in self.races
            ],
            "run": None
            if gain is None
            else {"seconds": gain.seconds[1], "over_untuned": gain.ratio, "low": gain.low, "high": gain.high},
        }

    def _compile(self, how: Any) -> Any:
        from aicore.api import compile  # noqa: A004  # aicore.compile

        return compile(self.graph, self.target, threads=self.threads, tune=how)


def _exchange(store: TuningStore, export: Path | None, import_: Path | None) -> dict[str, Any]:
    from aicore.tuning import export_records, import_records

    done: dict[str, Any] = {}
    if import_ is not None:
        added, older = import_records(store, import_)
        done["imported"] = {"file": str(import_), "added": added, "older": older}
    if export is not None:
        data = export_records(store)
        try:
            export.write_text(json.dumps(data, indent=1), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{export} cannot be written: {error.strerror}") from error
        done["exported"] = {"file": str(export), "records": len(data["records"])}
    return done


def _tell(exchanged: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(exchanged)
        return
    if "imported" in exchanged:
        done = exchanged["imported"]
        show(f"{done['added']} records added from {done['file']}; of {done['older']} the store has newer ones")
    if "exported" in exchanged:
        show(f"{exchanged['exported']['records']} records written to {exchanged['exported']['file']}")


def _show(run: _Run, store: TuningStore, finished: bool, gain: Comparison | None) -> None:
    rows = [_row(outcome) for outcome in run.outcomes]
    if rows:
        headings = ["nodes", "problem", "default", "chosen", "time", "over default", "timed"]
        show(table(headings, rows, right=("nodes", "time", "over default", "timed")), "")
    if run.races:
        headings = ["groups", "race", "taken", "time", "other"]
        show(table(headings, [_race_row(raced) for raced in run.races], right=("groups", "time", "other")), "")
    left = run.left
    changed = sum(o.record is not None and o.record.chosen != o.record.default for o in run.outcomes)
    if not run.problems and not run.races:
        show("nothing to measure: every choice is known (--again measures anew), or there is none")
    else:
        show(f"{len(run.outcomes)} problems measured, {changed} with another kernel than the default")
    if left:
        why = "before it was interrupted" if not finished else "within the budget; a larger --budget reaches them"
        show(f"{left} were not reached {why}")
    show(f"kept in {store.path}")
    if gain is not None:
        show(
            f"a tuned run takes {time_text(gain.seconds[1])}: {gain.ratio:.2f} of an untuned one "
            f"({gain.low:.2f} to {gain.high:.2f} with 95 % confidence)"
        )


def _by_default(record: Record) -> Record:
    return replace(record, chosen=record.default, gain=(1.0, 1.0, 1.0))


def _row(outcome: Outcome) -> tuple[str, ...]:
    problem, record = outcome.problem, outcome.record
    text = _shortened(problem.text)
    if record is None:
        return str(problem.count), text, problem.candidates[0].name, outcome.reason, "", "", "0"
    ratio = "" if record.chosen == record.default else f"{record.gain[0]:.2f}"
    seconds = time_text(record.seconds[record.chosen])
    return str(problem.count), text, record.default, record.chosen, seconds, ratio, str(outcome.timed)


def _race_row(raced: Raced) -> tuple[str, ...]:
    """Of two ways to compute something: the one that is taken, and what the other would take."""
    record = raced.record
    text = _shortened(raced.text.removeprefix("race "))
    if record is None:
        return str(raced.count), text, raced.reason, "", ""
    others = [seconds for name, seconds in record.seconds.items() if name != record.chosen]
    times = record.seconds[record.chosen], min(others, default=0.0)
    return str(raced.count), text, record.chosen, *map(time_text, times)


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."


@contextmanager
def _choices_bar(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr, with the time that is left, for choices of whole programs."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("choices"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("")
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what[:60])


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    """Two functions, for the beginning and for each problem that is done, that move a bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("measuring"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def started(problems: Sequence[Problem]) -> None:
            bar.update(task, total=len(problems))

        def advance(outcome: Outcome) -> None:
            bar.update(task, advance=1, description=outcome.problem.text[:60])

        yield started, advance
