"""`aicore inspect`: what aicore makes of a model, and why."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from aicore.cli._inputs import Fallback, Json, ModelFile, Shapes, Target
from aicore.cli._passes import Diff, Dump, NodeName, PassChoices, check_node, show_diff, show_why_not, write_dump
from aicore.cli._report import print_json, show, size_text, table, working
from aicore.cli._sizes import Sizes
from aicore.errors import ConfigError, meant
from aicore.views import rich_part

if TYPE_CHECKING:
    from aicore.ir import Graph
    from aicore.passes import Row
    from aicore.program import Program
    from aicore.runtime import BufferPlan, Explanation

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
Moment: TypeAlias = Literal["before", "after"]
_EPILOG = """\
`aicore inspect model.onnx`  a summary

`aicore inspect model.onnx --ir after`  the optimised graph as text

`aicore inspect model.onnx --diff fuse-linear`  what that pass changed, in colours; `--dump FOLDER` writes all versions

`aicore inspect model.onnx --why-not fuse-ConvAct`  where that rule came closest, and what stopped it

`aicore inspect model.onnx --why-not fuse-ConvAct --node conv1`  what stopped it at that node

`aicore inspect model.onnx --kernels --shape x=1x3x224x224`  each node's kernel, and what else was considered
"""


@dataclass(frozen=True)
class Subject:
    """A model, and what aicore made of it.

    chosen: sizes that were taken for granted. missing: sizes without which there are no kernels and no memory plan.
    """

    file: Path
    source: Graph
    program: Program
    chosen: Sequence[str] = field(default_factory=tuple)
    missing: Sequence[str] = field(default_factory=tuple)

    @property
    def explanation(self) -> Explanation:
        return self.program.explain()

    @property
    def optimised(self) -> Graph:
        """For concrete shapes where they are known."""
        specialised = self.explanation.specialised
        return self.program.graph if specialised is None else specialised.graph

    @property
    def rows(self) -> list[Row]:
        """What each pass did: those on the whole graph, then those on the graph of concrete shapes."""
        return [row for report in self.explanation.passes for row in report.rows]


@app.command(epilog=_EPILOG)
def inspect(
    model: ModelFile,
    ir: Annotated[
        Moment | None,
        typer.Option("--ir", metavar="before|after", help="The graph as text, before or after the passes."),
    ] = None,
    passes: Annotated[bool, typer.Option("--passes", help="Each pass with its rules, matches and times.")] = False,
    kernels: Annotated[bool, typer.Option("--kernels", help="Each node's kernel, with every candidate.")] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="The plan of the memory, its peak, and what holds that.")
    ] = False,
    why_not: Annotated[
        str | None, typer.Option("--why-not", metavar="RULE", help="Where a rule came closest, and what stopped it.")
    ] = None,
    node: NodeName = None,
    diff: Diff = None,
    dump: Dump = None,
    choices: PassChoices = None,
    shapes: Shapes = None,
    target: Target = None,
    fallback: Fallback = None,
    as_json: Json = False,
) -> None:
    """Show what aicore makes of a model: its passes, where nodes run, kernels and memory.

    Kernels and memory depend on sizes. A batch that nobody gives is taken as 1; for other free dims give --shape.
    Without an option that asks for a part, a summary is shown.
    """
    from aicore.api import load  # heavy, and `--help` needs none of it

    check_node(node, why_not)
    with working(f"loading {model}", quiet=as_json):
        graph = load(model)
    if ir == "before":
        if as_json:
            print_json({"ir": str(graph)})
        else:
            print(graph)
        return
    with working(f"compiling {model}", quiet=as_json):
        options = {"choices": choices, "trace": any(asked is not None for asked in (node, diff, dump))}
        subject = _compiled(model, graph, target, fallback, shapes, kernels or memory, options)
    if ir is not None:
        _print_optimised(subject, as_json)
    elif diff is not None:
        show_diff(subject.program.trace, diff, as_json)
    elif dump is not None:
        write_dump(subject.program.trace, dump, as_json)
    elif why_not is not None and node is not None:
        show_why_not(subject.program.trace, why_not, node, as_json)
    elif why_not is not None:
        _explain_rule(subject, why_not, as_json)
    else:
        parts = [part for part, asked in ((_Passes, passes), (_Kernels, kernels), (_Memory, memory)) if asked]
        _print_parts(subject, parts or [_Summary], as_json)


def _compiled(
    file: Path,
    graph: Graph,
    target: str | None,
    fallback: str | None,
    shapes: Iterable[str] | None,
    needs_sizes: bool,
    options: Mapping[str, Any],
) -> Subject:
    from aicore.api import compile  # noqa: A004  # aicore.compile
    from aicore.config import parse_fallback

    policy = None if fallback is None else parse_fallback(fallback, "--fallback")
    sizes = Sizes(graph, shapes)
    types = {value.name: sizes.concrete(value) for value in graph.inputs}
    if needs_sizes:
        sizes.require_complete()
    program = compile(graph, target, fallback=policy, **options)
    if not sizes.open:
        program.specialise({name: tensor.static_shape for name, tensor in types.items()})
    return Subject(file, graph, program, sizes.chosen, sizes.open)


def _print_optimised(subject: Subject, as_json: bool) -> None:
    if as_json:
        chosen = {"chosen": list(subject.chosen), "missing": list(subject.missing)}
        print_json({"ir": str(subject.optimised), **chosen})
        return
    print(subject.optimised)
    for line in _about_sizes(subject):
        print(line, file=sys.stderr)  # stdout is the graph alone, which a parser reads


def _about_sizes(subject: Subject) -> Iterator[str]:
    if subject.chosen:
        yield f"chosen: {', '.join(subject.chosen)}"
    if subject.missing:
        yield f"for kernels and memory, sizes are missing: {'; '.join(subject.missing)}"


def _print_parts(subject: Subject, parts: Sequence[type[_Part]], as_json: bool) -> None:
    if as_json:
        print_json({key: value for part in parts for key, value in part.data(subject).items()})
        return
    for i, part in enumerate(parts):
        show(*([""] if i else []), *part.lines(subject))
    show(*_about_sizes(subject))


def _explain_rule(subject: Subject, name: str, as_json: bool) -> None:
    """Raises ConfigError, listing the rules, when there is none of this name."""
    rules = [rule for row in subject.rows for rule in row.rules]
    found = [rule for rule in rules if rule.name == name]
    if not found:
        raise ConfigError(_unknown_rule(name, [rule.name for rule in rules]))
    matches = sum(rule.matches for rule in found)
    reason = next((rule.why_not for rule in found if rule.why_not), "")
    if as_json:
        print_json({"rule": name, "matches": matches, "why_not": reason or None})
        return
    show(f"{name} matched {matches} {'time' if matches == 1 else 'times'}")
    show(f"nearest miss: {reason}" if reason else "every attempt matched")


def _unknown_rule(name: str, rules: Iterable[str]) -> str:
    known = sorted(set(rules))
    return f"--why-not: no rule is called {name!r}{meant(name, known)} (rules: {', '.join(known)})"


class _Part:
    """One part of the report."""

    @staticmethod
    def lines(subject: Subject) -> Iterator[Any]:
        """Texts and tables."""
        raise NotImplementedError

    @staticmethod
    def data(subject: Subject) -> dict[str, Any]:
        """The same as plain data."""
        raise NotImplementedError


class _Summary(_Part):
    @staticmethod
    def lines(subject: Subject) -> Iterator[Any]:
        graph = subject.source
        yield f"{subject.file}: {_origin(graph)}"
        yield table(["input", "type"], [(value.name, str(value.type)) for value in graph.inputs])
        yield table(["output", "type"], [(name, str(value.type)) for name, value in graph.outputs])
        count, elements, nbytes = _parameters(graph)
        yield f"{elements:,} parameters in {count} constants, {size_text(nbytes)}"
        yield ""
        yield table(["op", "before", "after"], _op_rows(subject), right=("before", "after"))
        yield ""
        yield from _pass_lines([row for row in subject.rows if row.matches or row.error or row.notes])
        yield ""
        yield subject.explanation.target
        if subject.explanation.choices:
            yield f"choices: {subject.explanation.choices}"
        if subject.explanation.specialised is not None:
            yield f"placement: {subject.explanation.placement}"
            yield from _memory_lines(subject)
            yield ""
            yield table(["nodes", "kernel", "device"], _kernel_rows(subject), right=("nodes",))

    @staticmethod
    def data(subject: Subject) -> dict[str, Any]:
        count, elements, nbytes = _parameters(subject.source)
        before, after = _op_counts(subject.source), _op_counts(subject.optimised)
        explained = subject.explanation.to_json()
        return {
            "model": str(subject.file),
            "metadata": dict(subject.source.metadata),
            "inputs": [{"name": value.name, "type": str(value.type)} for value in subject.source.inputs],
            "outputs": [{"name": name, "type": str(value.type)} for name, value in subject.source.outputs],
            "parameters": {"constants": count, "elements": elements, "bytes": nbytes},
            "nodes": {"before": dict(before), "after": dict(after)},
            "target": subject.program.device.name,
            "choices": subject.explanation.choices or None,
            "chosen": list(subject.chosen),
            "missing": list(subject.missing),
            "passes": _pass_data(subject),
            "placement": explained["placement"] if subject.explanation.specialised else None,
            "memory": explained["memory"],
            "kernels": [{"nodes": int(n), "kernel": k, "device": d} for n, k, d in _kernel_rows(subject)],
        }


class _Passes(_Part):
    @staticmethod
    def lines(subject: Subject) -> Iterator[Any]:
        yield from _pass_lines(subject.rows)
        rules = [(row.name, rule) for row in subject.rows for rule in row.rules]
        yield ""
        yield table(
            ["rule", "pass", "matches"],
            [(rule.name, name, str(rule.matches)) for name, rule in rules],
            right=("matches",),
        )
        yield "--why-not RULE shows where a rule came closest, and what stopped it"

    @staticmethod
    def data(subject: Subject) -> dict[str, Any]:
        return {"passes": _pass_data(subject)}


class _Kernels(_Part):
    @staticmethod
    def lines(subject: Subject) -> Iterator[Any]:
        for choice in subject.explanation.kernels:
            yield f"{choice.node} on {choice.device}: {choice.kernel}"
            yield from (f"    {candidate}" for candidate in choice.candidates)

    @staticmethod
    def data(subject: Subject) -> dict[str, Any]:
        return {"kernels": subject.explanation.to_json()["kernels"]}


class _Memory(_Part):
    @staticmethod
    def lines(subject: Subject) -> Iterator[Any]:
        return map(rich_part, subject.program.memory().parts())

    @staticmethod
    def data(subject: Subject) -> dict[str, Any]:
        memory = [timeline.to_json() for timeline in subject.program.memory().plans]
        for entry, plan in zip(memory, subject.program.plan, strict=False):  # bodies come last
            entry["buffers"] = [_buffer_json(buffer) for buffer in plan.buffers]
        return {"memory": memory}


def _origin(graph: Graph) -> str:
    said = graph.metadata
    names = [said[key] for key in ("graph_name", "producer_name", "producer_version") if said.get(key)]
    opsets = [f"{key.removeprefix('opset:')} opset {text}" for key, text in said.items() if key.startswith("opset:")]
    return ", ".join([*names, *opsets])


def _parameters(graph: Graph) -> tuple[int, int, int]:
    """(constants, their elements, their bytes)."""
    from aicore.ir import constants

    arrays = [value.constant.array for value in constants(graph) if value.constant is not None]
    return len(arrays), sum(array.size for array in arrays), sum(array.nbytes for array in arrays)


def _op_counts(graph: Graph) -> Counter[str]:
    """Nodes by op, those of branches and loop bodies too; what a fused op holds is one node."""
    from aicore.ir import is_fused, subgraphs

    count: Counter[str] = Counter()
    todo = [graph]
    while todo:
        for node in todo.pop().nodes:
            count[type(node.op).__name__] += 1
            if not is_fused(node.op):
                todo.extend(subgraphs(node.op).values())
    return count


def _op_rows(subject: Subject) -> Iterator[tuple[str, str, str]]:
    before, after = _op_counts(subject.source), _op_counts(subject.optimised)
    for name in sorted(before | after, key=lambda name: (-max(before[name], after[name]), name)):
        yield name, str(before[name] or ""), str(after[name] or "")
    yield "all", str(before.total()), str(after.total())


def _pass_lines(rows: Sequence[Row]) -> Iterator[Any]:
    cells = [
        (row.name, str(row.matches), f"{row.nodes_before} -> {row.nodes_after}", f"{row.ms + row.verify_ms:.1f}")
        for row in rows
    ]
    yield table(["pass", "matches", "nodes", "ms"], cells, right=("matches", "nodes", "ms"))
    for row in rows:
        yield from (f"{row.name}: {text}" for text in (row.error, *row.notes) if text)


def _pass_data(subject: Subject) -> list[dict[str, Any]]:
    return [asdict(row) for row in subject.rows]


def _memory_lines(subject: Subject) -> Iterator[str]:
    for plan in subject.program.plan:
        yield f"memory on {plan.device}: {plan.memory}"


def _kernel_rows(subject: Subject) -> list[tuple[str, str, str]]:
    """(nodes, kernel, device), most used first."""
    count = Counter((choice.kernel, choice.device) for choice in subject.explanation.kernels)
    return [(str(n), kernel, device) for (kernel, device), n in count.most_common()]


def _buffer_json(buffer: BufferPlan) -> dict[str, Any]:
    return {
        "name": buffer.name,
        "type": str(buffer.type),
        "storage": str(buffer.storage),
        "root": buffer.root,
        "bytes": buffer.nbytes,
        "offset": buffer.offset,
        "pitch": buffer.pitch,
    }
