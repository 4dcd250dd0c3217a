"""What the last change of a trace did: the node, whether it is wrong by itself, and a repro of it alone."""

from __future__ import annotations

from aicore.errors import AicoreError
from aicore.experiments.sides import Feeds
from aicore.ir import Graph, Node, VersionPrinter
from aicore.passes import PassStep, PassTrace, first_difference, run_passes
from aicore.passes.base import is_required
from aicore.records import dataclass
from aicore.testing.check import check_case, expected_of
from aicore.testing.faults import matched_part, node_fault, pass_repro
from aicore.testing.outcomes import Outcome
from aicore.testing.reference import Reference
from aicore.testing.repro import Repro, shows
from aicore.testing.targets import Target
from aicore.testing.wholes import Whole, node_cases, own_values, pass_context, wide_values

_CHANGED = 1e-6
"""Relative to the largest element: between rounding of constants that a pass folded, and a change of meaning."""


@dataclass(frozen=True)
class Blame:
    """One change.

    verdict: whether it is wrong by itself, in words. repro: what shows it alone; None where nothing does.
    """

    pass_name: str
    rule: str
    match: int
    node: str
    verdict: str
    repro: Repro | None = None


def blame(trace: PassTrace, whole: Whole, target: Target, reference: Reference) -> Blame:
    """Look at the last change of a trace, before which the results were right and after which they are wrong."""
    step = [step for step in trace.steps if step.changes and not is_required(step.applied)][-1]
    match = step.first + len(step.changes) - 1
    rule = step.changes[-1][1]
    before, after = _around(step)
    node = _made(before, after, rule, match)
    found = Blame(step.name, rule, match, "the graph as a whole" if node is None else str(node), "")
    if _names(step.before) != set(whole.feeds):
        return _told(found, "it stands in the body of a loop or branch, whose operands are not looked at")
    try:
        judged = _judged(found, step, before, after, whole, target, reference)
        final = [step.after for step in trace.steps if _names(step.after) == set(whole.feeds)][-1]
        return judged or _by_kernel(found, final, node, whole.feeds, target, reference)
    except AicoreError as error:
        return _told(found, f"whether it is wrong by itself is not known: {error}")


def _judged(
    found: Blame, step: PassStep, before: Graph, after: Graph, whole: Whole, target: Target, reference: Reference
) -> Blame | None:
    """The change, if it alters what the graph means."""
    changed = first_difference(before, after, whole.feeds, lambda g, f: wide_values(g, f, reference), _CHANGED)
    if not changed:
        return None
    text = f"{found.pass_name}: {found.rule or 'change'}#{found.match} at {found.node} changes what the graph means"
    feeds = own_values(before, whole.feeds, reference)
    for graph, given, verdict in (
        (*matched_part(before, after, feeds), "the change is wrong by itself: its nodes alone show it"),
        (before, whole.feeds, f"the change is wrong where it stands, though not on its own nodes alone: {changed}"),
    ):
        if not graph.nodes or run_passes(graph, [step.applied], pass_context(target, reference))[1].errors:
            continue  # the pass cannot be asked about this part alone
        repro = pass_repro(graph, given, found.pass_name, text, target, reference)
        if shows(repro, target):
            return _told(found, verdict, repro)
    return _told(found, f"the change is wrong, but only where it stands in this graph: {changed}")


def _by_kernel(
    found: Blame, final: Graph, node: Node | None, feeds: Feeds, target: Target, reference: Reference
) -> Blame:
    """Whether what became of the node is computed wrongly."""
    mark = f"{found.rule}#{found.match}"
    for one, case in node_cases(final, feeds, reference):
        expected = expected_of(case, reference) if one is node or mark in one.origin.rules() else None
        if expected is None:
            continue
        verdict = check_case(case, target, expected)
        if verdict.outcome is Outcome.FAILED:
            fault = node_fault(one, case, target, expected, verdict)
            told = f"the change keeps what the graph means, but its node is computed wrongly: {fault.text}"
            return _told(found, told, fault.repro)
    took_part = [] if node is None else [text for text in node.origin.rules() if text != mark]
    others = f" ({', '.join(took_part)} took part in its node)" if took_part else ""
    return _told(
        found,
        "by itself the change is right: it keeps what the graph means, and its node is computed rightly. Results are "
        f"wrong only together with changes before it{others}, so no single one is to blame",
    )


def _told(found: Blame, verdict: str, repro: Repro | None = None) -> Blame:
    return Blame(found.pass_name, found.rule, found.match, found.node, verdict, repro)


def _names(graph: Graph) -> set[str]:
    return {value.name for value in graph.inputs}


def _around(step: PassStep) -> tuple[Graph, Graph]:
    """The graph before the last change of the pass, and after it.

    If going on from the one makes the same change, both share all other nodes, and a repro is as small as can be.
    """
    last = len(step.changes) - 1
    before, _ = _replayed(step, step.before, 0, last)
    after, made = _replayed(step, before, last, 1)
    whole, _ = _replayed(step, step.before, 0, last + 1)
    same = made == list(step.changes[-1:]) and VersionPrinter().text(after) == VersionPrinter().text(whole)
    return before, after if same else whole


def _replayed(step: PassStep, graph: Graph, done: int, changes: int) -> tuple[Graph, list[tuple[str, str]]]:
    """What the pass makes of a graph by so many changes, and which; `done` were made before."""
    first = step.first + done
    ctx = step.told.anew(budget=changes, matches=first, changes=[("", "")] * first)
    return run_passes(graph, [step.applied], ctx)[0], ctx.changes[first:]


def _made(before: Graph, after: Graph, rule: str, match: int) -> Node | None:
    """The node that the change made: by its origin, else the last one that is new, else the first that is gone."""
    known = set(before.nodes)
    fresh = [node for node in after.nodes if node not in known]
    own = [node for node in fresh if (node.origin.rule, node.origin.match) == (rule, match)]
    kept = set(after.nodes)
    gone = [node for node in before.nodes if node not in kept]
    choice = own[-1:] or fresh[-1:] or gone[:1]
    return choice[0] if choice else None
