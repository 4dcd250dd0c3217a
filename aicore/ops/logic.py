"""Comparison, selection, boolean and bitwise logic, with broadcasting.

A comparison with NaN is false. Source: the ONNX operator of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape
from aicore.ir.dtypes import FLOATS, INTEGERS, NARROW, NUMBERS
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._content import combine, equal, less_equal
from aicore.ops._pointwise import SPECIAL, binary_samples, floats, integers, unary_samples
from aicore.ops.base import Binary, Comparison, Pointwise, Unary, broadcast, need_dtype, same_dtype
from aicore.ops.gradients import Given, Gradients, sum_to

DETECTABLE = FLOATS | {name for name in NARROW if name.startswith("float8")}


@op_class
class Equal(Comparison):
    """a == b, for every element type, strings included."""

    commutative: ClassVar[bool] = True

    def infer(self, a: Value, b: Value) -> Types:
        need_dtype(a, NUMBERS | {"bool", "string"})
        return super().infer(a, b)

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(equal, a, b, dtype="bool")

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from binary_samples(cls(), rng)
        yield Sample(cls(), (rng.random((3, 2)) < 0.5, rng.random(2) < 0.5), note="bool")
        yield Sample(cls(), (np.array(["a", "b"], object), np.array(["a", "c"], object)), note="string")


class Ordering(Comparison):
    """A comparison of numbers."""

    def infer(self, a: Value, b: Value) -> Types:
        need_dtype(a, NUMBERS)
        return super().infer(a, b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        return binary_samples(cls(), rng)


@op_class
class Less(Ordering):
    """a < b."""

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(lambda p, q: less_equal(p + 1, q), a, b, dtype="bool")


@op_class
class LessOrEqual(Ordering):
    """a <= b."""

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(less_equal, a, b, dtype="bool")


@op_class
class Greater(Ordering):
    """a > b."""

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(lambda p, q: less_equal(q + 1, p), a, b, dtype="bool")


@op_class
class GreaterOrEqual(Ordering):
    """a >= b."""

    def content(self, a: Value, b: Value) -> Shape | None:
        return combine(lambda p, q: less_equal(q, p), a, b, dtype="bool")


class Logical(Binary):
    """(bool, bool) -> bool."""

    commutative: ClassVar[bool] = True

    def infer(self, a: Value, b: Value) -> Types:
        need_dtype(a, ("bool",))
        return super().infer(a, b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (rng.random((3, 4)) < 0.5, rng.random((3, 4)) < 0.5))
        yield Sample(cls(), (rng.random((3, 1, 4)) < 0.5, rng.random((2, 1)) < 0.5), note="broadcast both ways")
        yield Sample(cls(), (rng.random((0, 4)) < 0.5, rng.random(4) < 0.5), note="zero size")


@op_class
class And(Logical):
    """a and b."""


@op_class
class Or(Logical):
    """a or b."""


@op_class
class Xor(Logical):
    """a or b, but not both."""


@op_class
class Not(Unary):
    """True where x is false."""

    def infer(self, x: Value) -> Types:
        need_dtype(x, ("bool",))
        return x.type

    def content(self, x: Value) -> Shape | None:
        return combine(lambda p: 1 - p, x)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (rng.random((3, 4)) < 0.5,))
        yield Sample(cls(), (np.zeros((0,), bool),), note="zero size")


class Bitwise(Binary):
    """(a, b) -> y, integers of one type, bit by bit."""

    commutative: ClassVar[bool] = True

    def infer(self, a: Value, b: Value) -> Types:
        need_dtype(a, INTEGERS)
        return super().infer(a, b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (integers(rng, (3, 4)), integers(rng, (3, 4))))
        yield Sample(
            cls(), (integers(rng, (3, 1), dtype="int16"), integers(rng, (4,), dtype="int16")), note="broadcast"
        )
        yield Sample(cls(), (integers(rng, (9,), 0, 256, "uint8"), integers(rng, (9,), 0, 256, "uint8")), note="uint8")


@op_class
class BitwiseAnd(Bitwise):
    """a & b."""


@op_class
class BitwiseOr(Bitwise):
    """a | b."""


@op_class
class BitwiseXor(Bitwise):
    """a ^ b."""


@op_class
class BitwiseNot(Unary):
    """Every bit flipped."""

    def infer(self, x: Value) -> Types:
        need_dtype(x, INTEGERS)
        return x.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (integers(rng, (3, 4)),))
        yield Sample(cls(), (integers(rng, (9,), 0, 256, "uint8"),), note="uint8")


@op_class
class BitShift(Binary):
    """x shifted by y bits, to the "LEFT" or "RIGHT".

    A right shift of a negative number keeps its sign. A shift by less than 0 bits, or by all of them or more, gives
    -1 for a negative x shifted right, else 0.
    """

    direction: str = "LEFT"
    inplace: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0),)

    def infer(self, x: Value, y: Value) -> Types:
        if self.direction not in ("LEFT", "RIGHT"):
            raise UnsupportedError(f'direction is {self.direction!r}, wants "LEFT" or "RIGHT"')
        need_dtype(x, INTEGERS)
        return super().infer(x, y)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for direction in ("LEFT", "RIGHT"):
            op = cls(direction)
            numbers, bits = integers(rng, (3, 4), 0, 256, "uint8"), integers(rng, (3, 4), 0, 8, "uint8")
            yield Sample(op, (numbers, bits), note="uint8")
            yield Sample(op, (integers(rng, (5, 1)), np.array([0, 1, 63])), note="int64, broadcast")
            shifts = np.array([-1, 31, 32, 40], np.int32)
            yield Sample(op, (np.array([[-5], [5]], np.int32), shifts), note="outside the width")


@op_class
class Where(Pointwise):
    """x where the condition holds, else y; any element type."""

    inplace: ClassVar[tuple[tuple[int, int], ...]] = ((0, 1), (0, 2))

    def infer(self, condition: Value, x: Value, y: Value) -> Types:
        need_dtype(condition, ("bool",))
        same_dtype(x, y)
        return TensorType(x.dtype, broadcast(condition.shape, x.shape, y.shape))

    def content(self, condition: Value, x: Value, y: Value) -> Shape | None:
        if condition.rank is None or condition.rank > 1:
            return None
        chosen = condition
        if condition.content is None and condition.known is not None:
            chosen = Value("condition", condition.type, dims=tuple(map(int, condition.known.ravel())))
        return combine(_choose, chosen, x, y, dtype=x.dtype if x.dtype in INTEGERS else "bool")

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        (condition, x, y), (g,) = inputs, grads
        zero = op.scalar(0.0, g)
        return None, sum_to(op, op.Where(condition, g, zero), x), sum_to(op, op.Where(condition, zero, g), y)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (rng.random((3, 4)) < 0.5, floats(rng, (3, 4)), floats(rng, (3, 4))))
        yield Sample(cls(), (rng.random((3, 1)) < 0.5, floats(rng, (4,)), floats(rng, ())), note="broadcast")
        yield Sample(cls(), (rng.random(7) < 0.5, SPECIAL, SPECIAL[::-1].copy()), note="NaN is chosen, not computed")
        yield Sample(cls(), (rng.random((2, 0)) < 0.5, integers(rng, (2, 1)), integers(rng, ())), note="zero size")


@op_class
class IsNaN(Pointwise):
    """Whether x is not a number."""

    inplace: ClassVar[tuple[tuple[int, int], ...]] = ()

    def infer(self, x: Value) -> Types:
        need_dtype(x, DETECTABLE)
        return TensorType("bool", x.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        return unary_samples(cls(), rng)


@op_class
class IsInf(Pointwise):
    """Whether x is infinite; each sign counts unless its attribute is 0."""

    detect_negative: int = 1
    detect_positive: int = 1
    inplace: ClassVar[tuple[tuple[int, int], ...]] = ()

    def infer(self, x: Value) -> Types:
        need_dtype(x, DETECTABLE)
        return TensorType("bool", x.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(), rng)
        yield Sample(cls(detect_negative=0), (SPECIAL,))
        yield Sample(cls(detect_positive=0), (SPECIAL,))
        yield Sample(cls(detect_negative=0, detect_positive=0), (SPECIAL,))


def _choose(condition: Dim, x: Dim, y: Dim) -> Dim | None:
    return (x if condition else y) if isinstance(condition, int) else None
