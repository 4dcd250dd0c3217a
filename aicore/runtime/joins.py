"""Which Concats need no kernel, because their operands are computed where the result has them, and why others do.

A part of a result is dense, or its rows (the last axis) are dense and lie one pitch apart: kernels that say `pitched`
read and write both. The result itself is dense as ever, so nothing is asked of what reads it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from aicore.ir import Node, TensorType, Value
from aicore.kernels import Selection
from aicore.ops.base import normalize_axis
from aicore.ops.movement import Concat
from aicore.records import dataclass

JOINED = "its operands are computed where it has them"

_SHORTEST = 16
"""Elements of a row that lies apart. To walk over shorter ones takes longer than to copy them, and BLAS has ways of its
own with narrow dense matrices, which round in another order."""


@dataclass(frozen=True)
class Part:
    """Where a value lies within another one, in elements.

    root: the value that owns the bytes; no part itself.
    pitch: from row to row, where rows are further apart than they are long.
    """

    root: Value
    offset: int
    pitch: int | None = None


@dataclass(frozen=True)
class Joins:
    """parts: by value. joined: Concats that need no kernel. notes: by Concat, why it needs one or not."""

    parts: Mapping[Value, Part] = field(default_factory=dict)
    joined: Collection[Node] = frozenset()
    notes: Mapping[Node, str] = field(default_factory=dict)

    def without(self, reason: str) -> Joins:
        """No joins, with the reason noted where there was one."""
        return Joins(notes={**self.notes, **dict.fromkeys(self.joined, reason)})


def find_joins(nodes: Sequence[Node], selections: Mapping[Node, Selection], outputs: Collection[Value]) -> Joins:
    """The Concats among the nodes of a plan that can do without a copy.

    A chain of Concats, each the operand of the next, becomes one buffer that grows.
    """
    concats = [node for node in nodes if isinstance(node.op, Concat)]
    if not concats or not any(selection.kernel.pitched for selection in selections.values()):
        return Joins()
    finder = _Finder(nodes, selections, frozenset(outputs))
    notes = {node: finder.reason_against(node) or finder.join(node) for node in concats}
    return Joins(finder.parts(), frozenset(finder.joined), notes)


@dataclass(frozen=True)
class _Place:
    """Where an operand lies within the result of its Concat. rows: whether the result's rows are cut."""

    result: Value
    offset: int
    rows: bool


class _Finder:
    def __init__(self, nodes: Sequence[Node], selections: Mapping[Node, Selection], outputs: frozenset[Value]) -> None:
        self._selections, self._outputs = selections, outputs
        self._producer = {value: node for node in nodes for value in node.outputs}
        self._readers: dict[Value, list[Node]] = {}
        for node in nodes:
            for value in node.inputs:
                if value is not None:
                    self._readers.setdefault(value, []).append(node)
        self.places: dict[Value, _Place] = {}
        self.joined: dict[Node, None] = {}

    def join(self, node: Node) -> str:
        """Put the operands where the result has them."""
        result, start = node.outputs[0], 0
        axis, inner = _axis(node)
        for value in node.inputs:
            assert value is not None  # Concat takes no absent operand
            self.places[value] = _Place(result, start, _cuts_rows(node))
            start += value.type.static_shape[axis] * inner
        self.joined[node] = None
        return JOINED

    def parts(self) -> dict[Value, Part]:
        """Where each operand lies within the last Concat of its chain; those of later Concats come first."""
        found: dict[Value, Part] = {}
        for value, place in reversed(self.places.items()):
            outer = found.get(place.result) or Part(place.result, 0)
            width = outer.root.type.static_shape[-1]
            apart = place.rows and width != value.type.static_shape[-1]
            found[value] = Part(outer.root, outer.offset + place.offset, width if apart else None)
        return found

    def reason_against(self, node: Node) -> str | None:
        """Why a Concat must copy, or None."""
        result = node.outputs[0]
        if result in self._outputs:
            return "copies: its result is an output"
        if not _is_plain(result.type) or 0 in result.type.static_shape:
            return "copies: its size is not known, or it has no elements"
        axis, _ = _axis(node)
        if axis != len(result.type.static_shape) - 1 and _cuts_rows(node):
            return "copies: its operands are neither dense parts of it nor parts of its rows"
        if len(set(node.inputs)) != len(node.inputs):
            return "copies: an operand occurs twice"
        widths = [value.type.static_shape[-1] for value in node.inputs if value is not None and value.type.is_static]
        if _cuts_rows(node) and min(widths, default=0) < _SHORTEST:
            return f"copies: rows of fewer than {_SHORTEST} elements are not worth it"
        for value in node.inputs:
            assert value is not None  # Concat takes no absent operand
            reason = self._reason_against_operand(node, value)
            if reason is not None:
                return f"copies: %{value.name} {reason}"
        return None

    def _reason_against_operand(self, node: Node, value: Value) -> str | None:
        producer = self._producer.get(value)
        if producer is None:
            return "is not computed here"
        if value in self._outputs:
            return "is an output"
        if not _is_plain(value.type) or 0 in value.type.static_shape:
            return "has a size that is not known, or no elements"
        if value in self.places:
            return f"lies in %{self.places[value].result.name}"
        if producer in self.joined:
            if _cuts_rows(producer) != _cuts_rows(node):
                return "is itself joined along another axis"
        elif (reason := self._reason_against_kernel(producer)) is not None:
            return f"is made by {reason}"
        others = (reader for reader in self._readers[value] if reader is not node)
        reason = next(filter(None, map(self._reason_against_kernel, others)), None)
        return None if reason is None else f"is read by {reason}"

    def _reason_against_kernel(self, node: Node) -> str | None:
        if node not in self._selections:
            return f"{type(node.op).__name__}, which needs no kernel"
        kernel = self._selections[node].kernel
        return None if kernel.pitched else f"{kernel.name}, which takes dense arrays only"


def _axis(node: Node) -> tuple[int, int]:
    """The axis of a Concat, and the elements of one step along it."""
    assert isinstance(node.op, Concat)
    shape = node.outputs[0].type.static_shape
    axis = normalize_axis(node.op.axis, len(shape))
    return axis, math.prod(shape[axis + 1 :])


def _cuts_rows(node: Node) -> bool:
    """Whether parts of the result are rows apart; else they are dense."""
    axis, _ = _axis(node)
    return math.prod(node.outputs[0].type.static_shape[:axis]) != 1


def _is_plain(tensor: TensorType) -> bool:
    return tensor.is_static and tensor.dtype != "string"
