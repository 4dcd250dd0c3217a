"""Arithmetic of two or more tensors with broadcasting.

Integers wrap. Integer division rounds towards zero, and a division or remainder by zero gives 0. NaN propagates, also
through Max and Min. Source: the ONNX operator of the same name; what its text leaves open is as in NumPy.

Gradients are summed over the dims that an operand was broadcast along. Max and Min share a gradient equally among the
operands that are the extreme one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape
from aicore.ir.dtypes import FLOATS, NUMBERS
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._content import combine, divide, is_nonnegative, less_equal
from aicore.ops._pointwise import SPECIAL, NumberBinary, binary_samples, floats, integers, scalar
from aicore.ops.base import Pointwise, broadcast, ensure, need_dtype, same_dtype
from aicore.ops.gradients import Given, Gradients, sum_to


@op_class
class Add(NumberBinary):
    """a + b."""

    commutative: ClassVar[bool] = True

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(lambda p, q: p + q, a, b)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (a, b), (g,) = inputs, grads
        return sum_to(op, g, a), sum_to(op, g, b)


@op_class
class Sub(NumberBinary):
    """a - b."""

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(lambda p, q: p - q, a, b)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (a, b), (g,) = inputs, grads
        return sum_to(op, g, a), sum_to(op, op.Neg(g), b)


@op_class
class Mul(NumberBinary):
    """a * b."""

    commutative: ClassVar[bool] = True

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(lambda p, q: p * q, a, b)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (a, b), (g,) = inputs, grads
        return sum_to(op, op.Mul(g, b), a), sum_to(op, op.Mul(g, a), b)


@op_class
class Div(NumberBinary):
    """a / b; for integers rounded towards zero, and 0 where b is 0."""

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(divide, a, b)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (a, b), (y,), (g,) = inputs, outputs, grads
        quotient = op.Div(g, b)
        return sum_to(op, quotient, a), sum_to(op, op.Neg(op.Mul(quotient, y)), b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from binary_samples(cls(), rng)
        yield Sample(cls(), (np.array([7, -7, 7, -7, 5, -1]), np.array([2, 2, -2, -2, 0, 3])), note="towards zero")


@op_class
class Mod(NumberBinary):
    """The remainder of a / b.

    fmod: 0 for a - floor(a / b) * b, with the sign of b as in Python; 1 for a - trunc(a / b) * b, with the sign of a
        as in C. Integers give 0 where b is 0, floats NaN.
    """

    fmod: int = 0

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(self._decide, a, b)

    def _decide(self, a: Dim, b: Dim) -> Dim | None:
        if b == 0:
            return None
        if isinstance(a, int) and isinstance(b, int):
            return abs(a) % abs(b) * (-1 if a < 0 else 1) if self.fmod else a % b
        if isinstance(a, int) or not (is_nonnegative(a) and is_nonnegative(b)):
            return None
        return a % b

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """a - q * b, where q is an integer: 1 by a, and -q by b."""
        (a, b), (y,), (g,) = inputs, outputs, grads
        q = op.Round(op.Div(op.Sub(a, y), b))
        return sum_to(op, g, a), sum_to(op, op.Neg(op.Mul(g, q)), b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for op in (cls(), cls(fmod=1)):
            yield from binary_samples(op, rng)
            yield Sample(op, (np.array([7, -7, 7, -7, 5]), np.array([3, 3, -3, -3, 0])), note="signs, zero")


@op_class
class Pow(Pointwise):
    """x ** y, in the element type of x; y may have another.

    Integers to a negative power are rounded towards zero: 1 and -1 stay, everything else gives 0.
    """

    def infer(self, x: Value, y: Value) -> Types:
        need_dtype(x, FLOATS | {"int32", "int64"})
        need_dtype(y, NUMBERS)
        return TensorType(x.dtype, broadcast(x.shape, y.shape))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """y * x ** (y - 1) by x, which is 0 for y = 0; x ** y * log(x) by y, which is 0 for x = 0 and y >= 0."""
        (x, y), (power,), (g,) = inputs, outputs, grads
        exponent = op.Cast(y, to=x.dtype)
        by_x = sum_to(op, op.Mul(g, _slope_of_power(op, x, exponent, y)), x)
        if y.dtype not in FLOATS:
            return (by_x,)
        zero = op.scalar(0.0, x)
        vanishes = op.And(op.Equal(x, zero), op.GreaterOrEqual(exponent, zero))
        by_exponent = op.Where(vanishes, zero, op.Mul(g, op.Mul(power, op.Log(x))))
        return by_x, op.Cast(sum_to(op, by_exponent, exponent), to=y.dtype)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (3, 4), 0.1, 3), floats(rng, (3, 4))))
        yield Sample(cls(), (floats(rng, (3, 4)), scalar(2.0)), constant=(1,), note="square")
        yield Sample(cls(), (floats(rng, (3, 1), 0.1, 3), floats(rng, (4,))), note="broadcast")
        yield Sample(cls(), (floats(rng, (5,)), integers(rng, (5,), -2, 4)), note="int64 exponent")
        yield Sample(cls(), (integers(rng, (6,), dtype="int32"), integers(rng, (6,), 0, 4)), note="int32 base")
        yield Sample(cls(), (np.array([1, -1, -1, 2, 0]), np.array([-3, -3, -2, -1, -1])), note="negative power")
        yield Sample(cls(), (np.array([2, 9, 5]), np.array([0.5, 0.5, 2.0], np.float32)), note="float exponent")
        yield Sample(cls(), (SPECIAL[:, None], SPECIAL), note="zeros, infinities, NaN")
        yield Sample(cls(), (floats(rng, (0, 3)), floats(rng, (3,))), note="zero size")


class Variadic(Pointwise):
    """One or more operands of one element type -> their broadcast shape."""

    allowed: ClassVar[frozenset[str]] = NUMBERS

    def infer(self, *operands: Value) -> Types:
        ensure(operands and None not in operands, "wants at least one operand, and none absent")
        need_dtype(operands[0], self.allowed)
        same_dtype(*operands)
        return TensorType(operands[0].dtype, broadcast(*(v.shape for v in operands)))

    def cost(self, *operands: Value | None) -> tuple[Dim, Dim]:
        flops, moved = super().cost(*operands)
        return flops * max(len(operands) - 1, 1), moved

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (3, 4)), floats(rng, (4,)), floats(rng, (3, 1))), note="three, broadcast")
        yield Sample(cls(), (floats(rng, (2, 3)),), note="one operand")
        yield Sample(cls(), (floats(rng, (5,)), floats(rng, (5,))))
        yield Sample(cls(), (SPECIAL[:, None], SPECIAL), note="zeros, infinities, NaN")
        yield Sample(cls(), (floats(rng, (0, 2)), floats(rng, (2,))), note="zero size")
        if "int64" in cls.allowed:
            yield Sample(cls(), (integers(rng, (4,)), integers(rng, (4,)), integers(rng, ())), note="int64")
            yield Sample(cls(), (integers(rng, (3,), 0, 200, "uint8"), integers(rng, (3,), 0, 200, "uint8")))


class Extreme(Variadic):
    """The largest or the smallest of the operands' elements."""

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """Equal shares to all operands that are the extreme one."""
        (y,), (g,) = outputs, grads
        is_it = [op.Cast(op.Equal(x, y), to=y.dtype) for x in inputs]
        share = op.Div(g, op.Sum(*is_it))
        return tuple(sum_to(op, op.Mul(mask, share), x) for mask, x in zip(is_it, inputs, strict=True))


@op_class
class Max(Extreme):
    """The largest of the operands' elements; NaN where one of them is."""

    def content(self, *operands: Value) -> Shape | None:
        return combine(_largest, *operands)


@op_class
class Min(Extreme):
    """The smallest of the operands' elements; NaN where one of them is."""

    def content(self, *operands: Value) -> Shape | None:
        return combine(_smallest, *operands)


@op_class
class Sum(Variadic):
    """The sum of the operands, added from left to right."""

    allowed: ClassVar[frozenset[str]] = FLOATS

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return tuple(sum_to(op, grads[0], x) for x in inputs)


@op_class
class Mean(Variadic):
    """The sum of the operands, divided by their number."""

    allowed: ClassVar[frozenset[str]] = FLOATS

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        share = op.Div(grads[0], op.scalar(len(inputs), grads[0]))
        return tuple(sum_to(op, share, x) for x in inputs)


def _largest(first: Dim, *others: Dim) -> Dim | None:
    found = first
    for other in others:
        if less_equal(found, other):
            found = other
        elif not less_equal(other, found):
            return None
    return found


def _smallest(first: Dim, *others: Dim) -> Dim | None:
    negated = _largest(first * -1, *(other * -1 for other in others))
    return None if negated is None else negated * -1


def _slope_of_power(op: Builder, x: Value, exponent: Value, given: Value) -> Any:
    """exponent * x ** (exponent - 1), as few operations as a constant exponent allows."""
    known = given.known
    if known is not None and known.size and np.all(known == 2):
        return op.Mul(x, exponent)
    slope = op.Mul(exponent, op.Pow(x, op.Sub(exponent, op.scalar(1.0, x))))
    if known is not None and np.all(known != 0):
        return slope
    zero = op.scalar(0.0, x)
    return op.Where(op.Equal(exponent, zero), zero, slope)  # 0 * 0 ** -1 is no number
