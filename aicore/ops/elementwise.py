"""Functions of one tensor, element by element: sign, roots, exponentials, trigonometry, rounding.

NaN gives NaN everywhere here, Sign and Round included. Source: the ONNX operator of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dims import Shape
from aicore.ir.dtypes import FLOATS, SIGNED
from aicore.ir.op import Sample, Types
from aicore.ir.value import Value
from aicore.ops._content import combine
from aicore.ops._pointwise import FloatUnary, NumberUnary, integers, unary_samples
from aicore.ops.base import Unary, need_dtype


@op_class
class Abs(NumberUnary):
    """|x|; the smallest integer of a signed type wraps to itself."""


@op_class
class Sign(NumberUnary):
    """1, 0 or -1; NaN for NaN."""


@op_class
class Neg(Unary):
    """-x, for floats and signed integers; the smallest integer wraps to itself."""

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS | SIGNED)
        return x.type

    def content(self, x: Value) -> Shape | None:
        return combine(lambda a: a * -1, x)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(), rng)
        yield Sample(cls(), (integers(rng, (4, 3)),), note="int64")


@op_class
class Reciprocal(FloatUnary):
    """1 / x; infinity, with the sign of the zero, at zero."""


@op_class
class Sqrt(FloatUnary):
    """The square root; NaN below zero."""

    sample_range = (0.0, 9.0)


@op_class
class Exp(FloatUnary):
    """e ** x."""


@op_class
class Log(FloatUnary):
    """The natural logarithm; -infinity at zero, NaN below."""

    sample_range = (0.01, 9.0)


@op_class
class Erf(FloatUnary):
    """The Gauss error function, 2 / sqrt(pi) * integral of exp(-t * t) from 0 to x."""


@op_class
class Sin(FloatUnary):
    """The sine of an angle in radians."""


@op_class
class Cos(FloatUnary):
    """The cosine of an angle in radians."""


@op_class
class Tan(FloatUnary):
    """The tangent of an angle in radians."""

    sample_range = (-1.4, 1.4)


@op_class
class Asin(FloatUnary):
    """The angle in radians whose sine is x; NaN outside -1 to 1."""

    sample_range = (-1.0, 1.0)


@op_class
class Acos(FloatUnary):
    """The angle in radians whose cosine is x; NaN outside -1 to 1."""

    sample_range = (-1.0, 1.0)


@op_class
class Atan(FloatUnary):
    """The angle in radians, within half a turn, whose tangent is x."""


@op_class
class Sinh(FloatUnary):
    """The hyperbolic sine."""


@op_class
class Cosh(FloatUnary):
    """The hyperbolic cosine."""


@op_class
class Asinh(FloatUnary):
    """The inverse of Sinh."""


@op_class
class Acosh(FloatUnary):
    """The inverse of Cosh; NaN below 1."""

    sample_range = (1.0, 9.0)


@op_class
class Atanh(FloatUnary):
    """The inverse of Tanh; infinite at -1 and 1, NaN outside."""

    sample_range = (-0.99, 0.99)


@op_class
class Ceil(FloatUnary):
    """The nearest integer at or above x."""


@op_class
class Floor(FloatUnary):
    """The nearest integer at or below x."""


@op_class
class Round(FloatUnary):
    """The nearest integer, halves to the even one: 0.5 -> 0, 1.5 -> 2, -2.5 -> -2."""

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield Sample(cls(), (np.arange(-4.5, 5.0, 0.5, dtype=np.float32),), note="halves")
