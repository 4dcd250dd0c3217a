"""Matching: every way in which a pattern fits the graph above a node, one after the other.

Goals are pairs (pattern, what stands there), in a linked list. A commutative op leaves a choice behind: the goals with
its operands swapped, and how many bindings to keep. A failure, or a caller who asks for the next match, goes back to
the newest choice; nothing recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.errors import AicoreError
from aicore.ir import Node, Op, Value
from aicore.records import dataclass
from aicore.rewrite.pattern import (
    AttributeVariable,
    Call,
    Constant,
    OpPattern,
    Outputs,
    Rest,
    Result,
    Variable,
)

STEP_LIMIT = 20_000
"""Goals tried for one root; commutative ops double the ways with each level."""

_CONSTANT_TOLERANCE = 1e-6
"""Relative; exporters round the same number in float32 in different ways."""

Goals: TypeAlias = "tuple[tuple[Any, Any], Goals] | None"
Reason: TypeAlias = "tuple[object, ...]"
"""A format text and its arguments; put together only when somebody asks, since nearly every attempt fails."""
Miss: TypeAlias = Callable[[int, Reason, str, Any], None]
"""Takes how many ops had matched, why the next part did not, the kind of reason, and the part."""

KINDS: Mapping[str, str] = {
    "op": "another op stands there",
    "attribute": "an attribute has another value",
    "operand": "the operands are not those of the pattern",
    "constant": "a constant is wanted, or other numbers",
    "same": "two places must hold the same value, and do not",
    "sibling": "no other node reads what both must read",
    "readers": "a value in between has other readers",
    "type": "the result would have another type or shape",
    "kernel": "the target has no kernel for the result",
    "guard": "a guard of the rule says no",
}
"""Why a rule does not match."""


class OutOfStepsError(AicoreError):
    """A pattern has too many ways to be tried; the driver notes it and goes on."""


class _Failed(Exception):  # noqa: N818  # internal: this way does not fit
    def __init__(self, kind: str, *reason: object) -> None:
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True)
class Match:
    """What each name is bound to, and the node that each call of the pattern is."""

    bindings: dict[str, Any]
    nodes: dict[Call, Node]

    def outputs(self, pattern: Outputs) -> list[Value]:
        return [self.nodes[result.call].outputs[result.index] for result in pattern]


def matches(
    pattern: Outputs,
    root: Node,
    producer: Mapping[Value, Node],
    users: Mapping[Value, Sequence[Node]],
    miss: Miss,
) -> Iterator[Match]:
    """All ways in which `root` is the first output's node.

    An output that the first one does not reach (a sibling) is looked for among `users` of an operand bound already.
    miss: told how many ops had matched, and why a way failed.
    Raises OutOfStepsError when they are too many.
    """
    return _Search(producer, users, miss).run(pattern, root)


class _Search:
    def __init__(self, producer: Mapping[Value, Node], users: Mapping[Value, Sequence[Node]], miss: Miss) -> None:
        self._producer, self._users, self._miss = producer, users, miss
        self._bindings: dict[str, Any] = {}
        self._nodes: dict[Call, Node] = {}
        self._trail: list[tuple[dict[Any, Any], Any]] = []
        self._choices: list[tuple[Goals, int]] = []

    def run(self, pattern: Outputs, root: Node) -> Iterator[Match]:
        goals: Goals = ((pattern[0].call, root), None)
        wanted: Any = None
        for _ in range(STEP_LIMIT):
            try:
                if goals is not None:
                    (wanted, found), rest = goals
                    goals = self._step(wanted, found, rest)
                    continue
                lost = next((result.call for result in pattern if result.call not in self._nodes), None)
                if lost is None:
                    yield Match(dict(self._bindings), dict(self._nodes))
                else:
                    wanted = lost
                    self._offer_siblings(lost)
            except _Failed as failed:
                self._miss(len(self._nodes), failed.reason, failed.kind, wanted)
            if not self._choices:
                return
            goals, mark = self._choices.pop()
            self._undo(mark)
        raise OutOfStepsError(f"gave up after {STEP_LIMIT} steps: too many orders of commutative operands")

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            table, key = self._trail.pop()
            del table[key]

    def _bind(self, name: str, value: Any) -> bool:
        if name in self._bindings:
            return _same(self._bindings[name], value)
        self._bindings[name] = value
        self._trail.append((self._bindings, name))
        return True

    def _offer_siblings(self, lost: Call) -> None:
        anchors = (o.name for o in lost.operands if isinstance(o, Variable) and o.name in self._bindings)
        anchor = next(anchors, None)
        taken = set(self._nodes.values())
        users = self._users.get(self._bindings[anchor], ()) if anchor is not None else ()
        candidates = [n for n in users if n not in taken and isinstance(n.op, lost.op.classes)]
        if not candidates:
            raise _Failed("sibling", "no other %s uses %s", lost.op, anchor)
        self._choices += [(((lost, node), None), len(self._trail)) for node in reversed(candidates)]

    def _step(self, wanted: Any, found: Any, rest: Goals) -> Goals:
        """The goals that are left once `wanted` stands at `found`; raises _Failed."""
        if isinstance(wanted, Call):
            return self._call(wanted, found, rest)
        if type(wanted) is Variable and found is not None and wanted.name not in self._bindings:
            self._bindings[wanted.name] = found  # most steps are this one
            self._trail.append((self._bindings, wanted.name))
            return rest
        if wanted is None or found is None:
            self._absence(wanted, found)
        elif isinstance(wanted, Result):
            return self._result(wanted, found, rest)
        elif isinstance(wanted, Constant):
            self._constant(wanted, found)
        elif not self._bind(wanted.name, found):
            raise _Failed("same", "%s stands twice in the pattern, for different values here", wanted.name)
        return rest

    def _absence(self, wanted: Any, found: Any) -> None:
        if wanted is not None:
            raise _Failed(
                "operand", "operand %s is absent", getattr(wanted, "name", "") if isinstance(wanted, Variable) else ""
            )
        if found is not None:
            raise _Failed("operand", "operand %%%s should be absent", found.name)

    def _result(self, wanted: Result, found: Value, rest: Goals) -> Goals:
        node = self._producer.get(found)
        if node is None:
            raise _Failed("operand", "%%%s is computed by no node: an input or a constant", found.name)
        if found is not node.outputs[wanted.index]:
            raise _Failed("operand", "%%%s is another output of its node", found.name)
        return ((wanted.call, node), rest)

    def _constant(self, wanted: Constant, found: Value) -> None:
        if found.constant is None:
            raise _Failed("constant", "%%%s is not a constant", found.name)
        array = found.constant.array
        numbers = wanted.numbers
        if not isinstance(numbers, AttributeVariable):
            if not _close(array, numbers):
                raise _Failed("constant", "%%%s is not %s", found.name, numbers)
        elif array.size != 1 or not self._bind(numbers.name, _shortest(array)):
            raise _Failed("constant", "%%%s is not a single number that fits", found.name)

    def _call(self, call: Call, node: Node, rest: Goals) -> Goals:
        if call in self._nodes:
            if self._nodes[call] is not node:
                raise _Failed("same", "%s is another node than before", node)
            return rest
        self._op(call.op, node)
        operands, inputs = self._aligned(call, node)
        self._nodes[call] = node
        self._trail.append((self._nodes, call))
        if len(inputs) == 2 and call.op.commutative and inputs[0] is not inputs[1]:
            self._choices.append((_push(operands[::-1], inputs, rest), len(self._trail)))
        return _push(operands, inputs, rest)

    def _aligned(self, call: Call, node: Node) -> tuple[Sequence[Any], Sequence[Value | None]]:
        operands, inputs = call.operands, node.inputs
        if operands and isinstance(operands[-1], Rest):
            rest, operands = operands[-1], operands[:-1]
            self._bind(rest.name, inputs[len(operands) :])
            inputs = inputs[: len(operands)]
            inputs += (None,) * (len(operands) - len(inputs))
        if len(operands) != len(inputs):
            fields = ", ".join(node.op.operand_fields.values())
            hint = f"; a constant one is a field: {fields}" if fields else ""
            raise _Failed(
                "operand", "%s has %s operands, the pattern wants %s%s", node, len(inputs), len(operands), hint
            )
        return operands, inputs

    def _op(self, wanted: OpPattern, node: Node) -> None:
        if wanted.attributes is None:
            if not isinstance(node.op, wanted.classes):
                raise _Failed("op", "%s is not %s", node, wanted)
            if not self._bind(wanted.name, node.op):
                raise _Failed(
                    "same", "%s: the op %s stands twice in the pattern, with other attributes", node, wanted.name
                )
            return
        cls = wanted.classes[0]
        if type(node.op) is not cls:
            raise _Failed("op", "%s is not %s", node, wanted)
        attributes = {}
        for name, attribute in wanted.attributes.items():
            value = getattr(node.op, name) if isinstance(attribute, AttributeVariable) else attribute
            if isinstance(attribute, AttributeVariable) and not self._bind(attribute.name, value):
                raise _Failed("same", "%s: attribute %s differs from the same one elsewhere", node, name)
            attributes[name] = value
        _check_attributes(cls, attributes, node)


def _check_attributes(cls: type[Op], attributes: dict[str, Any], node: Node) -> None:
    try:
        wanted = cls(**attributes).resolve(*node.inputs)
    except (AicoreError, TypeError, ValueError, IndexError) as error:
        raise _Failed("attribute", "%s: the pattern's attributes do not fit: %s", node, error) from None
    if wanted == node.op:
        return
    for name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
        ours, theirs = getattr(wanted, name), getattr(node.op, name)
        if ours != theirs and not _close_attributes(ours, theirs):
            raise _Failed("attribute", "%s: %s is %s, the pattern wants %s", node, name, theirs, ours)


def _push(operands: Sequence[Any], inputs: Sequence[Value | None], rest: Goals) -> Goals:
    for pair in zip(reversed(operands), reversed(inputs), strict=True):
        rest = (pair, rest)
    return rest


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, Value) and isinstance(b, Value):
        small = a.known is not None and b.known is not None and a.type == b.type
        return small and a.constant is not None and b.constant is not None and a.constant.digest == b.constant.digest
    return not isinstance(a, Value | Node) and bool(a == b)


def _close(array: np.ndarray[Any, Any], numbers: Any) -> bool:
    """Whether the constant is what the pattern says, rounded to its dtype."""
    wanted = np.asarray(numbers)
    if array.size != wanted.size:
        return False
    rounded = wanted.astype(array.dtype).ravel()
    if array.dtype.kind in "iub" and not np.array_equal(rounded, wanted.ravel()):
        return False
    if array.dtype.kind not in "fV":
        return np.array_equal(array.ravel(), rounded)
    ours, theirs = rounded.astype(np.float64), array.ravel().astype(np.float64)
    return bool(np.allclose(theirs, ours, rtol=_CONSTANT_TOLERANCE, atol=0))


def _close_attributes(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= _CONSTANT_TOLERANCE * abs(ours)
    return False


def _shortest(array: np.ndarray[Any, Any]) -> float | int:
    """The number as it was probably written: float32 1e-6 gives 1e-6, not 9.999999974752427e-07."""
    element = array.ravel()[0]
    return int(element) if array.dtype.kind in "iub" else float(str(element))
