"""Which change makes a result wrong: a search over the number of changes that passes may make, on the real target."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from aicore.api import compile  # noqa: A004  # aicore.compile
from aicore.errors import AicoreError, error_text
from aicore.experiments.blame import Blame, blame
from aicore.experiments.partners import partners_of, partners_text
from aicore.experiments.sides import Feeds, read_all
from aicore.ir import Graph
from aicore.passes import Choices, PassTrace
from aicore.passes.base import is_required
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.records import dataclass
from aicore.testing.reference import Reference
from aicore.testing.targets import Target
from aicore.testing.wholes import Whole, specialised
from aicore.views import View

Array = np.ndarray[Any, Any]
Ending: TypeAlias = Literal["found", "right", "wrong from the start"]
REFERENCE = "reference"


@dataclass(frozen=True)
class Bisection(View):
    """Where the results of a model turn wrong.

    ending: `found`, `right` when nothing is wrong, `wrong from the start` when no change is to blame.
    pass_name, rule, match, node: of the change at which results turn wrong; match is its number, as in the IR's text.
    total: how many changes there are that may be left out. runs: programs that were compiled, run and compared.
    last_right, first_wrong: limits of changes, for `choices`.
    wrong: how the results are wrong.
    verdict: whether the change is wrong by itself, or only where it stands.
    advice: how to see it, and how to go on.
    repro: the folder that shows it alone; empty when none was written.
    partners: rules and passes without which the change does no harm; empty where it is wrong without others.
    """

    ending: Ending
    target: str
    reference: str
    runs: int
    total: int
    pass_name: str = ""
    rule: str = ""
    match: int = -1
    node: str = ""
    last_right: int = 0
    first_wrong: int = 0
    wrong: str = ""
    verdict: str = ""
    advice: tuple[str, ...] = ()
    repro: str = ""
    partners: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        runs = f"{self.runs} {'run' if self.runs == 1 else 'runs'}"
        total = f"{self.total} {'change' if self.total == 1 else 'changes'}"
        if self.ending == "right":
            return f"nothing is wrong on {self.target}, compared with {self.reference} ({total}, {runs})"
        if self.ending == "wrong from the start":
            return f"wrong on {self.target} before any change that could be left out ({runs}): {self.wrong}"
        change = f"{self.rule or 'change'}#{self.match}"
        return f"{self.pass_name}: {change} at {self.node} ({runs}, {total})"

    def __str__(self) -> str:
        lines = [self.heading]
        if self.ending == "found":
            lines += [f"  results: {self.wrong}", f"  {self.verdict}"]
        lines += [f"  {line}" for line in self.advice]
        return "\n".join([*lines, *([f"  wrote {self.repro}"] if self.repro else [])])

    def __rich__(self) -> Any:
        from rich.text import Text

        shown = Text(str(self))
        shown.stylize("bold green" if self.ending == "right" else "bold red", 0, len(self.heading))
        return shown

    def to_json(self) -> dict[str, Any]:
        found = self.ending == "found"
        return {
            "ending": self.ending, "target": self.target, "reference": self.reference, "runs": self.runs,
            "changes": self.total, "pass": self.pass_name or None, "rule": self.rule or None,
            "match": self.match if found else None, "node": self.node or None,
            "last_right": self.last_right if found else None, "first_wrong": self.first_wrong if found else None,
            "wrong": self.wrong or None, "verdict": self.verdict or None, "advice": list(self.advice),
            "repro": self.repro or None, "partners": list(self.partners),
        }  # fmt: skip


def bisect(
    graph: Graph,
    feeds: Feeds,
    *,
    target: str | None = None,
    reference: str = REFERENCE,
    choices: Choices | str | None = None,
    folder: Path | None = None,
    registry: PluginRegistry | None = None,
    advance: Callable[[int, int, bool], object] | None = None,
) -> Bisection:
    """Find the change of N that makes results wrong, in at most ceil(log2 N) + 2 runs of the program.

    One that is wrong only together with others takes about 2 log2 of the number of rules more for each of these.

    feeds: an array for each input.
    target, reference: as `Target.find` takes them, `cpu:reference` for instance. The reference runs the model without
        any change; `reference` alone is that of the conformance kit, in float64.
    choices: what is left out anyway; the search is among the other changes.
    folder: where to write a repro of the change alone; None writes nothing.
    advance: is told, after each run: how many there were, the limit of changes, and whether results were right.
    Raises InputError for feeds that are not those of the inputs, PluginError for a target that cannot be used,
    AicoreError where the reference lacks an op or fails.
    """
    registry = plugin_registry() if registry is None else registry
    base = Choices.parse(choices) if isinstance(choices, str) else choices or Choices()
    goal = Target.find(registry.default_target()[0] if target is None else target, registry)
    feeds = read_all(graph, feeds)
    search = _Search(graph, feeds, goal, base, _wanted(graph, feeds, reference, registry), advance)
    high, total = search.all_changes()
    ends = (goal.name, reference)
    if not search.wrong:
        return Bisection("right", *ends, search.runs, total)
    if not search.is_right(0):
        return Bisection("wrong from the start", *ends, search.runs, total, wrong=search.wrong, advice=_no_change(goal))
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        if search.is_right(middle):
            low = middle
        else:
            high = middle
    found = blame(search.trace_at(high), search.whole, goal, Reference(registry))
    first, trace = search.wrong_at(high), search.trace_at(high)
    partners: tuple[str, ...] | None = None
    if found.together:
        made = {rule or name for step in trace.steps for name, rule in step.changes}
        partners = partners_of(found.name, made, registry, search.is_wrong_without)
        found = replace(found, verdict=found.verdict + partners_text(found.name, partners))
    written = "" if folder is None or found.repro is None else _write(folder, found)
    return Bisection(
        "found", *ends, search.runs, total, found.pass_name, found.rule, found.match, found.node, low, high,
        first, found.verdict, _advice(found, base, low, high), written, partners or (),
    )  # fmt: skip


class _Search:
    """Runs of one model with different limits, each compared with what should come out."""

    def __init__(
        self,
        graph: Graph,
        feeds: Feeds,
        target: Target,
        base: Choices,
        whole: Whole,
        advance: Callable[[int, int, bool], object] | None,
    ) -> None:
        self.whole = whole
        self.runs = 0
        self.wrong = ""
        self._graph, self._feeds, self._target, self._base = graph, feeds, target, base
        self._advance = advance
        self._traces: dict[int, tuple[PassTrace, str]] = {}

    def all_changes(self) -> tuple[int, int]:
        """(a limit that all changes are within, how many there are)."""
        trace = self._run(None)
        total = sum(len(step.changes) for step in trace.steps if not is_required(step.applied))
        self._traces = {total: (trace, self.wrong)}
        return total, total

    def is_right(self, limit: int) -> bool:
        trace = self._run(limit)
        if self.wrong:
            self._traces = {limit: (trace, self.wrong)}  # older ones allowed more changes
        return not self.wrong

    def is_wrong_without(self, names: Sequence[str]) -> bool:
        """Whether results are wrong with rules and passes left out, however many changes there are."""
        self._run(None, replace(self._base.without(*names), limit=None))
        return bool(self.wrong)

    def trace_at(self, limit: int) -> PassTrace:
        return self._traces[limit][0]

    def wrong_at(self, limit: int) -> str:
        return self._traces[limit][1]

    def _run(self, limit: int | None, choices: Choices | None = None) -> PassTrace:
        self.runs += 1
        choices = choices or replace(self._base, limit=self._base.limit if limit is None else limit)
        registry = self._target.attempts()[0][0]
        program = compile(
            self._graph, self._target.device, choices=choices, trace=True, fallback="quiet", registry=registry
        )
        try:
            self.wrong = self.whole.compare(program.run(self._feeds)).text
        except AicoreError as error:
            self.wrong = str(error)
        except Exception as error:  # noqa: BLE001  # a backend may raise anything: then this limit is wrong
            self.wrong = error_text(error)
        if self._advance is not None:
            self._advance(self.runs, -1 if limit is None else limit, not self.wrong)
        return program.trace


def _wanted(graph: Graph, feeds: Feeds, reference: str, registry: PluginRegistry) -> Whole:
    """What should come out: by the reference kernels, or by another target that runs the model as it is."""
    try:
        whole = Whole.of(specialised(graph, feeds), feeds, Reference(registry))
    except AicoreError as error:
        raise AicoreError(f"the reference cannot run the model: {error}") from error
    if reference == REFERENCE:
        return whole
    source = Target.find(reference, registry)
    plain = compile(
        graph, source.device, optimize=False, fallback="quiet", tune="off", registry=source.attempts()[0][0]
    )
    outputs = plain.run(feeds)
    # Both sides round, each within the limit.
    return replace(whole, want=outputs, allowed={name: 2 * limit for name, limit in whole.allowed.items()})


def _advice(found: Blame, base: Choices, low: int, high: int) -> tuple[str, ...]:
    return (
        f"right with --choices {replace(base, limit=low)}, wrong with --choices {replace(base, limit=high)} "
        f"(of run and inspect)",
        f"one change was found; there may be more: leave it out and look again, with "
        f"--choices {base.without(found.name)}",
    )


def _no_change(target: Target) -> tuple[str, ...]:
    return (
        f"no rewrite is to blame, but a kernel or the program as a whole: "
        f"`aicore parity MODEL --targets {target.name} --repro FOLDER` names it",
    )


def _write(folder: Path, found: Blame) -> str:
    """The conformance kit's repro, and the same as ONNX with its inputs, as far as ONNX has its ops."""
    from aicore.testing.repro import write_repro

    assert found.repro is not None  # the caller saw to it
    write_repro(folder, found.repro)
    np.savez(folder / "inputs.npz", allow_pickle=False, **_plain(found.repro.feeds))
    try:
        from aicore.frontends.onnx import export_model

        (folder / "model.onnx").write_bytes(export_model(found.repro.graph).SerializeToString())
        note = ""
    except AicoreError as error:
        note = f"; without model.onnx: {error}"
    about = json.loads((folder / "repro.json").read_text(encoding="utf-8"))
    about["change"] = {"pass": found.pass_name, "rule": found.rule, "match": found.match, "node": found.node}
    (folder / "repro.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return f"{folder}{note}"


def _plain(feeds: Mapping[str, Array]) -> dict[str, Array]:
    from aicore.testing.storage import to_plain

    return {name: to_plain(np.asarray(array))[0] for name, array in feeds.items()}
