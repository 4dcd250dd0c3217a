"""What the last change of a trace did: the node, whether it is wrong by itself, and a repro of it alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from aicore.errors import AicoreError
from aicore.experiments.bodies import Group, calls_of, groups_of, is_body
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
    together: it is right by itself, and wrong with others before it.
    """

    pass_name: str
    rule: str
    match: int
    node: str
    verdict: str
    repro: Repro | None = None
    together: bool = False

    @property
    def name(self) -> str:
        """Of the rule, else of the pass, as choices take it."""
        return self.rule or self.pass_name


@dataclass(frozen=True)
class _Change:
    """What is known of it: its pass, the graph before and after it, and the node that it made."""

    found: Blame
    step: PassStep
    before: Graph
    after: Graph
    node: Node | None

    @property
    def mark(self) -> str:
        """What the origins of nodes call it."""
        return f"{self.found.rule}#{self.found.match}"


def blame(trace: PassTrace, whole: Whole, target: Target, reference: Reference) -> Blame:
    """Look at the last change of a trace, before which the results were right and after which they are wrong."""
    return _Search(groups_of(trace), whole, target, reference).look(
        [step for step in trace.steps if step.changes and not is_required(step.applied)][-1]
    )


class _Search:
    """Looks at a change of a program whose passes ran in these groups, on the inputs that the program had."""

    def __init__(self, groups: Sequence[Group], whole: Whole, target: Target, reference: Reference) -> None:
        self._groups, self._whole, self._target, self._reference = groups, whole, target, reference

    def look(self, step: PassStep) -> Blame:
        (group,) = [group for group in self._groups if any(one is step for one in group)]
        match, rule = step.first + len(step.changes) - 1, step.changes[-1][1]
        before, after = _around(step)
        node = _made(before, after, rule, match)
        inside = ", in the body of a loop or branch" if is_body(group, self._groups) else ""
        where = f"{'the graph as a whole' if node is None else node}{inside}"
        found = Blame(step.name, rule, match, where, "")
        try:
            return self._told(_Change(found, step, before, after, node), group)
        except AicoreError as error:
            return replace(found, verdict=f"whether it is wrong by itself is not known: {error}")

    def _told(self, change: _Change, group: Group) -> Blame:
        calls = self._calls(group)
        if not calls:
            return replace(change.found, verdict="no call of that body is seen")
        judged = _first(self._judged(change, feeds) for feeds in calls)
        judged = judged or _first(self._by_kernel(change, *place) for place in self._places(change, group, calls))
        if judged is not None:
            return judged
        took_part = [] if change.node is None else [one for one in change.node.origin.rules() if one != change.mark]
        others = f" ({', '.join(took_part)} took part in its node)" if took_part else ""
        verdict = (
            "by itself the change is right: it keeps what the graph means, and its node is computed rightly. Results "
            f"are wrong only together with changes before it{others}, so no single one is to blame"
        )
        return replace(change.found, verdict=verdict, together=True)

    def _calls(self, group: Group) -> Sequence[Feeds]:
        """What the graph of a group is called with."""
        if not is_body(group, self._groups):
            return [self._whole.feeds]
        host = self._target.registry.devices()["cpu"][1]
        return calls_of(group, self._groups, self._whole.feeds, self._reference, host)

    def _places(self, change: _Change, group: Group, calls: Sequence[Feeds]) -> Iterator[tuple[Graph, Feeds]]:
        """Graphs after all passes in which the node that was made may be, with what they are called with."""
        own = group if is_body(group, self._groups) else [g for g in self._groups if not is_body(g, self._groups)][-1]
        yield from ((own[-1].after, feeds) for feeds in calls)
        for other in self._groups:
            final = other[-1].after
            marked = any(change.mark in node.origin.rules() for node in final.nodes)
            if marked and other is not own and is_body(other, self._groups):
                yield from ((final, feeds) for feeds in self._calls(other))

    def _judged(self, change: _Change, feeds: Feeds) -> Blame | None:
        """The change, if it alters what the graph means."""
        found, before, after, reference = change.found, change.before, change.after, self._reference
        changed = first_difference(before, after, feeds, lambda g, f: wide_values(g, f, reference), _CHANGED)
        if not changed:
            return None
        text = f"{found.pass_name}: {found.rule or 'change'}#{found.match} at {found.node} changes what the graph means"
        values = own_values(before, feeds, reference)
        for graph, given, verdict in (
            (*matched_part(before, after, values), "the change is wrong by itself: its nodes alone show it"),
            (before, feeds, f"the change is wrong where it stands, though not on its own nodes alone: {changed}"),
        ):
            context = pass_context(self._target, reference)
            if not graph.nodes or run_passes(graph, [change.step.applied], context)[1].errors:
                continue  # the pass cannot be asked about this part alone
            repro = pass_repro(graph, given, found.pass_name, text, self._target, reference)
            if shows(repro, self._target):
                return replace(found, verdict=verdict, repro=repro)
        return replace(found, verdict=f"the change is wrong, but only where it stands in this graph: {changed}")

    def _by_kernel(self, change: _Change, final: Graph, feeds: Feeds) -> Blame | None:
        """The change, if what became of its node is computed wrongly."""
        for one, case in node_cases(final, feeds, self._reference):
            is_its = one is change.node or change.mark in one.origin.rules()
            expected = expected_of(case, self._reference) if is_its else None
            if expected is None:
                continue
            verdict = check_case(case, self._target, expected)
            if verdict.outcome is Outcome.FAILED:
                fault = node_fault(one, case, self._target, expected, verdict)
                told = f"the change keeps what the graph means, but its node is computed wrongly: {fault.text}"
                return replace(change.found, verdict=told, repro=fault.repro)
        return None


def _first(found: Iterable[Blame | None]) -> Blame | None:
    return next((one for one in found if one is not None), None)


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
