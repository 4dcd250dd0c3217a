"""Products and convolutions of codes, and what of the nodes behind them an Int8Linear can take in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aicore.ir import Node, Op, Value, constant_value
from aicore.ops.activation import Activation, Clip, Relu
from aicore.ops.arithmetic import Add, Mul
from aicore.ops.cast import Cast
from aicore.ops.convolution import Conv
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.quantized_linear import MOST_TERMS, MatMulInteger, QLinearConv, QLinearMatMul, as_conv
from aicore_int8_quant.ops.linear import Int8Conv, Int8Linear, Int8MatMul, folded_scale
from aicore_int8_quant.ops.weight_only import WeightOnlyMatMul
from aicore_int8_quant.passes._codes import CodeReader, Codes, transposed

Array = np.ndarray[Any, Any]
ONE = np.float32(1)
_SAME_SCALE = 1e-6
"""By how much the scale of a bias may differ from the product of the scales, which others round elsewhere."""


@dataclass(frozen=True)
class Operands:
    """Those of an Int8Linear, by name; see there."""

    x: Value
    w: Value
    scale: Value
    x_zero_point: Value | None = None
    w_zero_point: Value | None = None
    bias: Value | None = None
    addend: Value | None = None
    addend_scale: Value | None = None
    addend_zero_point: Value | None = None
    y_scale: Value | None = None
    y_zero_point: Value | None = None

    def all(self) -> tuple[Value | None, ...]:
        return (
            *(self.x, self.w, self.scale, self.x_zero_point, self.w_zero_point, self.bias),
            *(self.addend, self.addend_scale, self.addend_zero_point, self.y_scale, self.y_zero_point),
        )


@dataclass(frozen=True)
class Product:
    """A fusion while it grows. scales: of x and w, where they are numbers.

    members: the node that it began with and those it took in, each with the operand that was the product so far.
    """

    op: Int8Linear
    operands: Operands
    scales: tuple[Array, Array] | None = None
    members: tuple[tuple[Node, Value | None], ...] = ()


def started(
    node: Node, reader: CodeReader, producer: Mapping[Value, Node], uses: Mapping[Value, int]
) -> Product | None:
    """The int8 op for the product at a node alone; None where there is none."""
    found = None
    if isinstance(node.op, Conv | Gemm | MatMul):
        found = _of_real(node, reader)
    elif isinstance(node.op, QLinearConv | QLinearMatMul):
        found = _of_qlinear(node)
    elif isinstance(node.op, Mul):
        found = _of_integers(node, producer, uses)
    return None if found is None else replace(found, members=((node, None),))


def grown(product: Product, node: Node, value: Value, reader: CodeReader) -> Product | None:
    """With `node`, which reads the result `value` of the product and nothing else does; None if that cannot be."""
    found = _with_node(product, node, value, reader)
    return None if found is None else replace(found, members=(*product.members, (node, value)))


def _with_node(product: Product, node: Node, value: Value, reader: CodeReader) -> Product | None:
    if product.operands.y_scale is not None:
        return None
    if isinstance(node.op, Add):
        other = node.inputs[1] if node.inputs[0] is value else node.inputs[0]
        if other is None or other is value or product.op.activation is not None:
            return None
        return _with_addend(product, other, value, reader)
    if isinstance(node.op, Activation):
        single = sum(operand is not None for operand in node.inputs) == 1
        if not single or product.op.activation is not None:
            return None
        return replace(product, op=replace(product.op, activation=node.op))
    return _quantized(product, node, reader)


def _of_real(node: Node, reader: CodeReader) -> Product | None:
    """Conv, Gemm or MatMul of dequantised operands."""
    x, w = reader.of(node.inputs[0]), reader.of(node.inputs[1])
    if x is None or w is None or not x.is_single or x.values.dtype == "int32" or w.values.dtype == "int32":
        return None
    op = node.op
    if isinstance(op, Gemm):
        if op.transA or op.alpha != 1 or op.beta != 1 or (op.transB and w.values.constant is None):
            return None
        w = transposed(w, (1, 0)) if op.transB else w
    if (x.values.rank or 0) < 2 or (w.values.rank or 0) < 2 or _too_long(op, w):
        return None
    channels = 0 if isinstance(op, Conv) else (w.values.rank or 2) - 1
    if w.axis not in (None, channels):
        return None
    made: Int8Linear = Int8Conv(conv=op) if isinstance(op, Conv) else Int8MatMul()
    operands = Operands(
        x=x.values,
        w=w.values,
        scale=constant_value(folded_scale(x.scale, w.scale), "scale"),
        x_zero_point=constant_value(x.points, "x_zero_point"),
        w_zero_point=None if not w.points.any() else constant_value(w.points, "w_zero_point"),
    )
    found = Product(made, operands, (x.scale, w.scale))
    return found if len(node.inputs) < 3 or node.inputs[2] is None else _with_bias(found, node.inputs[2], reader)


def _too_long(op: Op, w: Codes) -> bool:
    if not w.values.type.is_static:
        return False
    shape = w.values.type.static_shape
    return (int(np.prod(shape[1:])) if isinstance(op, Conv) else shape[-2]) > MOST_TERMS


def _of_qlinear(node: Node) -> Product | None:
    """QLinearConv or QLinearMatMul with constant scales, one for x."""
    x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias = (*node.inputs, None)[:9]
    scales = [None if s is None or s.constant is None else s.constant.array for s in (x_scale, w_scale, y_scale)]
    if x is None or w is None or any(s is None or s.dtype != np.float32 for s in scales) or scales[0].size != 1:  # type: ignore[union-attr]
        return None
    if min(x.rank or 0, w.rank or 0) < 2 or scales[1].ndim > 1:  # type: ignore[union-attr]
        return None
    made: Int8Linear = Int8Conv(conv=as_conv(node.op)) if isinstance(node.op, QLinearConv) else Int8MatMul()
    scale = folded_scale(*scales)  # type: ignore[arg-type]
    operands = Operands(
        x=x,
        w=w,
        scale=constant_value(scale.reshape(()) if scale.size == 1 else scale, "scale"),
        x_zero_point=x_zero_point,
        w_zero_point=w_zero_point,
        bias=bias,
        y_scale=constant_value(ONE, "one"),
        y_zero_point=y_zero_point,
    )
    return Product(made, operands)


def _of_integers(node: Node, producer: Mapping[Value, Node], uses: Mapping[Value, int]) -> Product | None:
    """Mul(Cast(MatMulInteger(x, w)), scale), where the scale may be computed."""
    for real, scale in (node.inputs, node.inputs[::-1]):
        cast = None if real is None or uses[real] != 1 else producer.get(real)
        if cast is None or scale is None or not isinstance(cast.op, Cast) or node.outputs[0].dtype != "float32":
            continue
        sums = cast.inputs[0]
        integer = None if sums is None or uses[sums] != 1 else producer.get(sums)
        if integer is None or not isinstance(integer.op, MatMulInteger):
            continue
        x, w, x_zero_point, w_zero_point = (*integer.inputs, None, None)[:4]
        if x is None or w is None or min(x.rank or 0, w.rank or 0) < 2 or not w.shape:
            continue
        if scale.shape in ((), (w.shape[-1],)):
            return Product(Int8MatMul(), Operands(x, w, scale, x_zero_point, w_zero_point))
    return None


def _with_addend(found: Product, other: Value, result: Value, reader: CodeReader) -> Product | None:
    """A vector that every row gets is a bias; a tensor of the result's type is a residual."""
    codes = reader.of(other)
    vector = _vector_length(other if codes is None else codes.values)
    if vector is not None and isinstance(found.op, Int8MatMul) and vector == (result.shape or (0,))[-1]:
        return _with_bias(found, other, reader)
    if found.operands.addend is not None or other.type != result.type:
        return None
    if codes is None or not codes.is_single or codes.values.dtype == "int32":
        return replace(found, operands=replace(found.operands, addend=other))
    operands = replace(
        found.operands,
        addend=codes.values,
        addend_scale=constant_value(codes.scale, "addend_scale"),
        addend_zero_point=constant_value(codes.points, "addend_zero_point"),
    )
    return replace(found, operands=operands)


def _vector_length(value: Value) -> int | None:
    """The length of a constant vector, with any dims of 1 before."""
    shape = () if value.constant is None else value.constant.array.shape
    return shape[-1] if shape and all(dim == 1 for dim in shape[:-1]) else None


def _with_bias(found: Product, value: Value, reader: CodeReader) -> Product | None:
    """In int32 where its scale is the product of the scales and there is room, else in floating point."""
    codes = reader.of(value)
    source = value if codes is None else codes.values
    if source.constant is None or _vector_length(source) is None:
        return None
    numbers = source.constant.array.reshape(-1)
    if codes is not None and found.scales is not None and found.operands.bias is None and _fits(codes, found.scales):
        return replace(found, operands=replace(found.operands, bias=constant_value(numbers, "bias")))
    if found.operands.addend is not None:
        return None
    if codes is not None:
        numbers = ((numbers.astype(np.int64) - codes.points).astype(np.float32) * codes.scale).astype(np.float32)
    if isinstance(found.op, Int8Conv):
        numbers = numbers.reshape(-1, *(1,) * (max(found.operands.w.rank or 2, 2) - 2))
    return replace(found, operands=replace(found.operands, addend=constant_value(numbers, "bias")))


def _fits(codes: Codes, scales: tuple[Array, Array]) -> bool:
    wanted = scales[0].astype(np.float64) * scales[1].astype(np.float64)
    near = np.abs(codes.scale.astype(np.float64) - wanted) <= _SAME_SCALE * np.abs(wanted)
    return codes.values.dtype == "int32" and not codes.points.any() and bool(near.all())


def _quantized(found: Product, following: Node, reader: CodeReader) -> Product | None:
    """With the QuantizeLinear behind it; its scale joins the others where only a clamp stands between."""
    target = reader.target(following)
    if target is None:
        return None
    op, operands, scale = found.op, found.operands, target.scale
    clamped = _clamped(op.activation, scale)
    if found.scales is not None and operands.addend is None and clamped is not None:
        folded = folded_scale(*found.scales, target.scale)
        if np.isfinite(folded).all():
            op = op if op.activation is None else replace(op, activation=clamped)
            operands = replace(operands, scale=constant_value(folded, "scale"))
            scale = np.asarray(ONE)
    operands = replace(
        operands, y_scale=constant_value(scale, "y_scale"), y_zero_point=constant_value(target.points, "y_zero_point")
    )
    return replace(found, op=op, operands=operands)


def _clamped(activation: Activation | None, scale: Array) -> Activation | None:
    """The clamp in units of the result's scale; Relu for none at all, which is not used; None for no clamp."""
    if activation is None or isinstance(activation, Relu):
        return Relu()
    if not isinstance(activation, Clip):
        return None
    bounds = [None if b is None else float(np.float32(b) / np.float32(scale)) for b in (activation.min, activation.max)]
    return Clip(*bounds)


def weight_only(node: Node, reader: CodeReader) -> tuple[Op, tuple[Value | None, ...]] | None:
    """MatMul(x, DequantizeLinear(w)), where w is a constant matrix and x is no tensor of codes."""
    if not isinstance(node.op, MatMul) or reader.of(node.inputs[0]) is not None:
        return None
    x, w = node.inputs[0], reader.of(node.inputs[1])
    if x is None or x.dtype != "float32" or w is None or w.values.constant is None:
        return None
    if w.values.rank != 2 or w.axis == 0 or w.values.dtype == "int32":
        return None
    points = constant_value(w.points, "w_zero_point") if w.points.any() else None
    return WeightOnlyMatMul(), (x, w.values, constant_value(w.scale, "w_scale"), points)
