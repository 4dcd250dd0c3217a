"""Convolutions and their kin compute with channels last where the target can; transposes stand at the borders only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from aicore.ir import Builder, Graph, Node, Op, Origin, TensorType, Value, as_tuple, constant_value, substitute, symbols
from aicore.ops.layout import FOLLOWERS, ChannelsLast, channels_first, image_results_of, images_of, knows_channels
from aicore.ops.movement import Transpose
from aicore.ops.shape import Reshape, Shape
from aicore.passes._islands import Islands
from aicore.passes._moved_axes import Perm, inverse, is_identity, move_axes, moves_elements, takes_all_operands
from aicore.passes.base import Pass
from aicore.records import dataclass
from aicore.rewrite import Context


@dataclass(frozen=True)
class PlaceChannelsLast(Pass):
    """Walks forward and keeps what it makes with channels last, until something needs the order of ONNX.

    Ops that know channels, such as Conv, go channels-last where the target has a kernel for that; ops that do not mind
    (pointwise, Concat, Reduce, ...) follow an operand that is stored so. Nodes that are tied together by such values
    are an island, which is left alone unless it pays: the elements that its transposes at the border move must be
    fewer than those that its ops of windows read and write, since such a kernel saves about one pass over these. So a
    convolution between two transposes of its own stays as it is, and two in a row do not. Takes linear time.

    plain: names of values whose islands are left alone, whatever they seem to pay.
    """

    name: ClassVar[str] = "place-channels-last"
    phase: ClassVar[str] = "fuse"
    after: ClassVar[tuple[str, ...]] = ("fold-batchnorm", "fold-weights", "recognise-functions", "fuse-linear")
    before: ClassVar[tuple[str, ...]] = ("fuse-pointwise",)
    plain: tuple[str, ...] = ()

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        if not any(knows_channels(node.op) for node in graph.nodes):
            return graph
        trial = _Walk(self.name, ctx, lambda: True)
        placed = trial.run(graph)
        losing = trial.islands.losing() | trial.islands.holding(self.plain)
        if losing or not ctx.may_make(trial.changes, self.name):
            trial = _Walk(self.name, ctx, lambda: ctx.change(self.name), losing)
            placed = trial.run(graph)
        else:
            for _ in range(trial.changes):
                ctx.change(self.name)
        return placed if trial.changes else graph

    def alternatives(self, graph: Graph, ctx: Context) -> dict[str, Sequence[Any]]:
        """Each island left alone, the largest ones first."""
        if not any(knows_channels(node.op) for node in graph.nodes):
            return {}
        first = _Walk(self.name, ctx, lambda: True)
        first.run(graph)
        trial = _Walk(self.name, ctx, lambda: True, first.islands.losing() | first.islands.holding(self.plain))
        trial.run(graph)
        return {"plain": [(name,) for name in trial.islands.names()[:_MOST_ISLANDS]]}


_MOST_ISLANDS = 8


class _Walk:
    """One walk over a graph. Values of the old graph are the keys; a constant has any order of axes for free.

    change: asked before each change.
    refused: values whose island does not pay; what computes them is no reason to go channels-last.
    """

    def __init__(self, rule: str, ctx: Context, change: Callable[[], bool], refused: frozenset[Value] = frozenset()):
        self.changes = 0
        self.islands = Islands()
        self._rule, self._supports, self._change, self._refused = rule, ctx.supports, change, refused
        self._first = ctx.matches
        self._builder = Builder()
        self._stored: dict[Value, tuple[Value, Perm]] = {}
        self._plain: dict[Value, Value] = {}
        self._transposed: dict[Value, tuple[Value, Perm]] = {}
        self._versions: dict[tuple[Value, Perm], Value] = {}
        self._origins: dict[Value, Origin] = {}

    def run(self, graph: Graph) -> Graph:
        for node in graph.nodes:
            self._origins.update(dict.fromkeys(node.outputs, node.origin))
            if node.outputs[0].fixed or not (self._as_image_op(node) or self._following(node)):
                self._keep(node)
        outputs = tuple((name, self._as_is(value)) for name, value in graph.outputs)
        return replace(graph, nodes=tuple(self._builder.nodes), outputs=outputs)

    def _keep(self, node: Node) -> None:
        """The node as it is, on operands in the order of ONNX."""
        operands = tuple(None if value is None else self._as_is(value) for value in node.inputs)
        unchanged = all(new is old for new, old in zip(operands, node.inputs, strict=True))
        self._builder.nodes.append(node if unchanged else replace(node, inputs=operands))
        x = operands[0] if operands else None
        if isinstance(node.op, Transpose) and node.op.perm is not None and x is not None:
            self._transposed[node.outputs[0]] = x, node.op.perm

    def _as_image_op(self, node: Node) -> bool:
        """Whether the node went channels-last because its op knows channels."""
        x = node.inputs[0] if node.inputs else None
        if not knows_channels(node.op) or x is None or x.rank is None:
            return False
        perm, images = channels_first(x.rank), images_of(node.op)
        values = [v for i, v in enumerate(node.inputs) if i in images and v is not None]
        if x.rank < 3 or any(v.rank is None or v.rank > x.rank for v in values):
            return False
        follows = type(node.op) in FOLLOWERS
        if node.outputs[0] in self._refused or (follows and self._cost_of_storing(x, perm)):
            return False
        op = ChannelsLast(node.op, x.rank)
        types = [v and (_moved_type(v.type, perm) if i in images else v.type) for i, v in enumerate(node.inputs)]
        if self._supports(op, *types) is not None or not self._may_change():
            return False
        results = image_results_of(node.op)
        perms = [perm if i in results else tuple(range(v.rank or 0)) for i, v in enumerate(node.outputs)]
        self._emit(node, op, [i in images for i in range(len(node.inputs))], perm, perms)
        if not follows:
            gain = sum(_elements(v.type) for v in (*values, node.outputs[0]))
            self.islands.gain(node.outputs[0], gain)
        return True

    def _following(self, node: Node) -> bool:
        """Whether the node took over how its operands are stored, because its op does not mind."""
        if all(value not in self._stored for value in node.inputs):
            return False
        if isinstance(node.op, Transpose):
            return self._transpose(node, node.op)
        if isinstance(node.op, Shape):
            return self._shape(node, node.op)
        moves = [i == 0 or takes_all_operands(node.op) for i in range(len(node.inputs))]
        operands = [v for v, moved in zip(node.inputs, moves, strict=True) if v is not None and moved]
        stored = [v for v in operands if v in self._stored]
        if not stored or node.outputs[0].rank is None:
            return False
        perm = self._stored[max(stored, key=lambda v: _elements(v.type))][1]
        found = move_axes(node, perm)
        if found is None or any(v.rank is None or v.rank > len(perm) for v in operands):
            return False
        saved = sum(self._cost(v, self._stored[v][1]) for v in stored if v not in self._plain)
        if sum(self._cost_of_storing(v, perm) for v in operands) > saved or not self._may_change():
            return False
        self._emit(node, found[0], moves, perm, [found[1]] * len(node.outputs))
        return True

    def _transpose(self, node: Node, op: Transpose) -> bool:
        """A transpose of what is stored joins that which would undo the storing; one of channels alone stays so."""
        x, y = node.inputs[0], node.outputs[0]
        if x is None or op.perm is None or not self._may_change():
            return False
        value, perm = self._stored[x]
        joined = tuple(perm[axis] for axis in op.perm)
        channels = _channels(perm)
        only_channels = all(axis == i for i, axis in enumerate(op.perm) if not 1 <= i <= channels)
        if is_identity(joined):
            self._plain[y] = value
            self.islands.gain(x, _elements(x.type))
        elif channels and only_channels:
            moved = self._apply(node, Transpose(tuple(joined[i] for i in inverse(perm))), [value])
            self._stored[y] = moved, perm
            self.islands.join(x, y)
        else:
            self._plain[y] = self._apply(node, Transpose(joined), [value])
        return True

    def _shape(self, node: Node, op: Shape) -> bool:
        """The dims of what is stored, put in order: numbers are moved instead of a tensor."""
        x = node.inputs[0]
        if x is None or not self._may_change():
            return False
        value, perm = self._stored[x]
        order = constant_value(np.array(perm[op.start : op.end], np.int64), "order")
        self._builder.origin = self._origin(node.origin)
        dims = self._builder.apply(Shape(), value)
        self._plain[node.outputs[0]] = self._builder.Gather(dims, order)
        return True

    def _may_change(self) -> bool:
        allowed = self._change()
        self.changes += allowed
        return allowed

    def _emit(self, node: Node, op: Op, moves: list[bool], perm: Perm, results: Sequence[Perm]) -> None:
        """The op on operands stored with one permutation; each result is stored with its own."""
        operands = []
        inputs = node.inputs[:1] if isinstance(op, Reshape) else node.inputs  # it holds the dims itself
        for value, moved in zip(inputs, moves, strict=False):
            if value is None or not moved:
                operands.append(value and self._as_is(value))
                continue
            operands.append(self._stored_as(value, perm))
            if value.constant is None and value.rank:
                self.islands.join(node.outputs[0], value)
        made = as_tuple(self._apply(node, op, operands))
        for old, new, result in zip(node.outputs, made, results, strict=True):
            self.islands.join(node.outputs[0], old)
            if is_identity(result):
                self._plain[old] = new
            else:
                self._stored[old] = new, result

    def _apply(self, node: Node, op: Op, operands: list[Value | None]) -> Value:
        names = tuple(value.name for value in node.outputs)
        found: Value = self._builder.apply(op, *operands, names=names, origin=self._origin(node.origin))
        return found

    def _origin(self, *parts: Origin) -> Origin:
        return Origin(parts=parts, rule=self._rule, match=self._first + self.changes - 1)

    def _as_is(self, value: Value) -> Value:
        """The value in the order of ONNX."""
        if value in self._plain or value not in self._stored:
            return self._plain.get(value, value)
        stored, perm = self._stored[value]
        self.islands.charge(value, self._cost(value, perm))
        self._builder.nodes.append(Node(Transpose(perm), (stored,), (value,), self._origin(self._origins[value])))
        self._plain[value] = value
        return value

    def _stored_as(self, value: Value, perm: Perm) -> Value:
        """s, where the value with leading dims of 1 is transpose(s, perm)."""
        if value.rank == 0:
            return self._as_is(value)
        key = value, perm
        if key not in self._versions:
            self._versions[key] = self._make_stored(value, perm)
        return self._versions[key]

    def _make_stored(self, value: Value, perm: Perm) -> Value:
        missing = len(perm) - (value.rank or 0)
        if value.constant is not None:
            array = value.constant.array
            full = array.reshape((1,) * missing + array.shape).transpose(inverse(perm))
            return constant_value(np.ascontiguousarray(full), value.name)
        base, now = self._base(value, missing)
        step = tuple(now[axis] for axis in inverse(perm))
        if is_identity(step):
            return base
        if value not in self._transposed:
            self.islands.charge(value, self._cost_of_storing(value, perm))
        parts = (self._origins[value],) if value in self._origins else ()
        found: Value = self._builder.apply(Transpose(step), base, names=(value.name,), origin=self._origin(*parts))
        return found

    def _base(self, value: Value, missing: int) -> tuple[Value, Perm]:
        """What to transpose the value from: how it is stored, or what the model transposed it from."""
        plain = value if value in self._stored else self._as_is(value)
        base, perm = self._stored.get(value) or self._transposed.get(plain) or (plain, tuple(range(value.rank or 0)))
        if not missing:
            return base, perm
        self._builder.origin = self._origin()
        return self._builder.Unsqueeze(base, axes=tuple(range(missing))), _extended(perm, missing)

    def _cost_of_storing(self, value: Value, perm: Perm) -> int:
        """Elements to move so that the value is stored with this permutation."""
        if value.constant is not None or (value, perm) in self._versions or value.shape is None:
            return 0
        missing = len(perm) - len(value.shape)
        found = self._stored.get(value) or self._transposed.get(self._plain.get(value, value))
        if found is not None and _extended(found[1], missing) == perm:
            return 0
        dims = (1,) * missing + value.shape
        step = inverse(perm)
        return _elements(value.type) if moves_elements(step, tuple(dims[axis] for axis in step)) else 0

    def _cost(self, value: Value, perm: Perm) -> int:
        """Elements to move so that the value, stored with this permutation, is in the order of ONNX."""
        return _elements(value.type) if moves_elements(perm, value.shape or ()) else 0


def _channels(perm: Perm) -> int:
    """How many axes after the first one are stored last, all others being in order; 0 if that is not how it is."""
    rank = len(perm)
    for count in range(1, rank):
        if perm == (0, *range(rank - count, rank), *range(1, rank - count)):
            return count
    return 0


def _extended(perm: Perm, missing: int) -> Perm:
    """The permutation of a value with so many leading dims of 1 put in."""
    return (*range(missing), *(axis + missing for axis in perm))


def _moved_type(tensor: TensorType, perm: Perm) -> TensorType:
    shape = tensor.shape or ()
    full = (1,) * (len(perm) - len(shape)) + shape
    return TensorType(tensor.dtype, tuple(full[axis] for axis in inverse(perm)))


_TYPICAL_SIZE = 224
"""Stands for each open dim when elements are counted."""


@lru_cache(maxsize=4096)
def _elements(tensor: TensorType) -> int:
    dims = [
        dim if isinstance(dim, int) else substitute(dim, dict.fromkeys(symbols(dim), _TYPICAL_SIZE))
        for dim in tensor.shape or ()
    ]
    return math.prod(dim for dim in dims if isinstance(dim, int))
