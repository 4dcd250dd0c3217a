"""Activation functions: pointwise functions of one floating-point tensor that fused ops may carry in a field.

Each is its ONNX formula in floating point, so Swish, Gelu, Mish and HardSwish, which multiply x by a factor that
vanishes, give NaN at -infinity. NaN gives NaN, also where the ONNX text says "otherwise 0". Source: the ONNX operator
of the same name.

Gradients at a kink are PyTorch's: that of the piece below for Relu, LeakyRelu, PRelu, Elu, Selu, Celu, ThresholdedRelu
and Shrink's upper bound; 0 at both bounds of HardSigmoid; 0 at -3 and 1 at 3 for HardSwish; 1 at the bounds of Clip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS, NUMBERS, SIGNED
from aicore.ir.op import Sample, Types
from aicore.ir.value import Value
from aicore.ops._pointwise import SPECIAL, FloatUnary, floats, integers, scalar, unary_samples
from aicore.ops.base import Pointwise, ensure, need_dtype, need_rank, same_dtype, shape_text
from aicore.ops.gradients import Given, Gradients, by_derivative, by_masking, sum_to


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

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        zero = op.scalar(0.0, y)
        return op.Where(op.LessOrEqual(y, zero), zero, g)

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

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """To x within the bounds and at them; to a bound that is an operand where it is what came out."""
        x, low, high = (*inputs, None, None)[:3]
        low = op.scalar(self.min, x) if self.min is not None else low
        high = op.scalar(self.max, x) if self.max is not None else high
        g, zero = grads[0], op.scalar(0.0, x)
        below = None if low is None else op.Less(x, low)
        above = None if high is None else op.Greater(x, high)
        if below is None or above is None:
            outside = below if above is None else above
            to_low = to_high = outside
        else:
            crossed = op.Greater(low, high)
            outside, to_low, to_high = op.Or(below, above), op.And(below, op.Not(crossed)), op.Or(above, crossed)
        if outside is None:
            return (g,)
        return (
            op.Where(outside, zero, g),
            None if low is None or self.min is not None else sum_to(op, op.Where(to_low, g, zero), low),
            None if high is None or self.max is not None else sum_to(op, op.Where(to_high, g, zero), high),
        )

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

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        positive = op.Greater(y if self.alpha > 0 else x, op.scalar(0.0, x))
        return op.Where(positive, g, op.Mul(g, op.scalar(self.alpha, x)))


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

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (x, slope), (g,) = inputs, grads
        zero = op.scalar(0.0, x)
        positive = op.Greater(x, zero)
        to_slope = op.Where(positive, zero, op.Mul(g, x))
        return op.Where(positive, g, op.Mul(g, slope)), sum_to(op, to_slope, slope)

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

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        falling = op.Mul(op.Exp(x), op.scalar(self.alpha, x))
        return op.Where(op.Greater(x, op.scalar(0.0, x)), g, op.Mul(g, falling))


@op_class
class Selu(Activation):
    """gamma * x where x > 0, else gamma * alpha * (exp(x) - 1)."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875
    flops: ClassVar[int] = 3

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        falling = op.Mul(op.Exp(x), op.scalar(self.alpha, x))
        scaled = op.Mul(g, op.scalar(self.gamma, x))
        return op.Where(op.Greater(x, op.scalar(0.0, x)), scaled, op.Mul(scaled, falling))


@op_class
class Celu(Activation):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0
    flops: ClassVar[int] = 6

    def infer(self, x: Value) -> Types:
        ensure(self.alpha != 0, "alpha is 0, and x is divided by it")
        return super().infer(x)

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        falling = op.Exp(op.Div(x, op.scalar(self.alpha, x)))
        return op.Where(op.Greater(x, op.scalar(0.0, x)), g, op.Mul(g, falling))


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

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        if self.approximate == "tanh":
            return _slope_of_tanh_gelu(op, x)
        half, one = op.scalar(0.5, x), op.scalar(1.0, x)
        share = op.Mul(half, op.Add(one, op.Erf(op.Mul(x, op.scalar(math.sqrt(0.5), x)))))
        density = op.Mul(op.Exp(op.Mul(op.Mul(x, x), op.scalar(-0.5, x))), op.scalar(1 / math.sqrt(2 * math.pi), x))
        return op.Add(share, op.Mul(x, density))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(), rng)
        yield from unary_samples(cls("tanh"), rng)


@op_class
class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    flops: ClassVar[int] = 4

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Mul(y, op.Sub(op.scalar(1.0, y), y))


@op_class
class HardSigmoid(Activation):
    """max(0, min(1, alpha * x + beta))."""

    alpha: float = 0.2
    beta: float = 0.5
    flops: ClassVar[int] = 4

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        zero = op.scalar(0.0, y)
        rises = op.And(op.Greater(y, zero), op.Less(y, op.scalar(1.0, y)))
        return op.Where(rises, op.Mul(g, op.scalar(self.alpha, x)), zero)


@op_class
class HardSwish(Activation):
    """x * max(0, min(1, x / 6 + 0.5))."""

    flops: ClassVar[int] = 5

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        zero, three = op.scalar(0.0, x), op.scalar(3.0, x)
        slope = op.Add(op.Div(x, three), op.scalar(0.5, x))
        bent = op.Where(op.Less(x, three), op.Mul(g, slope), g)
        return op.Where(op.LessOrEqual(x, op.scalar(-3.0, x)), zero, bent)


@op_class
class Swish(Activation):
    """x * sigmoid(alpha * x)."""

    alpha: float = 1.0
    flops: ClassVar[int] = 6

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        scaled, one = op.Mul(x, op.scalar(self.alpha, x)), op.scalar(1.0, x)
        gate = op.Sigmoid(scaled)
        return op.Mul(gate, op.Add(one, op.Mul(scaled, op.Sub(one, gate))))


@op_class
class Mish(Activation):
    """x * tanh(log(1 + exp(x)))."""

    flops: ClassVar[int] = 5

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        gate = op.Tanh(op.Softplus(x))
        rest = op.Sub(op.scalar(1.0, x), op.Mul(gate, gate))
        return op.Add(gate, op.Mul(op.Mul(x, rest), op.Sigmoid(x)))


@op_class
class Softplus(Activation):
    """log(1 + exp(x))."""

    flops: ClassVar[int] = 3

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Sigmoid(x)


@op_class
class Softsign(Activation):
    """x / (1 + |x|)."""

    flops: ClassVar[int] = 3

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        root = op.Add(op.Abs(x), op.scalar(1.0, x))
        return op.Div(op.Div(g, root), root)


@op_class
class Tanh(Activation):
    """The hyperbolic tangent."""

    @by_derivative
    def grad(self, op: Builder, x: Value, y: Value) -> Any:
        return op.Sub(op.scalar(1.0, y), op.Mul(y, y))


@op_class
class ThresholdedRelu(Activation):
    """x where x > alpha, else 0; NaN stays NaN."""

    alpha: float = 1.0

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        return op.Where(op.LessOrEqual(x, op.scalar(self.alpha, x)), op.scalar(0.0, x), g)


@op_class
class Shrink(Activation):
    """x + bias where x < -lambd, x - bias where x > lambd, else 0; NaN stays NaN. Any number type."""

    lambd: float = 0.5
    bias: float = 0.0
    flops: ClassVar[int] = 3

    def infer(self, x: Value) -> Types:
        need_dtype(x, NUMBERS)
        return x.type

    @by_masking
    def grad(self, op: Builder, x: Value, y: Value, g: Value) -> Any:
        outside = op.Or(op.Less(x, op.scalar(-self.lambd, x)), op.Greater(x, op.scalar(self.lambd, x)))
        return op.Where(outside, g, op.scalar(0.0, x))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(), rng)
        yield Sample(cls(1.5, 1.5), (floats(rng, (4, 5)),), note="soft")
        yield Sample(cls(2.0, 1.0), (integers(rng, (9,)),), note="int64")


def _slope_of_tanh_gelu(op: Builder, x: Value) -> Any:
    """The derivative of x / 2 * (1 + tanh(u)), where u = sqrt(2 / pi) * (x + 0.044715 * x ** 3)."""
    half, one, scale = op.scalar(0.5, x), op.scalar(1.0, x), op.scalar(math.sqrt(2 / math.pi), x)
    square = op.Mul(x, x)
    bend = op.Mul(square, op.scalar(0.044715, x))
    t = op.Tanh(op.Mul(op.Mul(x, scale), op.Add(one, bend)))
    slope_of_u = op.Mul(scale, op.Add(one, op.Mul(bend, op.scalar(3.0, x))))
    falling = op.Mul(op.Mul(x, op.Sub(one, op.Mul(t, t))), slope_of_u)
    return op.Mul(half, op.Add(op.Add(one, t), falling))
