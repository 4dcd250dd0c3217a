"""A small graph as it is inside a network whose images have their channels last, transposes at its borders left out."""

from __future__ import annotations

import numpy as np

from aicore.ir import Builder, Graph, Node, Op, TensorType, Value, as_tuple, constant_value
from aicore.ops.layout import ChannelsLast, channels_first, images_of, knows_channels
from aicore.passes._moved_axes import Perm, inverse, move_axes, takes_all_operands


def in_channels_last(graph: Graph) -> Graph | None:
    """The graph on inputs with channels last, and its results so; None where one of its ops would need another order.

    Its tensors are images of one rank, numbers and constants.
    """
    ranks = {v.rank for node in graph.nodes if knows_channels(node.op) for v in node.inputs[:1] if v is not None}
    rank = ranks.pop() if len(ranks) == 1 else None
    images = [*graph.inputs, *(value for node in graph.nodes for value in node.outputs)]
    if rank is None or rank < 3 or any(value.rank != rank for value in images):
        return None
    perm, builder = channels_first(rank), Builder()
    inputs = [Value(value.name, _moved_type(value.type, perm)) for value in graph.inputs]
    stored: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        found = _moved_op(node, rank, perm)
        if found is None:
            return None
        op, moves = found
        operands = [
            value if value is None or not moved else stored.get(value) or _moved_constant(value, perm)
            for value, moved in zip(node.inputs, moves, strict=True)
        ]
        results = as_tuple(builder.apply(op, *operands, names=[value.name for value in node.outputs]))
        stored.update(zip(node.outputs, results, strict=True))
    return builder.graph(inputs, {name: stored[value] for name, value in graph.outputs})


def _moved_op(node: Node, rank: int, perm: Perm) -> tuple[Op, list[bool]] | None:
    """The op, and which operands have their axes moved."""
    count = len(node.inputs)
    if knows_channels(node.op):
        return ChannelsLast(node.op, rank), [i in images_of(node.op) for i in range(count)]
    found = move_axes(node, perm)
    if found is None or found[1] != perm:
        return None
    return found[0], [i == 0 or takes_all_operands(node.op) for i in range(count)]


def _moved_constant(value: Value, perm: Perm) -> Value:
    """With leading dims of 1; a single number stays as it is."""
    assert value.constant is not None  # everything else is an input, or a result
    array = value.constant.array
    if array.size == 1:
        return value
    full = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
    return constant_value(np.ascontiguousarray(full.transpose(inverse(perm))), value.name)


def _moved_type(tensor: TensorType, perm: Perm) -> TensorType:
    shape = tensor.shape
    assert shape is not None  # its rank is known
    return TensorType(tensor.dtype, tuple(shape[axis] for axis in inverse(perm)))
