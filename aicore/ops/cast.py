"""Conversions between element types."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Shape
from aicore.ir.dtypes import DTYPES, FLOATS, INTEGERS
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._content import combine
from aicore.ops._pointwise import SPECIAL, floats, integers
from aicore.ops.base import Simple, ensure
from aicore.ops.gradients import Given, Gradients

ROUND_MODES = ("up", "down", "nearest")


class Conversion(Simple):
    """What Cast and CastLike share; `round_mode` and `saturate` concern the 8-bit floats alone."""

    saturate: int
    round_mode: str

    def converted(self, x: Value, to: str) -> TensorType:
        ensure(to in DTYPES, f"no element type is called {to!r}")
        if self.round_mode not in ROUND_MODES:
            raise UnsupportedError(f"round_mode is {self.round_mode!r}, wants one of {', '.join(ROUND_MODES)}")
        return TensorType(to, x.shape)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        """The gradient converted back, where both types are of floating point."""
        x = inputs[0]
        return (op.Cast(grads[0], to=x.dtype) if x.dtype in FLOATS else None,)


@op_class
class Cast(Conversion):
    """The elements converted to the type named `to`.

    A float becomes an integer by dropping its fraction; where ONNX leaves the result undefined, aicore saturates on
    every backend: below the range the smallest integer, above it the largest, and NaN gives 0. An integer that does not
    fit the target integer keeps its low bits; 2- and 4-bit integers keep them for floats too, as the ONNX node tests
    have it. Anything but zero becomes True, NaN included, so a chain from float over int to bool must not be collapsed
    (0.5 -> 0 -> False). Floats round to nearest, halves to even, and overflow to infinity; 8-bit floats saturate to
    their largest number unless `saturate` is 0. Strings are parsed and printed as Python's float and int do, `inf` and
    `nan` in any case.
    Source: ONNX Cast.
    """

    to: str = "float32"
    saturate: int = 1
    round_mode: str = "up"

    def infer(self, x: Value) -> Types:
        return self.converted(x, self.to)

    def content(self, x: Value) -> Shape | None:
        if self.to not in INTEGERS or x.dtype not in INTEGERS | {"bool"}:
            return None
        return combine(lambda dim: dim, x, dtype=self.to)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls("float64"), (floats(rng, (3, 4)),))
        yield Sample(cls("float16"), (floats(rng, (3, 4), -7e4, 7e4),), note="overflow to infinity")
        yield Sample(cls("bfloat16"), (SPECIAL,), note="zeros, infinities, NaN")
        yield Sample(cls("int64"), (floats(rng, (3, 4), -9, 9),), note="the fraction is dropped")
        limits = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2147483520, -2147483648, -0.9], np.float32)
        for to in ("int32", "int8", "uint8", "uint32", "int64"):
            yield Sample(cls(to), (limits,), note=f"out of range of {to}")
        yield Sample(cls("int8"), (np.array([200, -129, 5, 256], np.int16),), note="low bits are kept")
        yield Sample(cls("bool"), (np.array([0.0, -0.0, 0.5, np.nan, np.inf], np.float32),), note="NaN is true")
        yield Sample(cls("float32"), (rng.random((3, 4)) < 0.5,), note="from bool")
        yield Sample(cls("float32"), (integers(rng, (2, 0)),), note="zero size")
        yield Sample(cls("float32"), (floats(rng, (2, 3)),), note="the same type")


@op_class
class CastLike(Conversion):
    """The elements of x converted to the element type of the second operand, as Cast does; its numbers are not read."""

    saturate: int = 1
    round_mode: str = "up"

    def infer(self, x: Value, target_type: Value) -> Types:
        return self.converted(x, target_type.dtype)

    def content(self, x: Value, target_type: Value) -> Shape | None:
        return Cast(target_type.dtype).content(x)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (3, 4), -9, 9), np.zeros(1, np.int32)))
        yield Sample(cls(), (integers(rng, (5,)), np.zeros((2, 0), np.float32)), note="like an empty tensor")
        yield Sample(cls(), (floats(rng, (2, 3)), np.zeros(2, np.float64)), note="float64")
