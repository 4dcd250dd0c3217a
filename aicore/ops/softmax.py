"""Softmax and its kin, along one axis; floating point. Source: ONNX since opset 13 (older ones flatten: converted)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types
from aicore.ir.value import Value
from aicore.ops._pointwise import SPECIAL, floats
from aicore.ops.base import Simple, need_dtype, normalize_axis
from aicore.ops.gradients import Given, Gradients, no_gradient


@op_class
class _AlongAxis(Simple):
    axis: int = -1
    inplace = ((0, 0),)
    flops: ClassVar[int] = 5

    def resolve(self, x: Value) -> Op:
        return self if x.rank is None else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS)
        if x.rank is not None:
            normalize_axis(self.axis, x.rank)
        return x.type

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        flops, moved = super().cost(*inputs)
        return flops * self.flops, moved

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = floats(rng, (3, 4, 5))
        for axis in (-1, 0, 1, -2):
            yield Sample(cls(axis), (x,), note=f"axis {axis}")
        yield Sample(cls(), (x * 1000,), note="large: exp must not overflow")
        yield Sample(cls(), (floats(rng, (3, 0)),), note="zero size along the axis")
        yield Sample(cls(), (floats(rng, (0, 3)),), note="zero size")
        yield Sample(cls(), (floats(rng, (33,)),), note="one row")
        yield Sample(cls(), (SPECIAL,), note="NaN")
        yield Sample(cls(), (np.array([[-np.inf, 0.0, 1.0], [0.0, 0.0, 0.0]], np.float32),), note="-infinity, ties")


@op_class
class Softmax(_AlongAxis):
    """exp(x) / sum(exp(x))."""

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (y,), (g,) = outputs, grads
        shared = op.ReduceSum(op.Mul(g, y), axes=(self.axis,))
        return (op.Mul(y, op.Sub(g, shared)),)


@op_class
class LogSoftmax(_AlongAxis):
    """x - log(sum(exp(x)))."""

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (y,), (g,) = outputs, grads
        return (op.Sub(g, op.Mul(op.Exp(y), op.ReduceSum(g, axes=(self.axis,)))),)


@op_class
class Hardmax(_AlongAxis):
    """1 at the first largest element, 0 elsewhere; NaN counts as the largest."""

    grad = no_gradient
