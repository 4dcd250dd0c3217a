"""Functions of one tensor, element by element: sign, roots, exponentials, trigonometry, rounding.

NaN gives NaN everywhere here, Sign and Round included. The gradient of Abs is 0 at 0; that of Sign, Ceil, Floor and
Round is 0 everywhere. Source: the ONNX operator of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Shape
from aicore.ir.dtypes import FLOATS, SIGNED
from aicore.ir.op import Sample, Types
from aicore.ir.value import Value
from aicore.ops._content import combine
from aicore.ops._pointwise import FloatUnary, NumberUnary, integers, unary_samples
from aicore.ops.base import Unary, need_dtype
from aicore.ops.gradients import Given, Gradients, by_derivative, by_masking, no_gradient


@op_class
class Abs(NumberUnary):
    """|x|; the smallest integer of a signed type wraps to itself."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Sign(x)


@op_class
class Sign(NumberUnary):
    """1, 0 or -1; NaN for NaN."""

    grad = no_gradient


@op_class
class Neg(Unary):
    """-x, for floats and signed integers; the smallest integer wraps to itself."""

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS | SIGNED)
        return x.type

    def content(self, x: Value) -> Shape | None:
        return combine(lambda a: a * -1, x)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (op.Neg(grads[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(), rng)
        yield Sample(cls(), (integers(rng, (4, 3)),), note="int64")


@op_class
class Reciprocal(FloatUnary):
    """1 / x; infinity, with the sign of the zero, at zero."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Neg(op.Mul(y, y))


@op_class
class Sqrt(FloatUnary):
    """The square root; NaN below zero."""

    sample_range = (0.0, 9.0)

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        return op.Div(g, op.Mul(y, op.scalar(2.0, y)))


@op_class
class Exp(FloatUnary):
    """e ** x."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return y


@op_class
class Log(FloatUnary):
    """The natural logarithm; -infinity at zero, NaN below."""

    sample_range = (0.01, 9.0)

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        return op.Div(g, x)


@op_class
class Erf(FloatUnary):
    """The Gauss error function, 2 / sqrt(pi) * integral of exp(-t * t) from 0 to x."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Mul(op.Exp(op.Neg(op.Mul(x, x))), op.scalar(2 / math.sqrt(math.pi), x))


@op_class
class Sin(FloatUnary):
    """The sine of an angle in radians."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Cos(x)


@op_class
class Cos(FloatUnary):
    """The cosine of an angle in radians."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Neg(op.Sin(x))


@op_class
class Tan(FloatUnary):
    """The tangent of an angle in radians."""

    sample_range = (-1.4, 1.4)

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Add(op.Mul(y, y), op.scalar(1.0, y))


@op_class
class Asin(FloatUnary):
    """The angle in radians whose sine is x; NaN outside -1 to 1."""

    sample_range = (-1.0, 1.0)

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Reciprocal(op.Sqrt(_one_minus_square(op, x)))


@op_class
class Acos(FloatUnary):
    """The angle in radians whose cosine is x; NaN outside -1 to 1."""

    sample_range = (-1.0, 1.0)

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Neg(op.Reciprocal(op.Sqrt(_one_minus_square(op, x))))


@op_class
class Atan(FloatUnary):
    """The angle in radians, within half a turn, whose tangent is x."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Reciprocal(op.Add(op.Mul(x, x), op.scalar(1.0, x)))


@op_class
class Sinh(FloatUnary):
    """The hyperbolic sine."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Cosh(x)


@op_class
class Cosh(FloatUnary):
    """The hyperbolic cosine."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Sinh(x)


@op_class
class Asinh(FloatUnary):
    """The inverse of Sinh."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Reciprocal(op.Sqrt(op.Add(op.Mul(x, x), op.scalar(1.0, x))))


@op_class
class Acosh(FloatUnary):
    """The inverse of Cosh; NaN below 1."""

    sample_range = (1.0, 9.0)

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        one = op.scalar(1.0, x)
        return op.Reciprocal(op.Sqrt(op.Mul(op.Sub(x, one), op.Add(x, one))))


@op_class
class Atanh(FloatUnary):
    """The inverse of Tanh; infinite at -1 and 1, NaN outside."""

    sample_range = (-0.99, 0.99)

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Reciprocal(_one_minus_square(op, x))


@op_class
class Ceil(FloatUnary):
    """The nearest integer at or above x."""

    grad = no_gradient


@op_class
class Floor(FloatUnary):
    """The nearest integer at or below x."""

    grad = no_gradient


@op_class
class Round(FloatUnary):
    """The nearest integer, halves to the even one: 0.5 -> 0, 1.5 -> 2, -2.5 -> -2."""

    grad = no_gradient

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield Sample(cls(), (np.arange(-4.5, 5.0, 0.5, dtype=np.float32),), note="halves")


def _one_minus_square(op: Builder, x: Value) -> Any:
    """1 - x * x as (1 - x) * (1 + x), which does not cancel near 1."""
    one = op.scalar(1.0, x)
    return op.Mul(op.Sub(one, x), op.Add(one, x))
