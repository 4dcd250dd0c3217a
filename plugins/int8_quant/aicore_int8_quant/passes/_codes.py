"""Looking through DequantizeLinear: which integers a tensor stands for, with scale and zero point as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.ir import Node, Value, as_tuple, constant_value
from aicore.ops.movement import Transpose
from aicore.ops.quantization import DequantizeLinear, QuantizeLinear, quantized_axis

Array = np.ndarray[Any, Any]
EIGHT_BITS = ("int8", "uint8")


@dataclass(frozen=True, eq=False)
class Codes:
    """A tensor of integers, and what they stand for: (values - zero_point) * scale.

    scale: float32, of rank 0, or of rank 1 along `axis`. zero_point: of its shape; None is 0.
    """

    values: Value
    scale: Array
    zero_point: Array | None
    axis: int | None = None

    @property
    def is_single(self) -> bool:
        """Whether there is one scale."""
        return self.axis is None

    def same_scale(self, other: Codes) -> bool:
        """Whether equal integers stand for equal numbers."""
        return (
            self.values.dtype == other.values.dtype
            and self.axis == other.axis
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.points, other.points)
        )

    @property
    def points(self) -> Array:
        """The zero point, also where it is left out."""
        if self.zero_point is not None:
            return self.zero_point
        return np.zeros(self.scale.shape, self.values.dtype)

    def with_values(self, values: Value) -> Codes:
        return Codes(values, self.scale, self.zero_point, self.axis)


class CodeReader:
    """Finds the Codes behind values.

    producer: the node of each value, kept up to date by the caller.
    evaluate: computes an op on arrays; weights that the file quantises while it runs are then constants, too.
    """

    def __init__(self, producer: Mapping[Value, Node], evaluate: Callable[..., Any] | None) -> None:
        self._producer, self._evaluate = producer, evaluate

    def of(self, value: Value | None) -> Codes | None:
        """The codes of what a DequantizeLinear gives, with one scale or one along an axis; None for anything else.

        Looks through a Transpose of constant codes, as weights have it.
        """
        node = None if value is None else self._producer.get(value)
        if node is None:
            return None
        if isinstance(node.op, Transpose):
            return self._transposed(node)
        if not isinstance(node.op, DequantizeLinear) or node.op.block_size or node.outputs[0].dtype != "float32":
            return None
        values, scale, zero_point = (*node.inputs, None)[:3]
        if values is None or scale is None or scale.constant is None or scale.dtype != "float32":
            return None
        if zero_point is not None and zero_point.constant is None:
            return None
        points = None if zero_point is None or zero_point.constant is None else zero_point.constant.array
        return self._codes(self._folded(values), scale.constant.array, points, node.op.axis)

    def target(self, node: Node) -> Codes | None:
        """What a QuantizeLinear with one constant scale makes, as 8-bit codes; None for any other."""
        op = node.op
        if not isinstance(op, QuantizeLinear) or op.block_size or node.outputs[0].dtype not in EIGHT_BITS:
            return None
        scale, zero_point = (*node.inputs, None)[1:3]
        if scale is None or scale.constant is None or scale.dtype != "float32" or op.precision not in (None, "float32"):
            return None
        if zero_point is not None and zero_point.constant is None:
            return None
        points = None if zero_point is None or zero_point.constant is None else zero_point.constant.array
        found = self._codes(node.outputs[0], scale.constant.array, points, op.axis)
        return found if found is not None and found.is_single else None

    def _codes(self, values: Value, scale: Array, points: Array | None, axis: int) -> Codes | None:
        if scale.size == 1:
            return Codes(values, scale.reshape(()), None if points is None else points.reshape(()))
        if values.rank is None or scale.ndim != 1:
            return None
        return Codes(values, scale, points, quantized_axis(axis, values.rank))

    def _folded(self, values: Value) -> Value:
        """The constant that a QuantizeLinear of constants gives."""
        node = self._producer.get(values)
        known = node is not None and all(v is None or v.constant is not None for v in node.inputs)
        if node is None or not known or not isinstance(node.op, QuantizeLinear) or self._evaluate is None:
            return values
        arrays = [None if v is None or v.constant is None else v.constant.array for v in node.inputs]
        return constant_value(as_tuple(self._evaluate(node.op, *arrays))[0], values.name)

    def _transposed(self, node: Node) -> Codes | None:
        inner = self.of(node.inputs[0])
        if inner is None or inner.values.constant is None:
            return None
        return transposed(inner, node.op.perm)  # type: ignore[attr-defined]


def transposed(codes: Codes, perm: tuple[int, ...]) -> Codes:
    """Constant codes with their axes in another order."""
    assert codes.values.constant is not None  # the caller saw to it
    array = np.ascontiguousarray(codes.values.constant.array.transpose(perm))
    axis = None if codes.axis is None else perm.index(codes.axis)
    return Codes(constant_value(array, codes.values.name), codes.scale, codes.zero_point, axis)
