"""Ops that do not mind how their operands' axes are ordered: the same op on tensors whose axes are moved.

A tensor v is `stored` with its axes moved: v = transpose(stored, perm), so axis a of v is axis perm[a] of what is
stored. Each function here says what an op on v is as an op on `stored`, and how its results are then stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from aicore.ir import Node, Op, Shape
from aicore.ops.base import Pointwise
from aicore.ops.movement import Concat, Split
from aicore.ops.ordering import ArgMax, ArgMin
from aicore.ops.quantization import DequantizeLinear, QuantizeLinear
from aicore.ops.reduction import (
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
)
from aicore.ops.resize import Resize
from aicore.ops.shape import Flatten, Reshape, Squeeze, Unsqueeze
from aicore.ops.slicing import Pad, Slice
from aicore.ops.softmax import Hardmax, LogSoftmax, Softmax

Perm: TypeAlias = "tuple[int, ...]"
Moved: TypeAlias = "tuple[Op, Perm] | None"
"""The op on what is stored and how its results are stored; None where it cannot follow."""


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes this one."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def is_identity(perm: Perm) -> bool:
    return perm == tuple(range(len(perm)))


def moves_elements(perm: Perm, shape: Shape) -> bool:
    """Whether transpose(x, perm), whose dims are `shape`, has its elements in another order: not so for dims of 1."""
    kept = [axis for axis, dim in zip(perm, shape, strict=True) if dim != 1]
    return kept != sorted(kept)


def move_axes(node: Node, perm: Perm) -> Moved:
    """The node's op for operands that are stored with this permutation, all of one rank."""
    if isinstance(node.op, Pointwise):
        return node.op, perm
    handler = _HANDLERS.get(type(node.op))
    return None if handler is None else handler(node.op, node, perm)


def takes_all_operands(op: Op) -> bool:
    """Whether all operands have their axes moved; of other ops it is the first alone."""
    return isinstance(op, Pointwise | Concat)


def _along_axis(op: Any, node: Node, perm: Perm) -> Moved:
    return replace(op, axis=perm[op.axis % len(perm)]), perm


def _arg_extreme(op: Any, node: Node, perm: Perm) -> Moved:
    axis = op.axis % len(perm)
    return replace(op, axis=perm[axis]), perm if op.keepdims else _without(perm, (axis,))


def _quantization(op: Any, node: Node, perm: Perm) -> Moved:
    """Of QuantizeLinear and DequantizeLinear: the scale is one number, or stays along the axis that it belongs to."""
    scale = node.inputs[1]
    if op.block_size or scale is None or scale.shape is None:
        return None
    if math.prod(dim if isinstance(dim, int) else 0 for dim in scale.shape) == 1:
        return op, perm
    return _along_axis(op, node, perm)


def _slice(op: Slice, node: Node, perm: Perm) -> Moved:
    if op.axes is None:
        return None
    return replace(op, axes=_moved(op.axes, perm)), perm


def _on_axes(op: Any, node: Node, perm: Perm) -> Moved:
    """Of Pad and Resize: all axes unless some are named."""
    axes_vary = isinstance(op, Pad) and len(node.inputs) > 3
    if axes_vary:
        return None
    return replace(op, axes=_moved(range(len(perm)) if op.axes is None else op.axes, perm)), perm


def _reduction(op: Any, node: Node, perm: Perm) -> Moved:
    if op.axes is None or len(node.inputs) > 1:
        return None
    return replace(op, axes=tuple(sorted(_moved(op.axes, perm)))), perm if op.keepdims else _without(perm, op.axes)


def _moved(axes: Sequence[int], perm: Perm) -> tuple[int, ...]:
    return tuple(perm[axis % len(perm)] for axis in axes)


def _without(perm: Perm, axes: Sequence[int]) -> Perm:
    """The permutation of what is left when these axes are gone."""
    kept = [place for axis, place in enumerate(perm) if axis not in axes]
    return tuple(sorted(kept).index(place) for place in kept)


def _reshape(op: Op, node: Node, perm: Perm) -> Moved:
    """Axes that are split or joined must be stored side by side, in order; dims of 1 come and go anywhere."""
    x, new = node.inputs[0], node.outputs[0].shape
    if x is None or x.shape is None or new is None:
        return None
    old = x.shape
    groups = _groups(old, new)
    if groups is None:
        return None
    place = _rank_among([axis for axis in range(len(old)) if old[axis] != 1], perm)
    if not all(_is_run([place[axis] for axis in axes]) for axes, _ in groups):
        return None
    order = [axis for _, axes in sorted(groups, key=lambda group: place[group[0][0]]) for axis in axes]
    order = _with_units(order, len(new))
    shape = _target([old[axis] for axis in inverse(perm)], [new[axis] for axis in order])
    return None if shape is None else (shape, inverse(tuple(order)))


def _rank_among(axes: Sequence[int], perm: Perm) -> dict[int, int]:
    return {axis: i for i, axis in enumerate(sorted(axes, key=perm.__getitem__))}


def _is_run(places: Sequence[int]) -> bool:
    return all(b == a + 1 for a, b in itertools.pairwise(places))


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Axes of the old shape and of the new one that hold the same elements, dims of 1 left out; None if unclear."""
    before = [axis for axis, dim in enumerate(old) if dim != 1]
    after = [axis for axis, dim in enumerate(new) if dim != 1]
    head, tail = [], []
    while before and after and old[before[0]] == new[after[0]]:
        head.append(([before.pop(0)], [after.pop(0)]))
    while before and after and old[before[-1]] == new[after[-1]]:
        tail.append(([before.pop()], [after.pop()]))
    middle = _split_middle(before, after, old, new)
    return None if middle is None else [*head, *middle, *reversed(tail)]


def _split_middle(
    before: list[int], after: list[int], old: Shape, new: Shape
) -> list[tuple[list[int], list[int]]] | None:
    if not before and not after:
        return []
    if not before or not after:
        return None
    dims = [old[axis] for axis in before] + [new[axis] for axis in after]
    if not all(isinstance(dim, int) and dim > 0 for dim in dims):
        return [(before, after)]
    return _equal_products(before, after, old, new)


def _equal_products(
    before: list[int], after: list[int], old: Any, new: Any
) -> list[tuple[list[int], list[int]]] | None:
    found: list[tuple[list[int], list[int]]] = []
    left, right = list(before), list(after)
    while left and right:
        mine, yours = [left.pop(0)], [right.pop(0)]
        one, two = old[mine[0]], new[yours[0]]
        while one != two:
            if one < two and left:
                mine.append(left.pop(0))
                one *= old[mine[-1]]
            elif one > two and right:
                yours.append(right.pop(0))
                two *= new[yours[-1]]
            else:
                return None
        found.append((mine, yours))
    return None if left or right else found


def _with_units(order: list[int], rank: int) -> list[int]:
    """The stored order with axes of dims of 1 put in: the first, mostly a batch, stays so; others by a neighbour."""
    found = list(order)
    for axis in reversed(range(rank)):
        if axis in order:
            continue
        if axis == 0:
            found.insert(0, axis)
        elif axis + 1 in found:
            found.insert(found.index(axis + 1), axis)
        else:
            lower = [a for a in found if a < axis]
            found.insert(found.index(max(lower)) + 1 if lower else 0, axis)
    return found


def _target(old: Sequence[Any], new: Sequence[Any]) -> Reshape | None:
    """Reshape to the new dims: a symbol must stay in its place, or be the only one to be worked out."""
    if 0 in new:
        return Reshape(tuple(new), allowzero=1) if all(isinstance(dim, int) for dim in new) else None
    shape: list[int] = []
    for i, dim in enumerate(new):
        if isinstance(dim, int):
            shape.append(dim)
        else:
            shape.append(0 if i < len(old) and old[i] == dim else -1)
    return Reshape(tuple(shape)) if shape.count(-1) <= 1 else None


_HANDLERS: dict[type[Op], Callable[[Any, Node, Perm], Moved]] = {
    **dict.fromkeys((Concat, Split, Softmax, LogSoftmax, Hardmax), _along_axis),
    **dict.fromkeys((ArgMax, ArgMin), _arg_extreme),
    **dict.fromkeys((QuantizeLinear, DequantizeLinear), _quantization),
    Slice: _slice,
    **dict.fromkeys((Pad, Resize), _on_axes),
    **dict.fromkeys((ReduceSum, ReduceMean, ReduceProd, ReduceMax, ReduceMin), _reduction),
    **dict.fromkeys((ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp, ReduceSumSquare), _reduction),
    **dict.fromkeys((Reshape, Flatten, Squeeze, Unsqueeze), _reshape),
}
