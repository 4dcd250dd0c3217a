"""Why a rule did not match at a node: asked of the matcher itself, at the version of the graph that the rule saw."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Any

from aicore.errors import ConfigError
from aicore.ir import Graph, Node, Op, is_fused, subgraphs
from aicore.passes.base import RulePass
from aicore.passes.trace import PassStep, PassTrace
from aicore.records import dataclass
from aicore.rewrite import NearMiss, Rule, try_at
from aicore.rewrite.matcher import KINDS
from aicore.rewrite.pattern import Call, calls_of, pattern_text
from aicore.views import View

_MOST_NAMED = 20
"""Names that are listed where none is like the one that was asked for."""
_FATES = {
    "matched": "it did match",
    "gone": "the node was replaced before the rule ran",
    "folded": "it is computed from constants alone, and folding makes it one",
    "root": "no op is near it with which the pattern ends",
    "left out": "it would match, but the rule is left out, or changes are limited",
    "noted": "what the pass says of it",
}


@dataclass(frozen=True)
class WhyNot(View):
    """The attempt of a rule that got furthest at or around a node.

    kind: what failed: one of `aicore.rewrite.matcher.KINDS`, or `matched`, `gone`, `folded`, `root`, `left out`; or
        `noted` of a pass without rules, whose notes are the reason.
    reason: in words, naming nodes and values.
    root: the node where the pattern would have ended. score: how many ops of it matched.
    pattern: as its author wrote it, with the part that failed between arrows.
    """

    rule: str
    node: str
    pass_name: str
    kind: str
    reason: str
    root: str = ""
    score: int = 0
    pattern: str = ""

    @property
    def matched(self) -> bool:
        return self.kind == "matched"

    def __str__(self) -> str:
        lines = [f"{self.rule} at {self.node}, in pass {self.pass_name}: {({**KINDS, **_FATES})[self.kind]}"]
        lines.append(f"  {self.kind}: {self.reason}")
        if self.root:
            lines.append(f"  {self.score} {'op' if self.score == 1 else 'ops'} matched at {self.root}")
        if self.pattern:
            lines.append(f"  pattern: {self.pattern}")
        return "\n".join(lines)

    def __rich__(self) -> Any:
        from rich.text import Text

        shown = Text(str(self))
        shown.highlight_regex(r"^.*", "bold green" if self.matched else "bold yellow")
        shown.highlight_regex("»[^«]*«", "bold red")
        return shown

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule, "node": self.node, "pass": self.pass_name, "kind": self.kind, "reason": self.reason,
            "root": self.root or None, "matched_ops": self.score, "pattern": self.pattern or None,
        }  # fmt: skip


def why_not(trace: PassTrace, rule_name: str, node_name: str) -> WhyNot:
    """Why the rule did not match at the node.

    rule_name: also that of a pass without rules, which says what it noted about the node.
    node_name: of one of its results, with or without `%`, or of the node in the source file.
    Raises ConfigError, with what may have been meant, when there is no such rule or node.
    """
    found = [(step, rule) for step in trace.steps for rule in _rules(step) if rule.name == rule_name]
    if not found and (noted := [step for step in trace.steps if step.name == rule_name and step.row.notes]):
        return _noted(noted[0], node_name.removeprefix("%"))
    if not found:
        known = {rule.name for step in trace.steps for rule in _rules(step)}
        raise ConfigError(f"no rule is called {rule_name!r}{_meant(rule_name, known)}")
    name = node_name.removeprefix("%")
    for step, rule in found:
        here = _named(step.after, name)
        if here:
            return _asked(rule, step, here)
    return _fate(trace, *found[0], name)


def _noted(step: PassStep, name: str) -> WhyNot:
    here = _named(step.before, name)
    if not here:
        known = {name for graph in _graphs(step.before) for node in graph.nodes for name in _names(node)}
        raise ConfigError(f"no node is called {name!r}{_meant(name, known)}")
    node = here[0][1]
    notes = [note for note in step.row.notes if note.startswith(f"{node} ")]
    return WhyNot(step.name, str(node), step.name, "noted", "; ".join(notes) or "nothing")


def _rules(step: PassStep) -> tuple[Rule, ...]:
    return step.applied.rules if isinstance(step.applied, RulePass) else ()


def _fate(trace: PassTrace, step: PassStep, rule: Rule, name: str) -> WhyNot:
    """Of a node that the rule's pass did not leave."""
    gone = [other for other in trace.steps if _named(other.before, name) and not _named(other.after, name)]
    if not gone:
        known = {name for graph in _graphs(trace.steps[0].before) for node in graph.nodes for name in _names(node)}
        raise ConfigError(f"no node is called {name!r}{_meant(name, known)}")
    last = gone[0]
    graph, node = _named(last.before, name)[0]
    by = sorted({text for heir in _heirs(graph, node, last.after) for text in heir.origin.rules()})
    told = f"; what stands for it was made by {', '.join(by)}" if by else ""
    kind = "matched" if last.name == step.name and any(text.startswith(f"{rule.name}#") for text in by) else "gone"
    return WhyNot(rule.name, str(node), step.name, kind, f"pass {last.name} took it away{told}")


def _heirs(graph: Graph, node: Node, after: Graph) -> list[Node]:
    """Nodes of a later version that compute the first values which depended on the node and are still there."""
    makers = {value: maker for inner in _graphs(after) for maker in inner.nodes for value in maker.outputs}
    level = set(node.outputs)
    seen: set[Node] = {node}
    while level and not any(value in makers for value in level):
        readers = [n for n in graph.nodes if n not in seen and any(v in level for v in n.inputs)]
        seen.update(readers)
        level = {value for reader in readers for value in reader.outputs}
    return [makers[value] for value in level if value in makers]


def _asked(rule: Rule, step: PassStep, here: list[tuple[Graph, Node]]) -> WhyNot:
    graph, node = here[0]
    ours = f"{rule.name}#"
    made = [text for text in node.origin.rules() if text.startswith(ours)]
    if made:
        return WhyNot(rule.name, str(node), step.name, "matched", f"the node was made by {', '.join(made)}")
    if node.outputs[0].fixed:
        return WhyNot(rule.name, str(node), step.name, "folded", f"{node} reads nothing but constants")
    best: NearMiss | None = None
    roots = [(inner, root) for inner, one in here for root in _roots(rule, inner, one)]
    for graph, root in roots:
        trial = try_at(rule, graph, root, step.told)
        if trial.refused:
            return WhyNot(rule.name, str(node), step.name, "left out", "all of it matches", str(root))
        miss = trial.misses.get(rule.name)
        if miss is not None and (best is None or miss.score > best.score):
            best = miss
    if best is None:
        wanted = " or ".join(sorted({str(outputs[0].call.op) for outputs in rule.patterns}))
        reason = f"the pattern ends with {wanted}, which neither the node is nor what reads it"
        return WhyNot(rule.name, str(node), step.name, "root", reason, pattern=pattern_text(rule.patterns[0]))
    text = _pattern(rule, best)
    return WhyNot(rule.name, str(node), step.name, best.kind or "guard", best.why, str(best.root), best.score, text)


def _pattern(rule: Rule, miss: NearMiss) -> str:
    """The variant of the pattern that has the part which failed, or the first one that ends in the root's op."""
    for outputs in rule.patterns:
        text = pattern_text(outputs, miss.part)
        if "»" in text:
            return text
    fitting = [outputs for outputs in rule.patterns if isinstance(miss.root.op, outputs[0].call.op.classes)]
    return pattern_text((fitting or list(rule.patterns))[0])


def _roots(rule: Rule, graph: Graph, node: Node) -> Iterator[Node]:
    """The node, and those that read it within the depth of the pattern, if the pattern may end there."""
    ends: tuple[type[Op], ...] = tuple(cls for outputs in rule.patterns for cls in outputs[0].call.op.classes)
    wanted: tuple[type[Op], ...] = tuple(cls for o in rule.patterns for call in calls_of(o) for cls in _classes(call))
    depth = max(sum(1 for _ in calls_of(outputs)) for outputs in rule.patterns)
    level, seen = [node], {node}
    for _ in range(depth):
        yield from (found for found in level if isinstance(found.op, ends))
        made = {value for found in level if isinstance(found.op, wanted) for value in found.outputs}
        level = [n for n in graph.nodes if n not in seen and any(v in made for v in n.inputs)]
        seen.update(level)


def _classes(call: Call) -> tuple[type[Op], ...]:
    return call.op.classes


def _named(graph: Graph, name: str) -> list[tuple[Graph, Node]]:
    """Nodes of this name, with the graph that holds them: by a result, else by what the source file calls them."""
    nodes = [(inner, node) for inner in _graphs(graph) for node in inner.nodes]
    exact = [(inner, node) for inner, node in nodes if any(value.name == name for value in node.outputs)]
    return exact or [(inner, node) for inner, node in nodes if name in node.origin.names()]


def _names(node: Node) -> list[str]:
    return [*(value.name for value in node.outputs), *node.origin.names()]


def _graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and those of control flow in it, not the bodies of fused ops."""
    todo = [graph]
    while todo:
        current = todo.pop()
        yield current
        todo.extend(inner for node in current.nodes if not is_fused(node.op) for inner in subgraphs(node.op).values())


def _meant(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, 3)
    if close:
        return f"; did you mean {', '.join(map(repr, close))}?"
    some = sorted(known)[:_MOST_NAMED]
    more = f" and {len(known) - len(some)} more" if len(known) > len(some) else ""
    return f"; there are: {', '.join(map(repr, some)) or 'none'}{more}"
