"""Bases that the pointwise families share, with the samples that fit every op of a kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from aicore.ir.dtypes import FLOATS, NUMBERS
from aicore.ir.op import Op, Sample, Types
from aicore.ir.value import Value
from aicore.ops.base import Binary, Unary, need_dtype

Array = np.ndarray[Any, Any]

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], np.float32)
"""Where element-wise functions go wrong first."""


def floats(rng: np.random.Generator, shape: tuple[int, ...], low: float = -3.0, high: float = 3.0) -> Array:
    """Uniform float32 numbers."""
    return rng.uniform(low, high, shape).astype(np.float32)


def integers(
    rng: np.random.Generator, shape: tuple[int, ...], low: int = -9, high: int = 10, dtype: str = "int64"
) -> Array:
    """Uniform integers, `high` excluded."""
    return rng.integers(low, high, shape).astype(dtype)


def scalar(number: float, dtype: str = "float32") -> Array:
    """An array of rank 0."""
    return np.array(number, dtype)


def unary_samples(op: Op, rng: np.random.Generator, low: float = -3.0, high: float = 3.0) -> Iterable[Sample]:
    """A cube, a scalar, an odd-sized vector, an empty tensor, and the special numbers."""
    yield Sample(op, (floats(rng, (2, 3, 5), low, high),))
    yield Sample(op, (floats(rng, (), low, high),), note="rank 0")
    yield Sample(op, (floats(rng, (1037,), low, high),), note="odd size")
    yield Sample(op, (floats(rng, (2, 0, 3), low, high),), note="zero size")
    yield Sample(op, (SPECIAL,), note="zeros, infinities, NaN")


def binary_samples(op: Op, rng: np.random.Generator) -> Iterable[Sample]:
    """Equal shapes, broadcasting both ways, scalars, empty tensors, special numbers, and integers."""
    yield Sample(op, (floats(rng, (2, 3, 4)), floats(rng, (2, 3, 4))))
    yield Sample(op, (floats(rng, (3, 1, 5)), floats(rng, (4, 1))), note="broadcast both ways")
    yield Sample(op, (floats(rng, ()), floats(rng, (2, 3))), note="rank 0 on the left")
    yield Sample(op, (floats(rng, (7,)), floats(rng, ())), constant=(1,), note="constant scalar")
    yield Sample(op, (floats(rng, (0, 3)), floats(rng, (1, 3))), note="zero size")
    yield Sample(op, (SPECIAL[:, None], SPECIAL), note="zeros, infinities, NaN")
    yield Sample(op, (integers(rng, (5, 4)), integers(rng, (4,))), note="int64")
    yield Sample(op, (integers(rng, (3,), dtype="int32"), integers(rng, (3,), dtype="int32")), note="int32")
    yield Sample(op, (integers(rng, (6,), 0, 250, "uint8"), integers(rng, (6,), 0, 250, "uint8")), note="uint8 wraps")


class FloatUnary(Unary):
    """x -> y, floating point only."""

    sample_range: ClassVar[tuple[float, float]] = (-3.0, 3.0)

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS)
        return x.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        return unary_samples(cls(), rng, *cls.sample_range)


class NumberUnary(Unary):
    """x -> y, any number type."""

    def infer(self, x: Value) -> Types:
        need_dtype(x, NUMBERS)
        return x.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from unary_samples(cls(), rng)
        yield Sample(cls(), (integers(rng, (4, 3)),), note="int64")
        yield Sample(cls(), (integers(rng, (9,), dtype="int8"),), note="int8")


class NumberBinary(Binary):
    """(a, b) -> y, both of one number type."""

    def infer(self, a: Value, b: Value) -> Types:
        need_dtype(a, NUMBERS)
        return super().infer(a, b)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        return binary_samples(cls(), rng)
