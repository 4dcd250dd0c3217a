"""Attention reads its operands where they were made, instead of copies in another order."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from aicore.ir import Builder, Graph, Node, Op, Origin, Value
from aicore.ops.arithmetic import Div, Mul
from aicore.ops.attention import DotProductAttention, is_factor
from aicore.ops.fused_linear import GemmAct, MatMulAdd
from aicore.ops.gather import Gather
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.movement import Split, Transpose
from aicore.ops.shape import Reshape
from aicore.ops.slicing import Slice
from aicore.passes.base import RulePass
from aicore.passes.remove_dead import without_dead
from aicore.records import dataclass
from aicore.rewrite import Context, Rule, require, rule

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class View:
    """Elements of a dense tensor: by axis how many, how far apart, and where the first one is.

    factor: what they are multiplied by.
    """

    source: Value
    sizes: Sizes
    strides: Sizes
    first: int = 0
    factor: float = 1.0

    @classmethod
    def whole(cls, value: Value) -> View:
        sizes = value.type.static_shape
        return cls(value, sizes, _steps(sizes))

    def through(self, source: Value, steps: Sizes, first: int) -> View | None:
        """The same elements in a source whose elements `steps` apart are neighbours here, along each axis.

        None where an axis of the view spans several axes of what it looks at.
        """
        shape = self.source.type.static_shape
        own, places = _steps(shape), list(map(int, np.unravel_index(self.first, shape)))
        found = first + sum(place * step for place, step in zip(places, steps, strict=True))
        strides = []
        for size, stride in zip(self.sizes, self.strides, strict=True):
            axis = next((a for a in range(len(shape)) if own[a] <= stride < own[a] * shape[a]), None)
            if size > 1 and (axis is None or stride % own[axis]):
                return None
            if size == 1 or axis is None:
                strides.append(0)
                continue
            places[axis] += (size - 1) * stride // own[axis]
            strides.append(stride // own[axis] * steps[axis])
        if any(place >= size for place, size in zip(places, shape, strict=True)):
            return None
        return replace(self, source=source, strides=tuple(strides), first=found)

    def layout(self, axes: str) -> tuple[str, Sizes, int] | None:
        """(layout, dims, part) such that the source, reshaped to these dims, has the view's axes in this order.

        None where that takes more than one axis beside them, or where features are no neighbours.
        """
        order = sorted((stride, axis, size) for axis, size, stride in zip(axes, self.sizes, self.strides, strict=True))
        found: list[tuple[str, int]] = []
        reached, part_stride = 1, 0
        whole = math.prod(self.source.type.static_shape)
        for stride, axis, size in [*((s, a, n) for s, a, n in order if n > 1), (whole, "", 1)]:
            if stride != reached:
                if part_stride or stride % reached:
                    return None
                part_stride = reached
                found.append(("p", stride // reached))
            found.append((axis, size))
            reached = stride * size
        part, rest = divmod(self.first, part_stride or 1)
        if rest or (not part_stride and self.first):
            return None
        ones = [(axis, 1) for axis, size in zip(axes, self.sizes, strict=True) if size == 1]
        placed = [*ones, *((axis, size) for axis, size in reversed(found) if axis)]
        if placed[-1][0] != "d":
            return None
        return "".join(axis for axis, _ in placed), tuple(size for _, size in placed), part


def _steps(shape: Sizes) -> Sizes:
    """The strides of a dense tensor, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True)
class Move:
    """What a node does with the memory of its operand: which one, and its steps along each axis of the result."""

    source: Value
    steps: Sizes
    first: int = 0


def _transposed(op: Transpose, index: int, x: Value) -> Move | None:
    steps = _steps(x.type.static_shape)
    return Move(x, tuple(steps[axis] for axis in op.perm or ()))


def _gathered(op: Gather, index: int, x: Value, indices: Value) -> Move | None:
    known = indices.known
    if known is None or known.ndim:
        return None
    steps, axis = _steps(x.type.static_shape), op.axis % (x.rank or 1)
    place = int(known) % x.type.static_shape[axis]
    return Move(x, steps[:axis] + steps[axis + 1 :], place * steps[axis])


def _sliced(op: Slice, index: int, x: Value, *bounds: Value | None) -> Move | None:
    if any(bound is not None for bound in bounds) or op.starts is None:
        return None
    if any(step != 1 for step in op.steps or ()):
        return None
    shape, steps = x.type.static_shape, _steps(x.type.static_shape)
    axes = range(len(op.starts)) if op.axes is None else op.axes
    starts = [(axis % len(shape), start) for axis, start in zip(axes, op.starts, strict=True)]
    return Move(x, steps, sum(_clamped(start, shape[axis]) * steps[axis] for axis, start in starts))


def _clamped(start: int, size: int) -> int:
    return min(max(start + size if start < 0 else start, 0), size)


def _split(op: Split, index: int, x: Value, sizes: Value | None = None) -> Move | None:
    if sizes is not None:
        return None
    shape, steps = x.type.static_shape, _steps(x.type.static_shape)
    axis = op.axis % len(shape)
    each = -(-shape[axis] // (op.num_outputs or 1))
    before = index * each if op.split is None else sum(op.split[:index])
    return Move(x, steps, before * steps[axis])


_MOVES: dict[type[Op], Callable[..., Move | None]] = {
    Transpose: _transposed,
    Gather: _gathered,
    Slice: _sliced,
    Split: _split,
}


class _Tracer:
    """Follows operands to where they were made. builder: takes products that are made anew."""

    def __init__(self, graph: Graph, builder: Builder) -> None:
        self._graph = graph
        self._builder = builder
        self._turned: dict[Node, Value] = {}
        self._moved = Counter(
            value for node in graph.nodes if node.op.alias or type(node.op) in _MOVES for value in node.inputs
        )

    def trace(self, value: Value, axes: str, scaled: bool) -> tuple[View, tuple[str, Sizes, int]] | None:
        """The view that got furthest and that a layout can say; None when there is none beyond the value itself."""
        view: View | None = View.whole(value)
        best = None
        while view is not None:
            view = self._beyond(view, scaled)
            layout = None if view is None else view.layout(axes)
            if view is not None and layout is not None:
                best = view, layout
        return best

    def _beyond(self, view: View, scaled: bool) -> View | None:
        """The view of what the view's source was made from."""
        node = self._graph.producer.get(view.source)
        if node is None or any(v is not None and not v.type.is_static for v in node.inputs) or 0 in view.sizes:
            return None
        if node.op.alias and node.inputs[0] is not None:
            return replace(view, source=node.inputs[0])
        if type(node.op) in _MOVES:
            move = _MOVES[type(node.op)](node.op, node.outputs.index(view.source), *node.inputs)
            return None if move is None else view.through(move.source, move.steps, move.first)
        if isinstance(node.op, Mul | Div):
            return _unscaled(view, node) if scaled else None
        return self._turn(view, node)

    def _turn(self, view: View, node: Node) -> View | None:
        """product(transpose(x), w) as transpose(product(x, w)), where only axes in front of the last change places."""
        if not isinstance(node.op, MatMulAdd | MatMul) or not self._is_only_moved(view.source):
            return None
        a, w, *bias = node.inputs
        made = None if a is None else self._graph.producer.get(a)
        if made is None or w is None or not isinstance(made.op, Transpose) or w.rank != 2:
            return None
        perm, x = made.op.perm or (), made.inputs[0]
        if len(perm) < 3 or perm[-1] != len(perm) - 1 or any(b is None or (b.rank or 0) > 1 for b in bias):
            return None
        if node not in self._turned:
            self._turned[node] = self._builder.apply(node.op, x, w, *bias, origin=node.origin)
        result = self._turned[node]
        steps = _steps(result.type.static_shape)
        return view.through(result, tuple(steps[axis] for axis in perm), 0)

    def _is_only_moved(self, value: Value) -> bool:
        """Whether nobody computes with the value itself, so that it may be made in another order of rows."""
        return self._graph.uses[value] == self._moved[value]


def _unscaled(view: View, node: Node) -> View | None:
    """Through a multiplication by a constant number, or a division by one."""
    a, b = node.inputs
    if a is None or b is None:
        return None
    if isinstance(node.op, Mul) and a.known is not None:
        a, b = b, a
    number = None if b.known is None or b.known.size != 1 else float(b.known.ravel()[0])
    if number is None or a.type != view.source.type or (isinstance(node.op, Div) and number == 0):
        return None
    factor = view.factor * (1 / number if isinstance(node.op, Div) else number)
    return replace(view, source=a, factor=factor) if is_factor(factor) else None


def _read(graph: Graph, node: Node, tracer: _Tracer, builder: Builder, origin: Origin) -> tuple[Op, list[Value]] | None:
    """The attention with operands from further up, and these; None when there are none."""
    op = node.op
    assert isinstance(op, DotProductAttention)
    layouts, parts, operands, scale = [op.q_layout, op.k_layout, op.v_layout], list(op.parts), [], op.scale
    moved = False
    for index in range(3):
        value = node.inputs[index]
        assert value is not None
        layout = layouts[index]
        found = None if "p" in layout or not value.type.is_static else tracer.trace(value, layout, scaled=index < 2)
        if found is None:
            operands.append(value)
            continue
        moved = True
        view, (layouts[index], dims, parts[index]) = found
        scale *= view.factor
        operands.append(_reshaped(view.source, dims, builder, origin))
    if not moved or not is_factor(scale):
        return None
    q, k, v = layouts
    return replace(op, scale=scale, q_layout=q, k_layout=k, v_layout=v, parts=tuple(parts)), operands


def _reshaped(source: Value, dims: Sizes, builder: Builder, origin: Origin) -> Value:
    """The source with these dims: itself, what another operand made of it, or anew."""
    made = {node.inputs[0]: node.outputs[0] for node in builder.nodes if isinstance(node.op, Reshape)}
    same = source if source.type.static_shape == dims else made.get(source)
    if same is not None and same.type.static_shape == dims:
        return same
    found: Value = builder.apply(Reshape(shape=dims), source, origin=origin)
    return found


def read_views(graph: Graph, ctx: Context, name: str) -> Graph:
    """The graph whose attentions read their operands where they were made."""
    builder = Builder()
    tracer = _Tracer(graph, builder)
    nodes: list[Node] = []
    for node in graph.nodes:
        made = None
        if isinstance(node.op, DotProductAttention):
            made = _replaced(graph, node, tracer, builder, ctx, name)
        nodes += builder.nodes if made is not None else ()
        builder.nodes.clear()
        nodes.append(node if made is None else made)
    if all(one is other for one, other in itertools.zip_longest(nodes, graph.nodes)):
        return graph
    return without_dead(replace(graph, nodes=tuple(nodes)), ctx)


def _replaced(graph: Graph, node: Node, tracer: _Tracer, builder: Builder, ctx: Context, name: str) -> Node | None:
    origin = Origin(parts=(node.origin,), rule=name, match=ctx.matches)
    found = _read(graph, node, tracer, builder, origin)
    if found is None:
        return None
    op, operands = found
    inputs = (*operands, *node.inputs[3:])
    if ctx.supports(op, *(value and value.type for value in inputs)) is not None or not ctx.change(name):
        return None
    return Node(op, inputs, node.outputs, origin)


@rule(
    lambda op, q, k, v, w, inner, outer, perm, attention, product, c=None: op.Transpose(
        op.Reshape(
            op.apply(product, op.Reshape(op.apply(attention, q, k, v), shape=inner), w, c),
            shape=outer,
        ),
        perm=perm,
    ),
    lambda op, q, k, v, mask, w, inner, outer, perm, attention, product, c=None: op.Transpose(
        op.Reshape(
            op.apply(product, op.Reshape(op.apply(attention, q, k, v, mask), shape=inner), w, c),
            shape=outer,
        ),
        perm=perm,
    ),
)
def order_rows_of_attention(
    op: Any,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    w: Value,
    c: Value | None,
    inner: Sizes,
    outer: Sizes,
    perm: Sizes,
    attention: DotProductAttention,
    product: Gemm | GemmAct,
) -> Value:
    """transpose(gemm(rows of attention)) -> gemm(rows of attention) in the order that is wanted"""
    result = attention.infer(q, k, v, mask)
    require(not isinstance(result, tuple) and result.is_static, "the sizes are open", q)
    sizes = () if isinstance(result, tuple) else result.static_shape
    require(perm == (1, 0, 2) and len(sizes) == 4, "it does more than exchange the first two axes")
    require(_says(inner, (sizes[0] * sizes[1], math.prod(sizes[2:]))), f"{inner} are not the rows of the attention")
    require(_says(outer, (*sizes[:2], outer[-1])), f"{outer} are not the rows of the attention")
    gemm = product.gemm if isinstance(product, GemmAct) else product
    require(not gemm.transA and (c is None or (c.rank or 0) <= 1), "the product has something else for each row", c)
    layout = attention.y_layout
    turned = replace(attention, y_layout=layout[1] + layout[0] + layout[2:])
    reason = op.supports(turned, q, k, v, mask)
    require(reason is None, f"no kernel for DotProductAttention: {reason}")
    flat = op.Reshape(op.apply(turned, q, k, v, mask), shape=inner)
    found: Value = op.Reshape(op.apply(product, flat, w, c), shape=(sizes[1], sizes[0], outer[-1]))
    return found


def _says(shape: Sizes, dims: Sizes) -> bool:
    """Whether a Reshape to this shape gives these dims, where one may be what is left over."""
    return len(shape) == len(dims) and all(said in (dim, -1) for said, dim in zip(shape, dims, strict=True))


@dataclass(frozen=True)
class ReadViews(RulePass):
    """Attention reads parts and other orders of axes in place, and writes the order that is wanted."""

    name: ClassVar[str] = "read-views"
    phase: ClassVar[str] = "fuse"
    before: ClassVar[tuple[str, ...]] = ("place-channels-last", "fuse-pointwise")
    after: ClassVar[tuple[str, ...]] = ("fuse-attention", "fuse-linear")
    rules: ClassVar[tuple[Rule, ...]] = (order_rows_of_attention,)

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        if not any(isinstance(node.op, DotProductAttention) for node in graph.nodes):
            return graph
        return super().apply(read_views(graph, ctx, self.name), ctx)
