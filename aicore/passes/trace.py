"""Every version of a graph on its way through the passes, as text, and what each pass changed in it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import asdict, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from aicore.errors import ConfigError, GraphError, meant
from aicore.ir import Graph, VersionPrinter
from aicore.passes.base import Pass
from aicore.passes.choices import options_text
from aicore.passes.manager import Row
from aicore.records import dataclass
from aicore.rewrite import Context
from aicore.views import View

Stage: TypeAlias = Literal["whole", "sized"]
"""`whole`: once for each program, sizes may be open. `sized`: once for each set of input shapes."""
Mark: TypeAlias = Literal[" ", "+", "-", "@"]
_CONTEXT = 2
_STYLES = {"+": "green", "-": "red", "@": "cyan", " ": "dim"}


@dataclass(frozen=True)
class DiffLine:
    """mark: `+` for a line that is new, `-` for one that is gone, ` ` around them, `@` where lines are left out."""

    mark: Mark
    text: str


@dataclass(frozen=True)
class GraphDiff(View):
    """What changed from one version of a graph to the next, line by line of their texts."""

    title: str
    lines: tuple[DiffLine, ...]

    @property
    def added(self) -> int:
        return sum(line.mark == "+" for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.mark == "-" for line in self.lines)

    def __str__(self) -> str:
        heading = f"{self.title}: {self.removed} lines gone, {self.added} new" if self.lines else f"{self.title}: none"
        return "\n".join([heading, *(f"{line.mark}{line.text}" for line in self.lines)])

    def __rich__(self) -> Any:
        from rich.text import Text

        shown = Text()
        for line, text in zip((None, *self.lines), str(self).split("\n"), strict=True):
            shown.append(f"{text}\n", "bold" if line is None else _STYLES[line.mark])
        shown.right_crop(1)
        return shown

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "added": self.added,
            "removed": self.removed,
            "lines": [[line.mark, line.text] for line in self.lines],
        }


@dataclass(frozen=True)
class PassStep:
    """One pass on one graph.

    number: among the steps of a trace, from 1.
    applied: the pass, with its options. told: a context as it had one, for asking it again.
    row: matches, times, notes, and why rules did not match.
    changes: pass and rule of each change, required ones too; the first one has the number `first`.
    before, after: the graph; the same one when nothing changed.
    before_text, text: both as text; a value has one name in all steps of a stage.
    """

    number: int
    applied: Pass
    stage: Stage
    row: Row
    first: int
    changes: tuple[tuple[str, str], ...]
    before: Graph = field(repr=False)
    after: Graph = field(repr=False)
    before_text: str = field(repr=False)
    text: str = field(repr=False)
    told: Context = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.applied.name

    @property
    def options(self) -> str:
        """`largest=64`."""
        return options_text(self.applied)

    @property
    def changed(self) -> bool:
        return self.after is not self.before

    @cached_property
    def diff(self) -> GraphDiff:
        title = f"{self.number}. {self.name}"
        return GraphDiff(title, tuple(_diff_lines(self.before_text, self.text)) if self.changed else ())

    @property
    def title(self) -> str:
        """`3. fuse-pointwise (largest=64)`."""
        return f"{self.number}. {self.name}{f' ({self.options})' if self.options else ''}"

    def __str__(self) -> str:
        return f"{self.title}, {self.row.matches} changes\n{self.text}"

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "name": self.name,
            "stage": self.stage,
            "options": self.options,
            "row": asdict(self.row),
            "diff": self.diff.to_json(),
        }


@dataclass(frozen=True)
class PassTrace(View):
    """The passes of a program, in the order in which they ran: those on the whole graph, then those for known sizes.

    The passes for known sizes appear once for each set of input shapes, and for each body of a loop or branch.
    """

    steps: tuple[PassStep, ...]

    def named(self, name: str) -> list[PassStep]:
        """The steps of a pass. Raises ConfigError, listing the passes, when there is none."""
        found = [step for step in self.steps if step.name == name]
        if not found:
            known = list(dict.fromkeys(step.name for step in self.steps))
            hint = meant(name, known) or f"; there are: {', '.join(known)}"
            raise ConfigError(f"no pass that ran is called {name!r}{hint}")
        return found

    def step(self, name: str) -> PassStep:
        """The first step of a pass that changed something, else its first. Raises ConfigError as `named` does."""
        found = self.named(name)
        return next((step for step in found if step.changed), found[0])

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Pass and rule of each change, by its number."""
        return [change for step in self.steps for change in step.changes]

    def files(self) -> dict[str, str]:
        """Text of the graph by name of a file, numbered: the source, and what each pass that changed it left."""
        starts = {step.stage: step for step in reversed(self.steps)}
        found = {f"00-{stage}-source.txt": step.before_text for stage, step in starts.items()}
        for step in self.steps:
            if step.changed:
                found[f"{step.number:02}-{step.stage}-{step.name}.txt"] = f"# {step.title}\n{step.text}"
        return found

    def __str__(self) -> str:
        return "\n".join(_line(step) for step in self.steps)

    def __rich__(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table("", "pass", "stage", "changes", "nodes", "ms", box=None, pad_edge=False)
        for step in self.steps:
            cells = (f"{step.number}.", step.name, step.stage, str(step.row.matches), _nodes(step.row), _ms(step.row))
            table.add_row(*map(Text, cells), style="" if step.changed else "dim")
        return table

    def to_json(self) -> dict[str, Any]:
        return {"steps": [step.to_json() for step in self.steps]}


class Recorder:
    """Collects the steps of a trace while passes run."""

    def __init__(self) -> None:
        self.steps: list[PassStep] = []
        self._stage: Stage = "whole"
        self._printer = VersionPrinter()
        self._latest: tuple[Graph | None, str] = (None, "")

    def begin(self, stage: Stage) -> None:
        """Values of the graphs that follow are named anew."""
        self._stage = stage
        self._printer = VersionPrinter()

    def add(self, one: Pass, row: Row, graphs: tuple[Graph, Graph], first: int, ctx: Context) -> None:
        """graphs: before and after the pass. first: the number of its first change."""
        before, after = graphs
        number, changes, texts = (
            len(self.steps) + 1,
            tuple(ctx.changes[first:]),
            (self._text(before), self._text(after)),
        )
        step = PassStep(number, one, self._stage, row, first, changes, before, after, *texts, ctx.anew())
        self.steps.append(step)

    @property
    def trace(self) -> PassTrace:
        return PassTrace(tuple(self.steps))

    def _text(self, graph: Graph) -> str:
        if self._latest[0] is not graph:
            try:
                self._latest = graph, self._printer.text(graph)
            except GraphError as error:  # an op of a plugin may hold what text cannot
                self._latest = graph, f"this version cannot be written as text: {error}"
        return self._latest[1]


def _line(step: PassStep) -> str:
    return f"{step.title:50} {step.stage:6} {step.row.matches:6} {_nodes(step.row):>13} {_ms(step.row):>8} ms"


def _nodes(row: Row) -> str:
    return f"{row.nodes_before} -> {row.nodes_after}"


def _ms(row: Row) -> str:
    return f"{row.ms + row.verify_ms:.1f}"


def _diff_lines(before: str, after: str) -> Iterator[DiffLine]:
    old, new = before.split("\n"), after.split("\n")
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT)
    for group in groups:
        yield DiffLine("@", f" line {group[0][3] + 1} ")
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (DiffLine(" ", text) for text in old[i:j])
                continue
            yield from (DiffLine("-", text) for text in old[i:j])
            yield from (DiffLine("+", text) for text in new[k:m])
