"""Activation functions: pointwise functions of one floating-point tensor that fused ops may carry in a field.

Each is its ONNX formula in floating point, so Swish, Gelu, Mish and HardSwish, which multiply x by a factor that
vanishes, give NaN at -infinity. NaN gives NaN, also where the ONNX text says "otherwise 0". Source: the ONNX operator
of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS, NUMBERS, SIGNED
from aicore.ir.op import Sample, Types
from aicore.ir.value import Value
from aicore.ops._pointwise import SPECIAL, FloatUnary, floats, integers, scalar, unary_samples
from aicore.ops.base import Pointwise, ensure, need_dtype, need_rank, same_dtype, shape_text


class Activation(FloatUnary):
    """x -> y of the same type; `flops` is the number of operations for each element."""

    flops: ClassVar[int] = 1

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        flops, moved = super().cost(*inputs)
        return flops * self.flops, moved


@op_class
class Relu(Activation):
    """max(x, 0); signed integers too."""

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS | SIGNED)
        return x.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from super().samples(rng)
        yield Sample(cls(), (integers(rng, (4, 3), dtype="int32"),), note="int32")


@op_class
class Clip(Activation):
    """min(max(x, low), high): where low is above high, everything becomes high.

    Operands x, low, high; the bounds are scalars of x's element type, absent for no bound, and become the fields `min`
    and `max` when constant. Any number type.
    """

    min: float | None = None
    max: float | None = None
    flops: ClassVar[int] = 2
    operand_fields: ClassVar[Mapping[int, str]] = {1: "min", 2: "max"}

    def infer(self, x: Value, low: Value | None = None, high: Value | None = None) -> Types:
        need_dtype(x, NUMBERS)
        same_dtype(x, low, high)
        for operand in (low, high):
            if operand is not None:
                need_rank(operand, 0)
        for bound in (self.min, self.max):
            ensure(bound is None or isinstance(bound, int | float), f"a bound is {bound!r}, wants a scalar")
        return x.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(-1.0, 1.5), rng)
        x, low, high = floats(rng, (3, 4)), scalar(-0.5), scalar(0.75)
        yield Sample(cls(), (x, low, high), constant=(1, 2), note="constant bounds")
        yield Sample(cls(), (x, low, high), note="computed bounds")
        yield Sample(cls(), (x, None, high), note="no lower bound")
        yield Sample(cls(), (x, low), note="no upper bound")
        yield Sample(cls(), (x,), note="no bound")
        yield Sample(cls(), (x, high, low), note="bounds crossed")
        yield Sample(cls(), (SPECIAL, low, scalar(np.nan)), note="a bound is NaN")
        yield Sample(cls(-2, 3), (integers(rng, (9,)),), note="int64")
        yield Sample(cls(), (integers(rng, (9,), 0, 256, "uint8"), scalar(9, "uint8"), scalar(200, "uint8")))


@op_class
class LeakyRelu(Activation):
    """x where x >= 0, else alpha * x."""

    alpha: float = 0.01
    flops: ClassVar[int] = 2


@op_class
class PRelu(Pointwise):
    """x where x >= 0, else slope * x; the slope broadcasts to the shape of x. Floats and 32- or 64-bit integers."""

    def infer(self, x: Value, slope: Value) -> Types:
        need_dtype(x, FLOATS | {"int32", "int64", "uint32", "uint64"})
        same_dtype(x, slope)
        if x.shape is not None and slope.shape is not None:
            fits = slope.rank is not None and slope.rank <= len(x.shape)
            ensure(fits, f"slope {shape_text(slope.shape)} does not broadcast to {shape_text(x.shape)}")
            for dim, other in zip(x.shape[::-1], slope.shape[::-1], strict=False):
                grows = isinstance(dim, int) and isinstance(other, int) and other not in (1, dim)
                ensure(not grows, f"slope {shape_text(slope.shape)} does not broadcast to {shape_text(x.shape)}")
        return x.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (2, 3, 4, 5)), floats(rng, (3, 1, 1))), constant=(1,), note="per channel")
        yield Sample(cls(), (floats(rng, (3, 4)), floats(rng, (3, 4))))
        yield Sample(cls(), (SPECIAL, scalar(0.25)), note="zeros, infinities, NaN; scalar slope")
        yield Sample(cls(), (integers(rng, (6,), dtype="int32"), np.array([3], np.int32)), note="int32")
        yield Sample(cls(), (floats(rng, (0, 4)), floats(rng, (4,))), note="zero size")


@op_class
class Elu(Activation):
    """x where x >= 0, else alpha * (exp(x) - 1)."""

    alpha: float = 1.0
    flops: ClassVar[int] = 3


@op_class
class Selu(Activation):
    """gamma * x where x > 0, else gamma * alpha * (exp(x) - 1)."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875
    flops: ClassVar[int] = 3


@op_class
class Celu(Activation):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0
    flops: ClassVar[int] = 6

    def infer(self, x: Value) -> Types:
        ensure(self.alpha != 0, "alpha is 0, and x is divided by it")
        return super().infer(x)


@op_class
class Gelu(Activation):
    """x / 2 * (1 + erf(x / sqrt(2))), or with approximate="tanh" the formula with tanh that stands for it.

    Source: ONNX Gelu; Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
    """

    approximate: str = "none"
    flops: ClassVar[int] = 5

    def infer(self, x: Value) -> Types:
        if self.approximate not in ("none", "tanh"):
            raise UnsupportedError(f'approximate is {self.approximate!r}, wants "none" or "tanh"')
        return super().infer(x)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(), rng)
        yield from unary_samples(cls("tanh"), rng)


@op_class
class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    flops: ClassVar[int] = 4


@op_class
class HardSigmoid(Activation):
    """max(0, min(1, alpha * x + beta))."""

    alpha: float = 0.2
    beta: float = 0.5
    flops: ClassVar[int] = 4


@op_class
class HardSwish(Activation):
    """x * max(0, min(1, x / 6 + 0.5))."""

    flops: ClassVar[int] = 5


@op_class
class Swish(Activation):
    """x * sigmoid(alpha * x)."""

    alpha: float = 1.0
    flops: ClassVar[int] = 6


@op_class
class Mish(Activation):
    """x * tanh(log(1 + exp(x)))."""

    flops: ClassVar[int] = 5


@op_class
class Softplus(Activation):
    """log(1 + exp(x))."""

    flops: ClassVar[int] = 3


@op_class
class Softsign(Activation):
    """x / (1 + |x|)."""

    flops: ClassVar[int] = 3


@op_class
class Tanh(Activation):
    """The hyperbolic tangent."""


@op_class
class ThresholdedRelu(Activation):
    """x where x > alpha, else 0; NaN stays NaN."""

    alpha: float = 1.0


@op_class
class Shrink(Activation):
    """x + bias where x < -lambd, x - bias where x > lambd, else 0; NaN stays NaN. Any number type."""

    lambd: float = 0.5
    bias: float = 0.0
    flops: ClassVar[int] = 3

    def infer(self, x: Value) -> Types:
        need_dtype(x, NUMBERS)
        return x.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(), rng)
        yield Sample(cls(1.5, 1.5), (floats(rng, (4, 5)),), note="soft")
        yield Sample(cls(2.0, 1.0), (integers(rng, (9,)),), note="int64")
