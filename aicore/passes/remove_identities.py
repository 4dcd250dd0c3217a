"""Nodes that give back an operand, bit for bit.

Only what holds for every number: x + 0.0 stays, because it turns -0.0 into 0.0; x * 1 goes only where the 1 does not
broadcast x to a larger shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np

from aicore.ir import Graph, Node, Op, Value
from aicore.ops.arithmetic import Add, Div, Max, Mean, Min, Mul, Sub, Sum
from aicore.ops.cast import Cast, CastLike
from aicore.ops.movement import Concat, Expand, Split, Tile, Transpose
from aicore.ops.random import Dropout
from aicore.ops.shape import Flatten, Identity, Reshape, Squeeze, Unsqueeze
from aicore.ops.slicing import Pad, Slice
from aicore.passes.base import Pass
from aicore.passes.substitution import Substitution
from aicore.records import dataclass
from aicore.rewrite import Context

Kept: TypeAlias = "int | None"
"""Index of the operand that the node gives back."""


@dataclass(frozen=True)
class RemoveIdentities(Pass):
    """Users of a node that gives back its operand use the operand."""

    name: ClassVar[str] = "remove-identities"
    after: ClassVar[tuple[str, ...]] = ("fold-shapes",)

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        uses = graph.uses
        same = Substitution()
        kept: list[Node] = []
        for node in graph.nodes:
            node = same.node(node)
            operand = _given_back(node)
            alone = not any(uses[value] for value in node.outputs[1:])
            if operand is None or not alone or not ctx.change():
                kept.append(node)
            else:
                same.put(node.outputs[0], operand)
        return same.graph(graph, kept) if same else graph


def _given_back(node: Node) -> Value | None:
    question = _QUESTIONS.get(type(node.op))
    if question is None:
        return None
    index = question(node.op, node)
    if index is None or index >= len(node.inputs):
        return None
    operand = node.inputs[index]
    return operand if operand is not None and node.outputs[0].type.agrees(operand.type) else None


def _always(op: Any, node: Node) -> Kept:
    return 0


def _same_type(op: Any, node: Node) -> Kept:
    """For ops that keep elements and their order: the same shape means the same tensor."""
    x = node.inputs[0]
    return 0 if x is not None and x.shape is not None and x.type == node.outputs[0].type else None


def _same_dtype(op: Any, node: Node) -> Kept:
    x = node.inputs[0]
    return 0 if x is not None and x.dtype == node.outputs[0].dtype else None


def _transpose(op: Any, node: Node) -> Kept:
    return 0 if op.perm is not None and op.perm == tuple(range(len(op.perm))) else None


def _slice(op: Any, node: Node) -> Kept:
    """Steps of 1 that keep every element; a step of -1 keeps the shape, too, and turns the order round."""
    forward = op.steps is None or all(step == 1 for step in op.steps)
    return _same_type(op, node) if forward and len(node.inputs) == 1 else None


def _pad(op: Any, node: Node) -> Kept:
    return 0 if op.pads is not None and not any(op.pads) else None


def _dropout(op: Any, node: Node) -> Kept:
    """Without training it gives back its operand; whether it trains may be known at run time only."""
    decided = len(node.inputs) < 3 or node.inputs[2] is None
    return 0 if decided and not op.training_mode else None


def _single(op: Any, node: Node) -> Kept:
    return 0 if len(node.inputs) == 1 and len(node.outputs) == 1 else None


def _neutral(side: int, number: float) -> Callable[[Any, Node], Kept]:
    """x is given back when operand `side` is `number` everywhere, with its sign, and does not broadcast x."""

    def question(op: Any, node: Node) -> Kept:
        x, neutral = node.inputs[1 - side], node.inputs[side]
        if x is None or neutral is None or x.shape is None or x.type != node.outputs[0].type:
            return None
        return 1 - side if _is_all(neutral, number) else None

    return question


def _either(*questions: Callable[[Any, Node], Kept]) -> Callable[[Any, Node], Kept]:
    def question(op: Any, node: Node) -> Kept:
        return next((kept for one in questions if (kept := one(op, node)) is not None), None)

    return question


def _is_all(value: Value, number: float) -> bool:
    """Whether every element is the number; zeros of floats must have its sign."""
    if value.constant is None or value.constant.array.dtype.kind not in "iufV":
        return False
    array = value.constant.array
    first = array.ravel()[:1]
    if first.size and first.astype(np.float64)[0] != number:  # the usual case, without reading a large constant
        return False
    if not np.all(array == array.dtype.type(number)):
        return False
    signed = array.dtype.kind in "fV" and number == 0
    return not signed or bool(np.all(np.signbit(array.astype(np.float64)) == np.signbit(number)))


# -0.0 is what float addition leaves alone: -0.0 + 0.0 is 0.0, but -0.0 + -0.0 is -0.0; for integers it is plain 0.
_ADD = _either(_neutral(1, -0.0), _neutral(0, -0.0))

_QUESTIONS: dict[type[Op], Callable[[Any, Node], Kept]] = {
    Identity: _always,
    Cast: _same_dtype,
    CastLike: _same_dtype,
    Reshape: _same_type,
    Flatten: _same_type,
    Squeeze: _same_type,
    Unsqueeze: _same_type,
    Expand: _same_type,
    Tile: _same_type,
    Transpose: _transpose,
    Slice: _slice,
    Pad: _pad,
    Dropout: _dropout,
    Concat: _single,
    Split: _single,
    Sum: _single,
    Max: _single,
    Min: _single,
    Mean: _single,
    Mul: _either(_neutral(1, 1.0), _neutral(0, 1.0)),
    Div: _neutral(1, 1.0),
    Add: _ADD,
    Sub: _neutral(1, 0.0),
}
