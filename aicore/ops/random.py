"""Ops that draw random numbers. They are functions of a key operand, so the same key gives the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops.base import Simple, ensure, shape_text
from aicore.ops.sizes import given, need_one_of, need_vector, unknown_shape, vector_length


@op_class
class Dropout(Simple):
    """`x` with each element zeroed with probability `ratio` and the rest divided by 1 - ratio, in training mode only.

    Operands: x, ratio (0.5 when absent), training_mode (false when absent), key (two uint32, needed in training mode).
    mask: also give, as output 1, which elements are kept (bool).
    stream: numbers this op's draws apart from those of others under the same key. Element i is kept when the i-th
    number of Philox4x32-10 for this key and stream is at least ratio * 2^32, so every backend keeps the same ones.
    The gradient is that with the same elements kept, by the ratio as well.
    Source: ONNX Dropout; Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """

    ratio: float | None = None
    training_mode: bool | None = None
    mask: bool = False
    stream: int = 0

    operand_fields: ClassVar[dict[int, str]] = {1: "ratio", 2: "training_mode"}

    def n_outputs(self) -> int:
        return 2 if self.mask else 1

    def infer(
        self, x: Value, ratio: Value | None = None, training_mode: Value | None = None, key: Value | None = None
    ) -> Types:
        ensure(x.dtype in FLOATS, f"%{x.name} is {x.dtype}, wants a float")
        ensure(self.ratio is None or 0 <= self.ratio < 1, f"ratio is {self.ratio}, wants 0 to below 1")
        ensure(training_mode is None or training_mode.dtype == "bool", "training_mode is not bool")
        trains = bool(self.training_mode) or training_mode is not None
        ensure(not trains or key is not None, "training mode needs a key")
        need_key(key)
        return (x.type, TensorType("bool", x.shape)) if self.mask else x.type

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        flops, moved = super().cost(*inputs)
        return (flops * 12, moved) if self.training_mode else (0, moved)

    def with_residuals(self, *inputs: Value | None) -> Dropout:
        return replace(self, mask=True) if self._may_drop(inputs) else self

    def grad(
        self, op: Builder, inputs: Sequence[Value | None], outputs: Sequence[Value], grads: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        padded: list[Value | None] = [*inputs, None, None]
        x, ratio, training_mode = padded[:3]
        if x is None or not self._may_drop(inputs):
            return (grads[0], None if ratio is None else op.Mul(ratio, op.scalar(0.0, ratio)))
        one, zero = op.scalar(1.0, x), op.scalar(0.0, x)
        kept = op.scalar(1.0 - (0.5 if self.ratio is None else self.ratio), x)
        if ratio is not None:
            kept = op.Sub(one, op.Reshape(op.Cast(ratio, to=x.dtype), shape=()))
        if training_mode is not None:
            kept = op.Where(training_mode, kept, one)
        x_grad = op.Where(outputs[1], op.Div(grads[0], kept), zero)
        if ratio is None:
            return (x_grad,)
        sloped = op.ReduceSum(op.Mul(x_grad, x), keepdims=0)
        sloped = op.Div(sloped, kept)
        if training_mode is not None:
            sloped = op.Where(training_mode, sloped, zero)
        return x_grad, op.Reshape(op.Cast(sloped, to=ratio.dtype), op.Shape(ratio))

    def _may_drop(self, inputs: Sequence[Value | None]) -> bool:
        return bool(self.training_mode) or (len(inputs) > 2 and inputs[2] is not None)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = rng.normal(size=(3, 5)).astype(np.float32)
        key = np.array([7, 9], np.uint32)
        yield Sample(Dropout(), (x,), note="inference")
        yield Sample(Dropout(0.3, mask=True), (x,), note="inference with mask")
        yield Sample(Dropout(0.3, True, True, 1), (x, None, None, key), note="training")
        yield Sample(Dropout(0.0, True), (x, None, None, key), note="training, ratio 0")
        yield Sample(Dropout(None, None, True), (x, np.array(0.75, np.float32), np.array(True), key), note="run time")


class Draw(Simple):
    """Numbers of a distribution in a given shape: operands key (two uint32) and shape, which is a field once constant.

    The words that are drawn are those of Philox4x32-10 for the key and `stream`, as for Dropout.
    """

    dtype: str
    shape: tuple[int, ...] | None

    operand_fields: ClassVar[dict[int, str]] = {1: "shape"}

    def infer(self, key: Value, shape: Value | None = None) -> Types:
        need_key(key)
        ensure(self.dtype in FLOATS, f"dtype is {self.dtype}, wants one of {', '.join(sorted(FLOATS))}")
        need_one_of(self.shape, shape, "the shape")
        need_vector(shape, "shape")
        dims = given(self.shape, shape)
        if dims is None:
            return TensorType(self.dtype, unknown_shape(vector_length(shape)))
        negative = any(isinstance(dim, int) and dim < 0 for dim in dims)
        ensure(not negative, f"shape {shape_text(dims)} has a negative dim")
        return TensorType(self.dtype, dims)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        flops, moved = super().cost(*inputs)
        return flops * 16, moved


@op_class
class DrawUniform(Draw):
    """low + u * (high - low), with u uniform from 0 to below 1: the upper 24 bits of a word, divided by 2^24.

    Narrow types are computed in float32. ONNX calls it RandomUniform, and RandomUniformLike with the shape of another
    tensor.
    """

    dtype: str = "float32"
    high: float = 1.0
    low: float = 0.0
    shape: tuple[int, ...] | None = None
    stream: int = 0

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from _draws(cls, low=-2.0, high=3.0)


@op_class
class DrawNormal(Draw):
    """mean + scale * z, with z of the normal distribution, by the transform of Box and Muller (1958).

    Elements 2i and 2i + 1 are r cos(a) and r sin(a), with r = sqrt(-2 log(1 - u)) and a = 2 pi v; u and v are the
    uniform numbers 2i and 2i + 1 of DrawUniform. ONNX calls it RandomNormal and RandomNormalLike.
    """

    dtype: str = "float32"
    mean: float = 0.0
    scale: float = 1.0
    shape: tuple[int, ...] | None = None
    stream: int = 0

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield from _draws(cls, mean=0.5, scale=0.25)


@op_class
class DrawKey(Simple):
    """A key for other ops of this family, uint32[2]: another one each time, from the system's source of randomness."""

    pure: ClassVar[bool] = False

    def infer(self) -> Types:
        return TensorType("uint32", (2,))


def need_key(key: Value | None) -> None:
    """Raise InferenceError unless the operand is absent or may be a key."""
    fits = key is None or (key.dtype == "uint32" and key.shape in (None, (2,)))
    ensure(fits, f"the key is {None if key is None else key.type}, wants uint32[2]")


def _draws(cls: Any, **fields: float) -> Iterable[Sample]:
    key = np.array([7, 9], np.uint32)
    for dtype in ("float32", "float64", "float16"):
        yield Sample(cls(dtype=dtype, shape=(3, 5)), (key,), note=dtype)
    yield Sample(cls(shape=(2, 4), stream=3, **fields), (key,), constant=(0,), note="all fields")
    yield Sample(cls(shape=(2, 0)), (key,), note="zero size")
    yield Sample(cls(), (key, np.array([3, 2])), note="shape known at run time only")
