"""Any connected pointwise computation in one kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder, Namespace, inline, retype
from aicore.ir.graph import Graph
from aicore.ir.op import Op, Sample
from aicore.ir.value import Value
from aicore.ops._pointwise import floats
from aicore.ops.activation import Relu, Sigmoid
from aicore.ops.arithmetic import Add, Div, Mul, Sub
from aicore.ops.elementwise import Exp, Sqrt


@op_class
class Region(Op):
    """The nodes of `body`, computed element by element; operands broadcast as its inputs do.

    The structure is the field, so a pass forms a Region, not a rule. Every node of the body is pointwise; constants
    may stand in it.
    """

    body: Graph
    inplace: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0),)

    def n_outputs(self) -> int:
        return len(self.body.outputs)

    def resolve(self, *operands: Value | None) -> Op:
        types = [operand.type for operand in operands if operand is not None]
        if types == [value.type for value in self.body.inputs]:
            return self
        return Region(retype(self.body, types))

    def decompose(self, op: Namespace, *operands: Any) -> Any:
        return inline(op, self.body, operands)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x, y, c = floats(rng, (2, 3, 4)), floats(rng, (2, 3, 4)), floats(rng, (3, 1))
        yield Sample(_affine(), (x, c, floats(rng, (3, 1))), constant=(1, 2), note="scale, shift, Relu")
        yield Sample(_gate(), (x, y), note="an operand is used twice")
        yield Sample(_normal(), (x,), note="constants inside")
        yield Sample(_gate(), (floats(rng, (0, 4)), floats(rng, (4,))), note="zero size, broadcast")


def _affine() -> Region:
    op = Builder()
    x, scale, shift = (
        op.input("x", "float32", (2, 3, 4)),
        op.input("s", "float32", (3, 1)),
        op.input("t", "float32", (3, 1)),
    )
    y = op.apply(Relu(), op.apply(Add(), op.apply(Mul(), x, scale), shift))
    return Region(op.graph([x, scale, shift], {"y": y}))


def _gate() -> Region:
    op = Builder()
    x, y = op.input("x", "float32", (2, 3, 4)), op.input("y", "float32", (2, 3, 4))
    product = op.apply(Mul(), x, op.apply(Sigmoid(), x))
    return Region(op.graph([x, y], {"y": op.apply(Sub(), product, y)}))


def _normal() -> Region:
    """exp(-x * x / 2) / sqrt(2 pi)"""
    op = Builder()
    x = op.input("x", "float32", (2, 3, 4))
    power = op.apply(Mul(), op.apply(Mul(), x, x), op.scalar(-0.5, x))
    width = op.apply(Sqrt(), op.scalar(2 * np.pi, x))
    return Region(op.graph([x], {"y": op.apply(Div(), op.apply(Exp(), power), width)}))
