"""Runs passes, each as a transaction: apply, verify, compare if asked, then commit or roll back and say why."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from aicore.errors import AicoreError, GraphError, error_text
from aicore.ir import Graph, Node, is_fused, subgraphs, verify
from aicore.ir.op import may_hold_graph
from aicore.passes.base import Pass, RulePass, is_required
from aicore.records import dataclass
from aicore.rewrite import Context

if TYPE_CHECKING:
    from aicore.passes.trace import Recorder

Check: TypeAlias = Callable[[Graph, Graph], str]
"""(graph before, graph after) -> what differs, or an empty text."""


@dataclass(frozen=True)
class RuleRow:
    """What one rule of a pass did.

    why_not: the attempt that got furthest and why it stopped, or what the graph lacks; empty when none failed.
    """

    name: str
    matches: int
    why_not: str = ""


@dataclass(frozen=True)
class Row:
    """What one pass did.

    matches: changes made and kept.
    ms: milliseconds in the pass; `verify_ms` in checking its result.
    nodes_before, nodes_after: nodes of the graph and its sub-graphs.
    error: why it was rolled back, naming the last match before it failed; empty when it was not.
    notes: work that it left out, and why.
    rules: one row for each of its rules; empty for a pass that is no list of rules.
    """

    name: str
    matches: int
    ms: float
    verify_ms: float
    nodes_before: int
    nodes_after: int
    error: str = ""
    notes: tuple[str, ...] = ()
    rules: tuple[RuleRow, ...] = ()


@dataclass(frozen=True)
class Report:
    """One row for each pass, in the order in which they ran."""

    rows: tuple[Row, ...]

    @property
    def errors(self) -> list[str]:
        """Why passes were rolled back."""
        return [row.error for row in self.rows if row.error]

    @property
    def ms(self) -> float:
        return sum(row.ms + row.verify_ms for row in self.rows)

    def __str__(self) -> str:
        lines = [f"{'pass':24} {'matches':>8} {'nodes':>13} {'ms':>9}"]
        for row in self.rows:
            nodes = f"{row.nodes_before} -> {row.nodes_after}"
            lines.append(f"{row.name:24} {row.matches:8} {nodes:>13} {row.ms + row.verify_ms:9.1f}")
            lines += [f"  {text}" for text in (row.error, *row.notes) if text]
        return "\n".join(lines)


def run_passes(
    graph: Graph,
    passes: Iterable[Pass],
    ctx: Context | None = None,
    *,
    check: Check | None = None,
    recorder: Recorder | None = None,
) -> tuple[Graph, Report]:
    """The graph after the passes, in the order given, and what each did; sub-graphs of control flow first.

    A pass that raises, breaks the graph, or gives other numbers is rolled back: the graph stays what it was before it.
    check: compares numbers; see `numeric_check`.
    recorder: is shown each version of the graph.
    """
    ctx = ctx or Context()
    rows = []
    for one in passes:
        before, first = graph, ctx.matches
        graph, row = _transaction(graph, one, ctx, check)
        rows.append(row)
        if recorder is not None:
            recorder.add(one, row, (before, graph), first, ctx)
    ctx.current_pass, ctx.required = "", False
    return graph, Report(tuple(rows))


def _transaction(graph: Graph, one: Pass, ctx: Context, check: Check | None) -> tuple[Graph, Row]:
    first, nodes_before = ctx.matches, _count_nodes(graph)
    ctx.current_pass, ctx.required, ctx.notes = one.name, is_required(one), []
    start = done = time.perf_counter()
    error = ""
    new = graph
    try:
        new = _apply_inside(one, graph, ctx)
        done = time.perf_counter()
        _accept(graph, new, check)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as failure:  # noqa: BLE001  # a pass may be a plugin's: whatever it raises, the old graph is right
        done = max(done, start)
        new, error = graph, _describe(one, failure, first, ctx)
        ctx.undo_to(first)
    row = Row(
        name=one.name,
        matches=ctx.matches - first,
        ms=(done - start) * 1e3,
        verify_ms=(time.perf_counter() - done) * 1e3,
        nodes_before=nodes_before,
        nodes_after=_count_nodes(new),
        error=error,
        notes=tuple(ctx.notes),
        rules=_rule_rows(one, ctx, first),
    )
    return new, row


def _rule_rows(one: Pass, ctx: Context, first: int) -> tuple[RuleRow, ...]:
    matches = Counter(rule for _, rule in ctx.changes[first:])
    names = [rule.name for rule in one.rules] if isinstance(one, RulePass) else []
    return tuple(RuleRow(name, matches[name], _why_not(name, matches[name], ctx)) for name in names)


def _why_not(rule: str, matches: int, ctx: Context) -> str:
    if matches and rule not in ctx.misses:
        return ""
    return ctx.why_not(rule).removeprefix(f"{rule}: ")


def _describe(one: Pass, failure: BaseException, first: int, ctx: Context) -> str:
    last = f"match {ctx.matches - 1}" if ctx.matches > first else "its first match"
    text = str(failure) if isinstance(failure, AicoreError) else error_text(failure)
    notes = "".join(f" ({note})" for note in getattr(failure, "__notes__", ()))
    return f"{one.name} rolled back after {last}: {text}{notes}"


def _accept(old: Graph, new: Graph, check: Check | None) -> None:
    """Raise GraphError unless the new graph may take the old one's place."""
    if new is old:
        return
    _check_interface(old, new)
    verify(new, old)
    if check is not None and (difference := check(old, new)):
        raise GraphError(difference)


def _check_interface(old: Graph, new: Graph) -> None:
    if [(v.name, v.type) for v in new.inputs] != [(v.name, v.type) for v in old.inputs]:
        raise GraphError("the inputs are not what they were")
    if [name for name, _ in new.outputs] != [name for name, _ in old.outputs] or new.state != old.state:
        raise GraphError("the outputs are not what they were")
    for (name, before), (_, after) in zip(old.outputs, new.outputs, strict=True):
        if not after.type.agrees(before.type):
            raise GraphError(f"output {name!r} was {before.type} and is now {after.type}")


def _count_nodes(graph: Graph) -> int:
    count, todo = 0, [graph]
    while todo:
        current = todo.pop()
        count += len(current.nodes)
        todo.extend(inner for _, held in _holders(current) for inner in held.values())
    return count


def _held(node: Node) -> dict[str, Graph]:
    """Sub-graphs to work in: those of control flow. The body of a fused op is its kernel's business."""
    return {} if is_fused(node.op) else subgraphs(node.op)


def _holders(graph: Graph) -> list[tuple[Node, dict[str, Graph]]]:
    """Nodes with sub-graphs. An op class may hold some or none, so most graphs cost one look for each class."""
    kinds = set(filter(may_hold_graph, graph.kinds))
    if not kinds:
        return []
    return [(node, held) for node in graph.nodes if type(node.op) in kinds and (held := _held(node))]


def _apply_inside(one: Pass, graph: Graph, ctx: Context) -> Graph:
    """Apply to sub-graphs before what holds them, innermost first, with a stack of its own."""
    done: dict[int, Graph] = {}
    todo = [(graph, False)]
    while todo:
        current, ready = todo.pop()
        holders = _holders(current)
        if holders and not ready:
            todo.append((current, True))
            todo.extend((inner, False) for _, held in holders for inner in held.values())
            continue
        before = _with_inner(current, holders, done)
        done[id(current)] = one.apply(before, ctx)
        if current is not graph:  # here an error can still name the node inside
            _accept(before, done[id(current)], None)
    return done[id(graph)]


def _with_inner(graph: Graph, holders: list[tuple[Node, dict[str, Graph]]], done: dict[int, Graph]) -> Graph:
    """The graph with its sub-graphs exchanged for what the pass made of them."""
    changed = {
        node: replace(node, op=replace(node.op, **{name: done[id(inner)] for name, inner in held.items()}))  # type: ignore[type-var]
        for node, held in holders
        if any(done[id(inner)] is not inner for inner in held.values())
    }
    if not changed:
        return graph
    return replace(graph, nodes=tuple(changed.get(node, node) for node in graph.nodes))
