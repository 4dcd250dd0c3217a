"""Functions of one tensor between DequantizeLinear and QuantizeLinear, as a table of 256 codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aicore.ir import Node, Op, Value, as_tuple, constant_value
from aicore.ops.activation import Activation
from aicore.ops.base import Unary
from aicore.ops.quantization import DequantizeLinear
from aicore.rewrite import Context
from aicore_int8_quant.ops.lookup import Int8Lookup
from aicore_int8_quant.passes._codes import CodeReader


def lookup(
    node: Node, reader: CodeReader, producer: Mapping[Value, Node], uses: Mapping[Value, int], ctx: Context
) -> tuple[Op, tuple[Value, Value]] | None:
    """The table for the functions between codes and a QuantizeLinear, and what it is applied to; None without any.

    The reference kernels compute it, so that it has the bits of the chain that it replaces.
    """
    target = reader.target(node)
    if ctx.evaluate is None or target is None:
        return None
    chain: list[Node] = []
    value = node.inputs[0]
    while value is not None and _is_function(producer.get(value)) and uses[value] == 1:
        chain.append(producer[value])
        value = chain[-1].inputs[0]
    codes = reader.of(value)
    if not chain or codes is None or not codes.is_single or codes.values.constant is not None:
        return None
    if codes.values.dtype == "int32":
        return None
    limits = np.iinfo(codes.values.dtype)
    table = np.arange(limits.min, limits.max + 1).astype(codes.values.dtype)
    (numbers,) = as_tuple(ctx.evaluate(DequantizeLinear(), table, codes.scale, codes.points))
    for one in reversed(chain):
        (numbers,) = as_tuple(ctx.evaluate(one.op, numbers))
    (table,) = as_tuple(ctx.evaluate(node.op, numbers, target.scale, target.points))
    return Int8Lookup(), (codes.values, constant_value(table, "table"))


def _is_function(node: Node | None) -> bool:
    """Whether the node computes each element from the same element of its one operand, in float32."""
    if node is None or not isinstance(node.op, Unary | Activation) or not node.op.pure:
        return False
    return sum(value is not None for value in node.inputs) == 1 and node.outputs[0].dtype == "float32"
