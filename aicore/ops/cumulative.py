"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, field_content
from aicore.ir.value import Value
from aicore.ops._pointwise import floats, integers
from aicore.ops.base import Simple, ensure, need_dtype, normalize_axis
from aicore.ops.gradients import Given, Gradients


@op_class
class _Cumulative(Simple):
    """Operands x and axis, a tensor of one integer, which becomes the field `axis` when constant."""

    exclusive: int = 0
    reverse: int = 0
    axis: int | None = None
    operand_fields: ClassVar[Mapping[int, str]] = {1: "axis"}

    def absorb(self, *inputs: Value | None) -> tuple[Op, tuple[Value | None, ...]]:
        found = field_content(inputs[1]) if len(inputs) > 1 else None
        if isinstance(found, tuple) and len(found) == 1:
            found = found[0]
        return (self, inputs) if not isinstance(found, int) else (replace(self, axis=found), (inputs[0], None))

    def resolve(self, x: Value, axis: Value | None = None) -> Op:
        if x.rank is None or self.axis is None:
            return self
        return replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, axis: Value | None = None) -> Types:
        need_dtype(x, FLOATS | {"int32", "int64", "uint32", "uint64"})
        ensure((axis is None) != (self.axis is None), "wants an axis, once")
        if axis is not None:
            need_dtype(axis, ("int32", "int64"))
        elif x.rank is not None and self.axis is not None:
            normalize_axis(self.axis, x.rank)
        return x.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = floats(rng, (3, 4, 5))
        for exclusive in (0, 1):
            for reverse in (0, 1):
                yield Sample(cls(exclusive, reverse, 1), (x,), note=f"exclusive={exclusive}, reverse={reverse}")
        yield Sample(cls(), (x, np.array(-1)), constant=(1,), note="constant negative axis")
        yield Sample(cls(), (x, np.array(0, np.int32)), note="computed axis")
        yield Sample(cls(axis=0), (integers(rng, (6,), -3, 4),), note="int64")
        yield Sample(cls(1, axis=1), (floats(rng, (3, 0)),), note="zero size")
        yield Sample(cls(1, 1, 0), (floats(rng, (1, 3)),), note="one element, exclusive")


@op_class
class CumSum(_Cumulative):
    """The sum of the elements up to each one.

    `exclusive` leaves out the element itself, `reverse` starts at the end. Same shape and type; integers wrap.
    Source: ONNX CumSum.
    """

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """The running sum from the other end."""
        return (op.apply(replace(self, reverse=1 - self.reverse), grads[0], *inputs[1:]),)


@op_class
class CumProd(_Cumulative):
    """The product of the elements up to each one.

    `exclusive` leaves out the element itself, `reverse` starts at the end. Same shape and type; integers wrap.
    Source: ONNX CumProd.
    """
