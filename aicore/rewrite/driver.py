"""The driver: one sweep over a graph, in order. A match touches its own nodes only.

The result of a match is bound to the Value that it replaces, so users downstream keep their operands. Nodes that a
match leaves without users die at once, so the next match sees true use counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from aicore.errors import AicoreError
from aicore.ir import Builder, Graph, Node, Op, Origin, Value, as_tuple
from aicore.rewrite.context import Context
from aicore.rewrite.matcher import Match, OutOfStepsError, Reason, matches
from aicore.rewrite.pattern import Call, Outputs, Result, calls_of
from aicore.rewrite.rule import NoMatch, Rule, require

_Candidate = tuple[Rule, Outputs]


class RuleBuilder(Builder):
    """The namespace of rule bodies: builds nodes, and knows what the target can run."""

    def __init__(self, origin: Origin, ctx: Context) -> None:
        super().__init__(origin)
        self._ctx = ctx

    def supports(self, op: Op, *operands: Value | None) -> str | None:
        """Why the target has no kernel for the op on these operands, or None if it has one."""
        return self._ctx.supports(op, *(value and value.type for value in operands))


def rewrite(graph: Graph, rules: Iterable[Rule], ctx: Context) -> Graph:
    """The graph after one sweep; `graph` itself when nothing matched.

    All rules are tried at each node, in order, and again at the nodes that a match makes.
    """
    kinds, bases = graph.kinds, graph.bases
    by_root: dict[type[Op], list[_Candidate]] = {}
    for rule in rules:
        for outputs in rule.patterns:
            absent = next((c.op for c in calls_of(outputs) if bases.isdisjoint(c.op.classes)), None)
            if absent is not None:
                ctx.absent[rule.name] = str(absent)
                continue
            for cls in outputs[0].call.op.classes:
                by_root.setdefault(cls, []).append((rule, outputs))
    if not by_root:
        return graph
    roots = {kind for kind in kinds if _candidates(kind, by_root)}
    if not [node for node in graph.nodes if type(node.op) in roots and not node.outputs[0].fixed]:
        return graph
    return _Sweep(graph, ctx, by_root).run(roots)


def explain(rule: Rule, graph: Graph, node: Node, ctx: Context | None = None) -> str | None:
    """Why the rule does not match with `node` as its root: the first guard or op that fails. None when it matches."""
    if node.outputs[0].fixed:
        return f"{node} is computed from constants alone and will be folded"
    trial = try_at(rule, graph, node, ctx)
    return None if trial.refused else trial.why_not(rule.name)


def try_at(rule: Rule, graph: Graph, node: Node, ctx: Context | None = None) -> Context:
    """Match the rule with `node` as its root, and change nothing.

    The context that is returned counts as refused what would have matched, and holds the attempt that got furthest.
    """
    trial = (ctx or Context()).anew(budget=0)
    sweep = _Sweep(graph, trial, {})
    sweep.learn_users()
    for outputs in rule.patterns:
        if isinstance(node.op, outputs[0].call.op.classes):
            sweep.attempt(rule, outputs, node)
    return trial


def _candidates(kind: type[Op], by_root: dict[type[Op], list[_Candidate]]) -> list[_Candidate]:
    return [candidate for cls in kind.__mro__ for candidate in by_root.get(cls, ())]


class _Sweep:
    def __init__(self, graph: Graph, ctx: Context, by_root: dict[type[Op], list[_Candidate]]) -> None:
        self._graph, self._ctx, self._by_root = graph, ctx, by_root
        self._kinds: dict[type[Op], list[_Candidate]] = {}
        self._uses = Counter(graph.uses)
        self._producer = dict(graph.producer)
        self._users: dict[Value, list[Node]] = {}
        self._dead: set[Node] = set()
        self._alias: dict[Value | None, Value] = {}
        self._placed: list[Node] = []
        self._inserted: dict[int, list[Node]] = {}
        self._place: dict[Node, int] = {}
        self._limit = 20 * len(graph.nodes) + 1000
        # Places and users serve patterns with several outputs alone.
        candidates = (outputs for found in by_root.values() for _, outputs in found)
        self._siblings = any(len(outputs) > 1 for outputs in candidates)

    def run(self, roots: set[type[Op]]) -> Graph:
        before = self._ctx.matches
        for node in self._graph.nodes:
            if type(node.op) in roots:
                self._visit(node)
            elif self._siblings or self._alias:
                self._keep(self._renamed(node))
            elif node not in self._dead:
                self._placed.append(node)
        if self._ctx.matches == before:
            return self._graph
        nodes = [node for i, kept in enumerate(self._placed) for node in (*self._inserted.get(i, ()), kept)]
        live = tuple(self._renamed(node) for node in nodes if node not in self._dead)
        outputs = tuple((name, self._real(value)) for name, value in self._graph.outputs)
        return replace(self._graph, nodes=live, outputs=outputs)

    def _visit(self, node: Node) -> None:
        todo = [node]
        while todo:
            node = self._renamed(todo.pop())
            if node in self._dead:
                continue
            made = self._rewritten(node)
            if made is None:
                self._keep(node)
            else:
                todo.extend(reversed(made))

    def _keep(self, node: Node) -> None:
        if node not in self._dead:
            self._settle(node, len(self._placed))
            self._placed.append(node)

    def _rewritten(self, node: Node) -> list[Node] | None:
        """The nodes to visit instead of this one, or None when no rule matches."""
        kind = type(node.op)
        if kind not in self._kinds:
            self._kinds[kind] = _candidates(kind, self._by_root)
        if node.outputs[0].fixed:  # folding will turn it into a constant
            return None
        for rule, outputs in self._kinds[kind]:
            lacking = self._lacking(outputs[0].call, node)
            if lacking is not None:
                reason = ("no operand of %s is computed by %s", node, lacking.op)
                self._ctx.record_miss(rule.name, 1, node, reason, "op", lacking)
                continue
            made = self.attempt(rule, outputs, node)
            if made is not None:
                return made
        return None

    def _lacking(self, call: Call, node: Node) -> Call | None:
        """A call among the operands of the pattern's root that no operand of the node can be.

        Much cheaper than an attempt, and enough to turn most nodes away.
        """
        makers = [maker.op for maker in map(self._producer.get, node.inputs) if maker is not None]  # type: ignore[arg-type]
        for operand in call.operands:
            if not isinstance(operand, Result):
                continue
            classes = operand.call.op.classes
            if not any(isinstance(maker, classes) for maker in makers):
                return operand.call
        return None

    def learn_users(self) -> None:
        """Take every node of the graph as placed, for one attempt at any of them."""
        self._siblings = True
        for i, node in enumerate(self._graph.nodes):
            self._settle(node, i)

    def _settle(self, node: Node, place: int) -> None:
        for result in node.outputs:
            self._producer[result] = node
        if not self._siblings:
            return
        self._place[node] = place
        for value in dict.fromkeys(node.inputs):
            if value is not None and value.constant is None:
                self._users.setdefault(value, []).append(node)

    def _real(self, value: Value) -> Value:
        while value in self._alias:
            value = self._alias[value]
        return value

    def _renamed(self, node: Node) -> Node:
        if not self._alias or self._alias.keys().isdisjoint(node.inputs):
            return node
        new = replace(node, inputs=tuple(v if v is None else self._real(v) for v in node.inputs))
        if node in self._dead:
            self._dead.add(new)
        return new

    def attempt(self, rule: Rule, outputs: Outputs, root: Node) -> list[Node] | None:
        """Apply the rule at this root; the new nodes that are still to be visited, or None when it does not match."""
        try:
            return self._attempt(rule, outputs, root)
        except OutOfStepsError as error:
            self._ctx.note(f"rule {rule.name} at {root}: {error}")
            return None

    def _attempt(self, rule: Rule, outputs: Outputs, root: Node) -> list[Node] | None:
        def miss(score: int, reason: Reason, kind: str, part: object) -> None:
            self._ctx.record_miss(rule.name, score, root, reason, kind, part)

        for match in matches(outputs, root, self._producer, self._users, miss):
            try:
                builder, old, new = self._build(rule, outputs, match)
                place = self._common_place(builder.nodes, old) if len(old) > 1 else None
            except NoMatch as reason:
                # Its frames would keep versions of the graph alive.
                miss(len(match.nodes) + 1, ("%s", reason.with_traceback(None)), reason.kind, None)
                continue
            if not self._ctx.change(rule.name):
                return None
            self._count(rule)
            fresh = self._commit(builder.nodes, list(zip(old, new, strict=True)), root, match)
            return fresh if place is None else self._insert(fresh, place)
        return None

    def _insert(self, fresh: list[Node], place: int) -> list[Node]:
        """Put nodes where the first of several outputs was; the next sweep visits them."""
        for node in fresh:
            self._settle(node, place)
        self._inserted.setdefault(place, []).extend(fresh)
        return []

    def _count(self, rule: Rule) -> None:
        self._limit -= 1
        if self._limit < 0:
            raise AicoreError(f"rule {rule.name} comes to no end: what it makes matches again")

    def _build(self, rule: Rule, outputs: Outputs, match: Match) -> tuple[RuleBuilder, list[Value], tuple[Value, ...]]:
        """Run the rule's body: (nodes made, values to replace, values instead). Raises NoMatch."""
        old = match.outputs(outputs)
        matched = dict.fromkeys(match.nodes.values())
        if not rule.shared:
            self._need_private(matched, set(old))
        parts = tuple(dict.fromkeys(node.origin for node in matched))
        builder = RuleBuilder(Origin(parts=parts, rule=rule.name, match=self._ctx.matches), self._ctx)
        try:
            new = as_tuple(rule.body(builder, match.bindings))
        except NoMatch:
            raise
        except Exception as error:
            error.add_note(f"in rule {rule.name}, match {self._ctx.matches}, at {next(iter(matched))}")
            raise
        if len(new) != len(old):
            raise AicoreError(f"rule {rule.name} gives {len(new)} results for the {len(old)} of its pattern")
        for before, after in zip(old, new, strict=True):
            require(before.type.agrees(after.type), "the result has another type", before, after, kind="type")
        return builder, old, new

    def _need_private(self, matched: Iterable[Node], kept: set[Value]) -> None:
        inside = [value for node in matched for value in node.inputs]
        for node in matched:
            for result in node.outputs:
                private = result in kept or self._uses[result] == inside.count(result)
                require(private, "an interior value has other users or is a graph output", result, kind="readers")

    def _common_place(self, new: Sequence[Node], old: Sequence[Value]) -> int | None:
        """Where the first of several outputs was; None when that is here.

        Every operand must be computed before it: this is what keeps a cycle from arising.
        """
        here = len(self._placed)
        first = min(self._place.get(self._producer[value], here) for value in old)
        if first == here:
            return None
        made = {value for node in new for value in node.outputs}
        for node in new:
            for value in node.inputs:
                if value is None or value in made or value not in self._producer:
                    continue
                early = self._place.get(self._producer[value], here) < first
                require(early, "an operand is computed after the first output", value)
        return first

    def _commit(self, nodes: list[Node], pairs: list[tuple[Value, Value]], root: Node, match: Match) -> list[Node]:
        """Bind results to the values that they replace, and bury what has no users left."""
        made = {value for node in nodes for value in node.outputs}
        name: dict[Value | None, Value] = {}
        for old, new in pairs:
            if new in made and new not in name:
                name[new] = old
            elif new is not old:
                target = name.get(new, new)
                self._alias[old] = target
                self._uses[target] += self._uses.pop(old, 0)
        fresh = [
            Node(
                node.op,
                tuple(name.get(value, value) for value in node.inputs),
                tuple(name.get(value, value) for value in node.outputs),
                node.origin,
            )
            for node in nodes
        ]
        for node in fresh:
            for value in node.inputs:
                if value is not None:
                    self._uses[value] += 1
        replaced = {old for old, _ in pairs}
        matched = dict.fromkeys(match.nodes.values())
        gone = [node for node in matched if node is root or any(value in replaced for value in node.outputs)]
        idle = [node for node in matched if node not in gone and not any(self._uses[v] for v in node.outputs)]
        self._bury(gone + idle)
        for node in fresh:
            for value in node.outputs:
                self._producer[value] = node
        return fresh

    def _bury(self, todo: list[Node]) -> None:
        while todo:
            node = todo.pop()
            if node in self._dead:
                continue
            self._dead.add(node)
            for value in node.inputs:
                if value is None:
                    continue
                self._uses[value] -= 1
                maker = self._producer.get(value)
                if maker is not None and not any(self._uses[v] for v in maker.outputs):
                    todo.append(maker)
