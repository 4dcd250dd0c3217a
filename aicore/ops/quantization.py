"""Between real numbers and the integers (or 8-bit floats) that stand for them: real = (quantised - zero point) * scale.

The order of operations is fixed, so that every backend gives the same bits: divide (never multiply by the reciprocal),
round halves to even, add the zero point, saturate while the number is still a float, and only then convert.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Namespace
from aicore.ir.dims import Shape
from aicore.ir.dtypes import FLOATS, numpy_dtype
from aicore.ir.op import Op, Sample, Types
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import SPECIAL, floats, integers
from aicore.ops.base import Simple, ensure, need_dtype, normalize_axis, same_dim, same_dtype, shape_text

Array = np.ndarray[Any, Any]

NARROW_INTEGERS = frozenset({"int2", "uint2", "int4", "uint4"})
QUANTIZED_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16"}) | NARROW_INTEGERS
FLOAT8 = frozenset({"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})
QUANTIZED = QUANTIZED_INTEGERS | FLOAT8 | {"float4_e2m1fn"}
EXPONENTS = "float8_e8m0fnu"


class Quantization(Simple):
    """What QuantizeLinear and DequantizeLinear share: which scale an element has."""

    axis: int
    block_size: int

    def check_scale(self, x: Value, scale: Value, zero_point: Value | None) -> None:
        """Raise InferenceError unless scale and zero point fit x: for all of it, along an axis, or for each block."""
        ensure(self.block_size >= 0, f"block_size is {self.block_size}, wants 0 or more")
        if zero_point is not None and zero_point.shape is not None and scale.shape is not None:
            check_alike(scale.shape, zero_point.shape)
        if x.shape is None or scale.shape is None:
            return
        if self.block_size:
            self._check_blocks(x, scale)
        elif len(scale.shape) == 1 and scale.shape != (1,):
            self._check_vector(x, scale)
        else:
            ensure(scale.shape in ((), (1,)), f"a scale of shape {shape_text(scale.shape)} needs a block_size")

    def _check_vector(self, x: Value, scale: Value) -> None:
        shape, dims = x.shape or (), scale.shape or ()
        axis = quantized_axis(self.axis, len(shape))
        fits = same_dim(shape[axis], dims[0])
        ensure(fits, f"axis {axis} of {shape_text(shape)} has not the length of the scale, {dims[0]}")

    def _check_blocks(self, x: Value, scale: Value) -> None:
        shape, dims = x.shape or (), scale.shape or ()
        ensure(len(dims) == len(shape), f"blocks want a scale of rank {len(shape)}, not {len(dims)}")
        axis = quantized_axis(self.axis, len(shape))
        blocks = -(-1 * shape[axis] // self.block_size)
        wanted = (*shape[:axis], blocks, *shape[axis + 1 :])
        fits = all(map(same_dim, dims, wanted))
        text = f"blocks of {self.block_size} along axis {axis} of {shape_text(shape)}"
        ensure(fits, f"{text} want a scale of shape {shape_text(wanted)}, not {shape_text(dims)}")


def check_alike(scale: Shape, zero_point: Shape) -> None:
    """Raise InferenceError when two known shapes differ; one number may be written with rank 0 or 1."""
    if {scale, zero_point} <= {(), (1,)}:
        return
    fits = len(scale) == len(zero_point) and all(map(same_dim, scale, zero_point))
    ensure(fits, f"scale and zero point have different shapes: {shape_text(scale)} and {shape_text(zero_point)}")


def quantized_axis(axis: int, rank: int) -> int:
    """The axis along which scales differ; a vector has only one, whatever `axis` says."""
    return 0 if rank == 1 else normalize_axis(axis, rank)


@op_class
class QuantizeLinear(Quantization):
    """(x, scale, zero_point?) -> y = saturate(round(x / scale) + zero_point), of the type of the zero point.

    x and scale may be of different float types or int32; the scale is one number, a vector along `axis`, or of the
    shape of x with one number for each block of `block_size` elements along `axis`. Without a zero point, which is 0
    then, the result is of `output_dtype`, or uint8. Halves round to the even number. What is out of range becomes the
    nearest number of the type (so infinity the largest), and NaN the zero point, since NaN casts to 0.
    precision: element type of the division; that of the scale by default (int32 scales divide exactly).
    saturate: only for 8-bit floats, which are not rounded to whole numbers; 0 lets them overflow to infinity or NaN.
    Source: ONNX QuantizeLinear-28.
    """

    axis: int = 1
    block_size: int = 0
    output_dtype: str | None = None
    precision: str | None = None
    saturate: int = 1

    def infer(self, x: Value, y_scale: Value, y_zero_point: Value | None = None) -> Types:
        need_dtype(x, FLOATS | {"int32"})
        need_dtype(y_scale, FLOATS | {"int32", EXPONENTS})
        self.check_scale(x, y_scale, y_zero_point)
        if self.precision is not None and self.precision not in FLOATS:
            raise UnsupportedError(f"precision is {self.precision}, wants one of {', '.join(sorted(FLOATS))}")
        found = self.output_dtype or ("uint8" if y_zero_point is None else y_zero_point.dtype)
        if found not in QUANTIZED:
            raise UnsupportedError(f"does not quantise to {found}; known are {', '.join(sorted(QUANTIZED))}")
        agree = y_zero_point is None or y_zero_point.dtype == found
        ensure(agree, f"output_dtype is {found}, the zero point is {y_zero_point and y_zero_point.dtype}")
        return TensorType(found, x.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x, tenth = floats(rng, (2, 3, 5), -30, 30), np.array(0.1, np.float32)
        halves = np.arange(-4.5, 5.0, 0.5, dtype=np.float32)
        yield Sample(cls(), (x, tenth, np.array(128, np.uint8)), constant=(1, 2), note="uint8")
        yield Sample(cls(), (x, tenth, np.array(-3, np.int8)), note="int8, saturating")
        yield Sample(cls(), (x, tenth), note="no zero point: uint8")
        yield Sample(cls(), (halves, np.array(1, np.float32), np.array(1, np.int8)), note="halves, odd zero point")
        yield Sample(cls(), (SPECIAL * 3e9, tenth, np.array(7, np.int8)), note="huge, infinite, NaN")
        for dtype in ("int16", "uint16", *sorted(NARROW_INTEGERS)):
            yield Sample(cls(), (x, tenth, np.array(1).astype(numpy_dtype(dtype))), note=dtype)
            yield Sample(cls(output_dtype=dtype), (x * 1e4, tenth), note=f"{dtype} without a zero point")
        for dtype in sorted(FLOAT8 | {"float4_e2m1fn"}):
            yield Sample(cls(output_dtype=dtype), (x * 100, tenth), note=dtype)
        yield Sample(cls(output_dtype="float8_e4m3fn", saturate=0), (x * 100, tenth), note="float8, overflowing")
        per_channel = (floats(rng, (3,), 0.1, 0.3), integers(rng, (3,), 0, 99, "uint8"))
        yield Sample(cls(), (x, *per_channel), constant=(1, 2), note="per axis")
        yield Sample(cls(axis=-2), (x, *per_channel), note="per axis, from the end")
        yield Sample(cls(), (x[0, 0], *(np.repeat(a[:1], 5) for a in per_channel)), note="vector by vector")
        blocks = (floats(rng, (2, 3, 3), 0.1, 0.3), integers(rng, (2, 3, 3), -9, 9, "int8"))
        yield Sample(cls(axis=2, block_size=2), (x, *blocks), constant=(1, 2), note="blocks, the last one shorter")
        yield Sample(cls(axis=-3, block_size=2), (x, floats(rng, (1, 3, 5), 0.1, 0.3)), note="one block")
        yield Sample(cls(), (x[..., :0], tenth, np.array(0, np.int8)), note="zero size")
        yield Sample(cls(), (integers(rng, (4, 3), -999, 999, "int32"), np.array(2.5, np.float32)), note="int32")
        yield Sample(
            cls(output_dtype="int8"),
            (integers(rng, (4, 3), -99, 99, "int32"), np.array(2, np.int32)),
            note="int32 by int32, halves",
        )
        half = np.array(0.1, np.float16)
        yield Sample(cls(), (x, half, np.array(0, np.int8)), note="divided in float16")
        yield Sample(cls(precision="float32"), (x, half, np.array(0, np.int8)), note="precision")
        power = np.array(0.25).astype(numpy_dtype(EXPONENTS))
        yield Sample(cls(output_dtype="int8"), (x, power), note="scale is an exponent")


@op_class
class DequantizeLinear(Quantization):
    """(x, scale, zero_point?) -> y = (x - zero_point) * scale, of the scale's type or of `output_dtype`.

    x is of at most 16 bits, or int32, whose zero point is usually absent. The difference is exact; it is
    rounded to the type of the result, or to float32 for narrower ones, in which the product is computed and then
    rounded once. Which scale an element has is said as for QuantizeLinear. Source: ONNX DequantizeLinear-28.
    """

    axis: int = 1
    block_size: int = 0
    output_dtype: str | None = None

    def infer(self, x: Value, x_scale: Value, x_zero_point: Value | None = None) -> Types:
        need_dtype(x, QUANTIZED | {"int32"})
        need_dtype(x_scale, FLOATS | {EXPONENTS})
        same_dtype(x, x_zero_point)
        self.check_scale(x, x_scale, x_zero_point)
        found = self.output_dtype or x_scale.dtype
        if found not in FLOATS:
            raise UnsupportedError(f"does not dequantise to {found}; output_dtype says what else to give")
        return TensorType(found, x.shape)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def numbers(dtype: str, shape: tuple[int, ...] = (2, 3, 5)) -> Array:
            return integers(rng, shape, -200, 200).astype(np.int8).astype(numpy_dtype(dtype))

        tenth = np.array(0.1, np.float32)
        for dtype in ("uint8", "int8", "int16", "uint16", *sorted(NARROW_INTEGERS)):
            zero_point = np.array(1).astype(numpy_dtype(dtype))
            yield Sample(cls(), (numbers(dtype), tenth, zero_point), constant=(1, 2), note=dtype)
        for dtype in sorted(FLOAT8 | {"float4_e2m1fn"}):
            yield Sample(cls(), (numbers(dtype), tenth), note=dtype)
        extremes = np.array([-(2**31), 2**31 - 1, 2**24 + 1, 0], np.int32)
        yield Sample(cls(), (extremes, tenth), note="int32")
        ends = np.array([-128, 127], np.int8)
        yield Sample(cls(), (ends, tenth, np.array(-128, np.int8)), note="the difference exceeds int8")
        per_channel = (floats(rng, (3,), 0.1, 0.3), integers(rng, (3,), 0, 99, "uint8"))
        yield Sample(cls(), (numbers("uint8"), *per_channel), constant=(1, 2), note="per axis")
        yield Sample(cls(axis=-2), (numbers("uint8"), *per_channel), note="per axis, from the end")
        blocks = (floats(rng, (2, 3, 3), 0.1, 0.3), integers(rng, (2, 3, 3), -9, 9, "int8"))
        yield Sample(cls(axis=2, block_size=2), (numbers("int8"), *blocks), constant=(1, 2), note="blocks")
        yield Sample(cls(), (numbers("int8", (2, 0)), tenth), note="zero size")
        yield Sample(cls(output_dtype="float16"), (numbers("int8"), tenth), note="float16")
        power = np.array(0.25).astype(numpy_dtype(EXPONENTS))
        yield Sample(cls(output_dtype="float32"), (numbers("int8"), power), note="scale is an exponent")


@op_class
class DynamicQuantizeLinear(Op):
    """x -> (y, scale, zero_point): x quantised to uint8 by its own range, which is widened to include 0. float32.

    scale = (max - min) / 255 and zero_point = saturate(round(0 - min / scale)), both of rank 0. Where x is 0
    throughout, scale, zero point and y are 0. Source: ONNX DynamicQuantizeLinear-11.
    """

    def n_outputs(self) -> int:
        return 3

    def decompose(self, op: Namespace, x: Any) -> Any:
        zero, largest = op.scalar(0.0, x), op.scalar(255.0, x)
        low = op.Min(op.ReduceMin(x, keepdims=0), zero)
        high = op.Max(op.ReduceMax(x, keepdims=0), zero)
        scale = op.Div(op.Sub(high, low), largest)
        start = op.Sub(zero, op.Div(low, scale))
        zero_point = op.Cast(op.Round(op.Clip(start, min=0.0, max=255.0)), to="uint8")
        return op.QuantizeLinear(x, scale, zero_point), scale, zero_point

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (3, 4, 5)),))
        yield Sample(cls(), (floats(rng, (37,), 0.5, 3),), note="all above 0")
        yield Sample(cls(), (floats(rng, (37,), -3, -0.5),), note="all below 0")
        yield Sample(cls(), (np.zeros((2, 3), np.float32),), note="zeros")
        yield Sample(cls(), (floats(rng, ()),), note="rank 0")
