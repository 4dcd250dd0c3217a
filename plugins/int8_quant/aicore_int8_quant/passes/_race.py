"""Which products the target computes faster in floating point than on 8-bit integers: as measured, else estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aicore.ir import Builder, Graph, Node, Op, TensorType, Value, constant_value
from aicore.ops.activation import Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import GemmAct
from aicore.ops.layout import ChannelsLast, channels_first, images_of, knows_channels
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.quantization import DequantizeLinear, QuantizeLinear
from aicore.rewrite import Context, Race, RaceResult
from aicore_int8_quant.passes._codes import Array, CodeReader, Codes
from aicore_int8_quant.passes._products import Product

INTEGERS, FLOATS = "int8", "float"
_ONE_CODE = 1
_ROUNDING = 1e-3
"""Of the largest result: the sum of one way is exact and that of the other is rounded at each of its many terms."""


@dataclass(frozen=True)
class Entrant:
    """A product with all that it took in, as one Int8Linear and as what the model says.

    start: the node of the product. count: nodes of the model.
    """

    start: Node
    product: Product
    integers: Graph
    floats: Graph

    @property
    def is_sized(self) -> bool:
        """Whether all sizes are known."""
        values = [*self.floats.inputs, *(v for node in self.floats.nodes for v in node.outputs)]
        return all(v.type.is_static and v.type.size for v in values)


def entrant(product: Product, reader: CodeReader) -> Entrant | None:
    """The two ways as graphs of the same inputs: codes, and a residual; None for a product that is no QDQ model's."""
    start, _ = product.members[0]
    if not isinstance(start.op, Conv | Gemm | MatMul):
        return None  # its integers are what the model says, and there is no other way
    given = [v for v in product.operands.all() if v is not None and v.constant is None]
    values = {v: Value(f"operand{i}", v.type) for i, v in enumerate(dict.fromkeys(given))}
    integers = Builder()
    operands = [v if v is None else values.get(v, v) for v in product.operands.all()]
    result = integers.apply(product.op, *operands, names=["y"])
    floats = Builder()
    found = _in_floats(floats, product, reader, values)
    if found is None:
        return None
    graphs = integers.graph(values.values(), {"y": result}), floats.graph(values.values(), {"y": found})
    return Entrant(start, product, *graphs)


def losers(entrants: Sequence[Entrant], ctx: Context) -> frozenset[Value]:
    """Results of the products that are faster in floating point; `ctx` is told which side won, and by what.

    What has open sizes is int8 for now: the pass is asked again for the sizes of each call.
    """
    sized = [one for one in entrants if one.is_sized]
    for one in entrants:
        if not one.is_sized:
            ctx.is_open = True
            ctx.note(f"{one.start} runs in int8 while its sizes are open; those of a call decide anew")
    ctx.verdicts.update({one.start.outputs[0].name: INTEGERS for one in entrants})
    found = set()
    for one, result in zip(sized, ctx.race([_race(one, ctx) for one in sized]), strict=True):
        seconds = _estimates(one, ctx) if isinstance(result, str) else result.seconds
        chosen = _sooner(seconds) if isinstance(result, str) else result.chosen
        ctx.verdicts[one.start.outputs[0].name] = chosen
        if seconds:
            ctx.note(_told(one, ctx.device, chosen, seconds, result))
        if chosen == FLOATS:
            found.add(one.start.outputs[0])
    return frozenset(found)


def _told(one: Entrant, device: str, chosen: str, seconds: Mapping[str, float], result: RaceResult | str) -> str:
    where = "stays in floating point" if chosen == FLOATS else "runs in int8"
    times = " and ".join(f"{seconds[name] * 1e6:.1f} us in {words}" for name, words in _WORDS.items())
    by = f"by estimate ({result})" if isinstance(result, str) else "by time"
    return f"{one.start} {where}: {times} on {device}, {by}"


_WORDS = {INTEGERS: "int8", FLOATS: "floating point"}


def _sooner(seconds: Mapping[str, float]) -> str:
    """A tie is for int8, and so is what nothing is known about."""
    return FLOATS if seconds and seconds[FLOATS] < seconds[INTEGERS] else INTEGERS


def _race(one: Entrant, ctx: Context) -> Race:
    estimates = _estimates(one, ctx)
    return Race({INTEGERS: one.integers, FLOATS: one.floats}, "fuse-int8", estimates, _fault)


def _fault(integers: Sequence[Array], floats: Sequence[Array]) -> str:
    """At most one code apart, as the exactness contract allows."""
    (a,), (b,) = integers, floats
    apart = np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0)
    if a.dtype.kind in "iu":
        return "" if apart <= _ONE_CODE else f"results are up to {apart:g} codes apart"
    limit = _ROUNDING * max(float(np.abs(a).max(initial=0)), 1e-30)
    return "" if apart <= limit else f"results are up to {apart:g} apart, {limit:g} are allowed"


def _in_floats(builder: Builder, product: Product, reader: CodeReader, values: Mapping[Value, Value]) -> Value | None:
    """The members of the product on dequantised operands; None where one of them reads something else."""
    made: dict[Value | None, Value] = {}
    result: Value | None = None
    for node, taken in product.members:
        operands: list[Value | None] = []
        for value in node.inputs:
            real = result if value is taken else _real(builder, value, reader, values, made)
            if value is not None and real is None:
                return None
            operands.append(real)
        result = builder.apply(node.op, *operands, names=[node.outputs[0].name])
    return result


def _real(
    builder: Builder,
    value: Value | None,
    reader: CodeReader,
    values: Mapping[Value, Value],
    made: dict[Value | None, Value],
) -> Value | None:
    """A constant, an input, or an input's codes as numbers."""
    if value is None or value.constant is not None:
        return value
    if value in values:
        return values[value]
    codes = reader.of(value)
    if codes is None:
        return None
    if codes.values.constant is not None:
        return constant_value(_numbers(codes, codes.values.constant.array), value.name)
    given = values.get(codes.values)
    if given is None:
        return None
    if value not in made:
        scale, points = constant_value(codes.scale, "scale"), constant_value(codes.points, "zero_point")
        made[value] = builder.apply(DequantizeLinear(), given, scale, points)
    return made[value]


def _numbers(codes: Codes, array: Array) -> Array:
    scale, points = codes.scale, codes.points
    if codes.axis is not None:
        shape = [-1 if i == codes.axis else 1 for i in range(array.ndim)]
        scale, points = scale.reshape(shape), points.reshape(shape)
    found: Array = (array.astype(np.int64) - points).astype(np.float32) * scale
    return found


def _estimates(one: Entrant, ctx: Context) -> dict[str, float]:
    """Of both ways; empty where one is not known.

    In floating point the codes become numbers and the result codes again; additions and activations in between are
    part of the product's kernel, which costs about what the product alone costs.
    """
    integers = _seconds(ctx, one.product.op, one.integers.nodes[-1].inputs)
    product = next(_product_seconds(ctx, node) for node in one.floats.nodes if isinstance(node.op, _PRODUCTS))
    if integers is None or product is None:
        return {}
    around = [_seconds(ctx, node.op, node.inputs) for node in one.floats.nodes if isinstance(node.op, _BORDERS)]
    return {INTEGERS: integers, FLOATS: product + sum(seconds or 0.0 for seconds in around)}


_PRODUCTS = (Conv, Gemm, MatMul)
_BORDERS = (DequantizeLinear, QuantizeLinear)


def _product_seconds(ctx: Context, node: Node) -> float | None:
    """Of the product, or of what it becomes together with a bias and an activation, if that has better kernels."""
    found = [_seconds(ctx, node.op, node.inputs)]
    matrices = all(v is not None and v.rank == 2 for v in node.inputs[:2])
    if isinstance(node.op, MatMul) and matrices:
        found.append(_seconds(ctx, GemmAct(Gemm(), Relu()), node.inputs))
    return min((seconds for seconds in found if seconds is not None), default=None)


def _seconds(ctx: Context, op: Op, operands: Sequence[Value | None]) -> float | None:
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
