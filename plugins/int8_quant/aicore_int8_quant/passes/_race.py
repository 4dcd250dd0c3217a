"""Whether a product is faster in floating point on the target than on 8-bit integers, as far as that is known."""

from __future__ import annotations

from collections.abc import Mapping

from aicore.ir import Node, Op, TensorType, Value
from aicore.ops.layout import ChannelsLast, channels_first, images_of, knows_channels
from aicore.ops.quantization import DequantizeLinear
from aicore.rewrite import Context
from aicore_int8_quant.passes._products import Product

NO_RACE = ("", "cpu")
"""Devices on which int8 is taken in any case: on the CPU it is for knowing beforehand what others will give."""


def float_is_faster(node: Node, product: Product, producer: Mapping[Value, Node], ctx: Context) -> bool:
    """A product of dequantised operands, without what follows it, which costs either way about the same.

    In floating point the codes of x become numbers first, and weights are numbers when the program is compiled.
    """
    if ctx.device in NO_RACE:
        return False
    integers = _seconds(ctx, product.op, product.operands.all())
    floats = _seconds(ctx, node.op, node.inputs)
    if integers is None or floats is None:
        return False
    for value in node.inputs[:2]:
        source = None if value is None else producer.get(value)
        if source is None or not isinstance(source.op, DequantizeLinear):
            continue
        if source.inputs[0] is None or source.inputs[0].constant is not None:
            continue
        taken = _seconds(ctx, source.op, source.inputs)
        floats += 0.0 if taken is None else taken
    if integers <= floats:
        return False
    ctx.note(
        f"{node} stays in floating point: {floats * 1e6:.1f} us on {ctx.device}, and {integers * 1e6:.1f} us in int8"
    )
    return True


def _seconds(ctx: Context, op: Op, operands: tuple[Value | None, ...]) -> float | None:
    """Of the better one of both orders of axes."""
    types = [None if v is None else v.type for v in operands]
    constant = [i for i, v in enumerate(operands) if v is not None and v.constant is not None]
    found = [ctx.seconds(op, *types, constant=constant)]
    rank = operands[0].rank if operands and operands[0] is not None else None
    if knows_channels(op) and rank is not None and rank >= 3:
        images = images_of(op)
        moved = [t if t is None or i not in images else _moved(t, rank) for i, t in enumerate(types)]
        if all(t is not None for t in moved[:1]) and _are_images(types, images, rank):
            found.append(ctx.seconds(ChannelsLast(op, rank), *moved, constant=constant))
    return min((seconds for seconds in found if seconds is not None), default=None)


def _are_images(types: list[TensorType | None], images: tuple[int, ...], rank: int) -> bool:
    """Whether all of them have all axes; a bias in the place of an image has fewer."""
    given = [types[i] for i in images if i < len(types) and types[i] is not None]
    return all(t is not None and t.rank == rank for t in given)


def _moved(tensor: TensorType, rank: int) -> TensorType:
    shape = tensor.shape
    if shape is None or len(shape) != rank:
        return tensor
    first = channels_first(rank)
    return TensorType(tensor.dtype, tuple(shape[first.index(axis)] for axis in range(rank)))
