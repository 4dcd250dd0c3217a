"""When a whole graph is wrong on a target: the node, or the pass and match, to blame, and a repro of it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from aicore.ir import Builder, Graph, Node, Value, as_tuple
from aicore.numerics.expected import Expected
from aicore.passes import Culprit, Pass, bisect, close, default_passes, run_passes, specialise_passes
from aicore.plugins import PluginRegistry, plugin_registry
from aicore.runtime import type_of
from aicore.testing.cases import Case
from aicore.testing.check import check_case, expected_of
from aicore.testing.outcomes import Outcome, Verdict
from aicore.testing.reference import Reference
from aicore.testing.repro import Repro, case_repro, shows, write_repro
from aicore.testing.targets import Target
from aicore.testing.wholes import (
    Whole,
    check_whole,
    node_cases,
    own_values,
    pass_context,
    specialised,
    wide_outputs,
    wide_values,
)

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
_CHANGED = 1e-6
"""Relative to the largest element: between rounding of constants that a pass folded, and a change of meaning."""


@dataclass(frozen=True)
class Fault:
    """What is to blame.

    kind: `kernel`, `pass` or `program`.
    node: the node at fault, or the first one that a pass made wrong.
    culprit: pass, rule and match, for a pass.
    text: one line for people.
    repro: what shows it alone.
    """

    kind: str
    node: Node | None
    culprit: Culprit | None
    text: str
    repro: Repro


def check_model(
    graph: Graph,
    target: str | Target,
    feeds: Feeds,
    *,
    reference: Reference | None = None,
    repros: Path | None = None,
    registry: PluginRegistry | None = None,
) -> tuple[Verdict, Fault | None]:
    """How a model ends on a target, and what is to blame if it is wrong.

    feeds: an array for each input. repros: a folder for a repro of the fault; None writes nothing.
    Raises PluginError when the target cannot be used, AicoreError where a node has no reference kernel.
    """
    registry = plugin_registry() if registry is None else registry
    target = Target.find(target, registry) if isinstance(target, str) else target
    reference = reference or Reference(target.registry)
    whole = Whole.of(graph, feeds, reference)
    verdict = check_whole(whole, target)
    if verdict.outcome is not Outcome.FAILED:
        return verdict, None
    fault = find_fault(whole, target, reference, verdict.reason)
    if repros is not None:
        write_repro(repros, fault.repro)
    return verdict, fault


def find_fault(whole: Whole, target: Target, reference: Reference, reason: str) -> Fault:
    """What is to blame for a graph that is wrong on the target.

    Nodes come first, as they are after all passes, each by itself: a kernel is wrong. Then the passes: the first match
    that changes what the graph means. Else it is the program as a whole, such as its memory.
    """
    fault = _in_nodes(whole, target, reference) or _in_passes(whole, target, reference)
    if fault is not None:
        return fault
    apart = check_whole(whole, target, reuse_memory=False).outcome is not Outcome.FAILED
    where = "it is right with reuse_memory=False, so buffers overlap" if apart else "each node and each pass is right"
    text = f"the program as a whole: {reason} ({where})"
    repro = Repro("program", whole.graph, target.name, text, whole.feeds, whole.want, whole.allowed)
    return Fault("program", None, None, text, repro)


def _in_nodes(whole: Whole, target: Target, reference: Reference) -> Fault | None:
    """The first node, as it is after all passes, that the target computes wrongly by itself."""
    for node, case in node_cases(_optimised(whole, target, reference), whole.feeds, reference):
        expected = expected_of(case, reference)
        if expected is None:
            continue
        verdict = check_case(case, target, expected)
        if verdict.outcome is Outcome.FAILED:
            return node_fault(node, case, target, expected, verdict)
    return None


def node_fault(node: Node, case: Case, target: Target, expected: Expected, verdict: Verdict) -> Fault:
    """A node that the target computes wrongly by itself."""
    kernels = ", ".join(verdict.kernels) or "no kernel"
    text = f"{node}{_made_by(node)}: {kernels} on {target.device}: {verdict.reason}"
    return Fault("kernel", node, None, text, replace(case_repro(case, target, expected, verdict), text=text))


def _in_passes(whole: Whole, target: Target, reference: Reference) -> Fault | None:
    """The first match after which the references compute other outputs."""
    graph = whole.graph
    for passes in (default_passes(target.registry.passes), specialise_passes()):
        culprit = bisect(
            graph, passes, partial(_means_the_same, whole, reference), partial(pass_context, target, reference)
        )
        if culprit.match >= 0:
            return _pass_fault(whole, graph, passes, culprit, target, reference)
        # These are right; the next ones see what they leave, for the sizes of these inputs.
        graph = specialised(run_passes(graph, passes, pass_context(target, reference))[0], whole.feeds)
    return None


def _pass_fault(
    whole: Whole, graph: Graph, passes: Sequence[Pass], culprit: Culprit, target: Target, reference: Reference
) -> Fault:
    before, after = (_after(graph, passes, culprit.before + more, target, reference) for more in (0, 1))
    node = _first_changed(before, after, whole.feeds, reference)
    where = f" at {node}" if node is not None else ""
    text = f"{culprit.pass_name}: {culprit.rule or 'change'}#{culprit.match}{where} changes what the graph means"
    feeds = own_values(before, whole.feeds, reference)
    for candidate in (matched_part(before, after, feeds), (before, whole.feeds)):
        repro = pass_repro(*candidate, culprit.pass_name, text, target, reference)
        if shows(repro, target):
            break
    return Fault("pass", node, culprit, text, repro)


def pass_repro(graph: Graph, feeds: Feeds, pass_name: str, text: str, target: Target, reference: Reference) -> Repro:
    whole = Whole.of(graph, feeds, reference)
    return Repro("pass", graph, target.name, text, feeds, whole.want, whole.allowed, pass_name=pass_name)


def matched_part(before: Graph, after: Graph, known: Mapping[Value, Array]) -> tuple[Graph, Feeds]:
    """The nodes that the match took away, as a graph of their own, and arrays for what they read."""
    kept = set(after.nodes)
    gone = [node for node in before.nodes if node not in kept]
    made = {value for node in gone for value in node.outputs}
    read = dict.fromkeys(v for n in gone for v in n.inputs if v is not None and v.constant is None and v not in made)
    used = {v for node in before.nodes if node in kept for v in node.inputs} | {v for _, v in before.outputs}
    names = dict(zip(read, _unique([value.name for value in read]), strict=True))
    given = {value: Value(names[value], type_of(known[value]), None, value.dims) for value in read}
    builder = Builder()
    env: dict[Value | None, Value] = {old: new for old, new in given.items()}  # noqa: C416  # a wider key type
    for node in gone:
        operands = [value if value is None else env.get(value, value) for value in node.inputs]
        results = builder.apply(node.op, *operands, names=[v.name for v in node.outputs], origin=node.origin)
        env.update(zip(node.outputs, as_tuple(results), strict=True))
    outputs = {f"y{i}": env[value] for i, value in enumerate(v for n in gone for v in n.outputs if v in used)}
    feeds = {given[value].name: known[value] for value in read}
    return builder.graph(list(given.values()), outputs), feeds


def _unique(names: Sequence[str]) -> list[str]:
    """The names, numbered where one stands twice."""
    found: list[str] = []
    for name in names:
        found.append(name if name not in found else next(n for i in count() if (n := f"{name}_{i}") not in found))
    return found


def _after(graph: Graph, passes: Sequence[Pass], budget: int, target: Target, reference: Reference) -> Graph:
    """The graph after that many changes."""
    ctx = pass_context(target, reference)
    ctx.budget = budget
    return run_passes(graph, passes, ctx)[0]


def _first_changed(before: Graph, after: Graph, feeds: Feeds, reference: Reference) -> Node | None:
    """The first node of `after` that gives a value of `before` other numbers."""
    old, new = wide_values(before, feeds, reference), wide_values(after, feeds, reference)
    for node in after.nodes:
        for value in node.outputs:
            if value in old and not close(old[value], new[value], _CHANGED):
                return node
    return None


def _means_the_same(whole: Whole, reference: Reference, graph: Graph) -> bool:
    return whole.compare(wide_outputs(graph, whole.feeds, reference)).is_right


def _optimised(whole: Whole, target: Target, reference: Reference) -> Graph:
    """The graph as a compilation for the target leaves it."""
    graph = whole.graph
    for passes in (default_passes(target.registry.passes), specialise_passes()):
        graph = run_passes(specialised(graph, whole.feeds), passes, pass_context(target, reference))[0]
    return graph


def _made_by(node: Node) -> str:
    rules = node.origin.rules()
    return f" (made by {', '.join(rules)})" if rules else ""
