"""What a fused op computes before its last activation, where that activation may bend.

The condition of the whole op sees only its slope at the exact result. Where a sum is -1e-8 before Relu, that slope is 0
and nothing would be allowed, though the sum itself may be off by more than it lies below the bend. But activations are
Lipschitz: an error of e before one is an error of at most L e behind it. What is allowed there is the activation's own
change when the sum moves by what it may be off by: never more than L e, and 0 where Relu is shut by far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from aicore.ir import Op
from aicore.ops.activation import Activation
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct, GemmAct, MatMulAdd, MatMulAddAct, ScaleActConv
from aicore.ops.fused_pointwise import Region
from aicore.ops.layout import ChannelsLast

Array = np.ndarray[Any, Any]
Evaluate: TypeAlias = Callable[..., "tuple[Array, ...]"]


def before_activation(op: Op) -> tuple[Op, Op] | None:
    """The op without the activation that makes its result, and that activation; None where there is none."""
    match op:
        case ConvAct():
            return op.conv, op.activation
        case ConvAddAct():
            return ConvAdd(op.conv), op.activation
        case GemmAct():
            return op.gemm, op.activation
        case MatMulAddAct():
            return MatMulAdd(), op.activation
        case ScaleActConv(conv=ConvAct() as held):
            return replace(op, conv=held.conv), held.activation
        case ChannelsLast():
            found = before_activation(op.inner)
            return None if found is None else (replace(op, inner=found[0]), found[1])
        case Region():
            return _before_last_node(op)
    return None


def _before_last_node(region: Region) -> tuple[Op, Op] | None:
    body = region.body
    if len(body.outputs) > 1:
        return None
    ((name, result),) = body.outputs
    last = body.producer.get(result)
    if last is None or not isinstance(last.op, Activation) or len(last.inputs) > 1 or last.inputs[0] is None:
        return None
    nodes = tuple(node for node in body.nodes if node is not last)
    return Region(replace(body, nodes=nodes, outputs=((name, last.inputs[0]),))), last.op


def with_input_of_activation(evaluate: Evaluate, op: Op, *operands: Array | None) -> tuple[Array, ...]:
    """The result of an op that ends with an activation, and what the activation was given."""
    split = before_activation(op)
    assert split is not None  # the caller asked
    before, activation = split
    (given,) = evaluate(before, *operands)
    (result,) = evaluate(activation, given)
    return result, given


def change_by_activation(evaluate: Evaluate, op: Op, result: Array, given: Array, error: Array) -> Array:
    """How far the result of an op that ends with an activation may move where the activation's input has an error."""
    split = before_activation(op)
    assert split is not None  # the caller asked
    with np.errstate(all="ignore"):
        moved = [evaluate(split[1], (given + step).astype(given.dtype))[0] for step in (error, -error)]
        change = np.maximum(*(np.abs(a.astype(np.float64) - result) for a in moved))
    return np.where(np.isfinite(change), change, 0.0)
