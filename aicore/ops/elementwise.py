"""Functions of one tensor, element by element: sign, roots, exponentials, trigonometry, rounding.

NaN gives NaN everywhere here, Sign and Round included. Source: the ONNX operator of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aicore.ir.dims import Shape
from aicore.ir.dtypes import FLOATS, SIGNED
from aicore.ir.op import Sample, Types
from aicore.ir.value import Value
from aicore.ops._content import combine
from aicore.ops._pointwise import FloatUnary, NumberUnary, integers, unary_samples
from aicore.ops.base import Unary, need_dtype


@dataclass(frozen=True)
class Abs(NumberUnary):
    """|x|; the smallest integer of a signed type wraps to itself."""


@dataclass(frozen=True)
class Sign(NumberUnary):
    """1, 0 or -1; NaN for NaN."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Reciprocal(FloatUnary):
    """1 / x; infinity, with the sign of the zero, at zero."""


@dataclass(frozen=True)
class Sqrt(FloatUnary):
    """The square root; NaN below zero."""

    sample_range = (0.0, 9.0)


@dataclass(frozen=True)
class Exp(FloatUnary):
    """e ** x."""


@dataclass(frozen=True)
class Log(FloatUnary):
    """The natural logarithm; -infinity at zero, NaN below."""

    sample_range = (0.01, 9.0)


@dataclass(frozen=True)
class Erf(FloatUnary):
    """The Gauss error function, 2 / sqrt(pi) * integral of exp(-t * t) from 0 to x."""


@dataclass(frozen=True)
class Sin(FloatUnary):
    """The sine of an angle in radians."""


@dataclass(frozen=True)
class Cos(FloatUnary):
    """The cosine of an angle in radians."""


@dataclass(frozen=True)
class Tan(FloatUnary):
    """The tangent of an angle in radians."""

    sample_range = (-1.4, 1.4)


@dataclass(frozen=True)
class Asin(FloatUnary):
    """The angle in radians whose sine is x; NaN outside -1 to 1."""

    sample_range = (-1.0, 1.0)


@dataclass(frozen=True)
class Acos(FloatUnary):
    """The angle in radians whose cosine is x; NaN outside -1 to 1."""

    sample_range = (-1.0, 1.0)


@dataclass(frozen=True)
class Atan(FloatUnary):
    """The angle in radians, within half a turn, whose tangent is x."""


@dataclass(frozen=True)
class Sinh(FloatUnary):
    """The hyperbolic sine."""


@dataclass(frozen=True)
class Cosh(FloatUnary):
    """The hyperbolic cosine."""


@dataclass(frozen=True)
class Asinh(FloatUnary):
    """The inverse of Sinh."""


@dataclass(frozen=True)
class Acosh(FloatUnary):
    """The inverse of Cosh; NaN below 1."""

    sample_range = (1.0, 9.0)


@dataclass(frozen=True)
class Atanh(FloatUnary):
    """The inverse of Tanh; infinite at -1 and 1, NaN outside."""

    sample_range = (-0.99, 0.99)


@dataclass(frozen=True)
class Ceil(FloatUnary):
    """The nearest integer at or above x."""


@dataclass(frozen=True)
class Floor(FloatUnary):
    """The nearest integer at or below x."""


@dataclass(frozen=True)
class Round(FloatUnary):
    """The nearest integer, halves to the even one: 0.5 -> 0, 1.5 -> 2, -2.5 -> -2."""

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield Sample(cls(), (np.arange(-4.5, 5.0, 0.5, dtype=np.float32),), note="halves")
