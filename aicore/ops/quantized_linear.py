"""Products and convolutions of 8-bit integers, summed in 32 bits.

Sums wrap, as they do in hardware, and never saturate: wherever the whole sum fits in int32, it is exact, in whichever
order it is made. The ops that quantise their result refuse sums that may not fit. For these,

    y = saturate(round(float32(sum) * multiplier) + zero_point)

in float32, rounding halves to even. The multiplier is x_scale * w_scale / y_scale, computed in float64 and rounded to
float32 once, for each output channel; the product is not fused with what follows. A sum beyond 2^24 is rounded by the
conversion, by at most 2^-24 of itself, on every backend alike: so all of them give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.dims import Dim, Shape
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import floats, integers
from aicore.ops.base import ensure, need_dtype, need_rank, same_dim, same_dtype
from aicore.ops.convolution import Conv
from aicore.ops.matmul import MatMul
from aicore.ops.quantization import check_alike

Array = np.ndarray[Any, Any]
C = TypeVar("C", bound="ConvInteger | QLinearConv")

EIGHT_BITS = frozenset({"int8", "uint8"})
MOST_TERMS = 131_071
"""Terms of a sum that fits in int32 whatever the 8-bit numbers are: 131,072 times -128 * -128 is 2^31."""


@op_class
class MatMulInteger(Op):
    """(a, b, a_zero_point?, b_zero_point?) -> (a - a_zero_point) @ (b - b_zero_point) in int32, as numpy.matmul.

    a and b are int8 or uint8 each. A zero point is one number, one for each row of a (a vector of m, or shape
    (..., m, 1)), or one for each column of b (a vector of n, or (..., 1, n)). Source: ONNX MatMulInteger-10.
    """

    def infer(self, a: Value, b: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None) -> Types:
        product = _product(a, b)
        for value, zero_point in ((a, a_zero_point), (b, b_zero_point)):
            same_dtype(value, zero_point)
        _check_rows(a, a_zero_point)
        _check_columns(b, b_zero_point)
        return TensorType("int32", product.shape)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return _matmul_cost(self, inputs, 0, 1)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        a, b = _bytes(rng, (5, 7), "uint8"), _bytes(rng, (7, 3), "int8")
        yield Sample(cls(), (a, b), constant=(1,), note="u8 by s8, no zero points")
        for left, right in (("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "int8")):
            operands = (_bytes(rng, (5, 7), left), _bytes(rng, (7, 3), right))
            zero_points = (np.array(113, left), np.array(101, right))
            yield Sample(cls(), (*operands, *zero_points), constant=(1, 2, 3), note=f"{left} by {right}")
        yield Sample(cls(), (a, b, _bytes(rng, (5,), "uint8"), _bytes(rng, (3,), "int8")), note="per row and column")
        yield Sample(cls(), (a, b, _bytes(rng, (1,), "uint8")), note="zero point of a alone")
        batch, other = _bytes(rng, (2, 1, 5, 7), "uint8"), _bytes(rng, (4, 7, 3), "int8")
        per_batch = (_bytes(rng, (2, 1, 5, 1), "uint8"), _bytes(rng, (4, 1, 3), "int8"))
        yield Sample(cls(), (batch, other, *per_batch), note="batches, each with zero points of its own")
        yield Sample(cls(), (batch, b), constant=(1,), note="shared weight")
        yield Sample(cls(), (a[0], b), note="vector, matrix")
        yield Sample(cls(), (a, b[:, 0], None, np.array(3, np.int8)), note="matrix, vector")
        ends = np.full((2, 1500), 255, np.uint8), np.full((1500, 2), -128, np.int8)
        yield Sample(cls(), ends, constant=(1,), note="longer than float32 can sum at once")
        yield Sample(cls(), (a[:, :0], b[:0]), note="nothing to sum: zeros")
        yield Sample(cls(), (a[:0], b), note="zero size")


@op_class
class QLinearMatMul(Op):
    """(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point) -> y: a quantised matrix product.

    a, b and y are int8 or uint8 each; y has the type of its zero point. Scales and zero points of a and b are those of
    MatMulInteger, those of y one number. Up to 131,071 products are summed. The formula is that of this family.
    Source: ONNX QLinearMatMul-21.
    """

    def infer(
        self,
        a: Value,
        a_scale: Value,
        a_zero_point: Value,
        b: Value,
        b_scale: Value,
        b_zero_point: Value,
        y_scale: Value,
        y_zero_point: Value,
    ) -> Types:
        product = _product(a, b)
        _check_parameters(a, a_scale, a_zero_point)
        _check_parameters(b, b_scale, b_zero_point)
        _check_result(y_scale, y_zero_point)
        for parameter in (a_scale, a_zero_point):
            _check_rows(a, parameter)
        for parameter in (b_scale, b_zero_point):
            _check_columns(b, parameter)
        need_terms(a.shape[-1] if a.shape else 0)
        return TensorType(y_zero_point.dtype, product.shape)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return _matmul_cost(self, inputs, 0, 3)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def case(left: str, right: str, to: str, note: str, scale: float = 0.4, **other: Any) -> Sample:
            a_parameters = other.get("a", (np.array(0.02, np.float32), np.array(113, left)))
            b_parameters = other.get("b", (np.array(0.1, np.float32), np.array(101, right)))
            a, b = _bytes(rng, other.get("rows", (5, 7)), left), _bytes(rng, other.get("columns", (7, 3)), right)
            y_parameters = (np.array(scale, np.float32), np.array(77, to))
            return Sample(cls(), (a, *a_parameters, b, *b_parameters, *y_parameters), (1, 2, 3, 4, 5, 6, 7), note)

        for left, right in (("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "int8")):
            yield case(left, right, left, f"{left} by {right}")
        yield case("uint8", "int8", "int8", "another type, saturating", scale=0.01)
        rows = (floats(rng, (5,), 0.01, 0.1), _bytes(rng, (5,), "uint8"))
        columns = (floats(rng, (3,), 0.01, 0.1), _bytes(rng, (3,), "int8"))
        yield case("uint8", "int8", "uint8", "per row and column", a=rows, b=columns)
        batches = (floats(rng, (2, 5, 1), 0.01, 0.1), _bytes(rng, (2, 5, 1), "uint8"))
        yield case("uint8", "int8", "uint8", "per batch", a=batches, rows=(2, 5, 7))
        yield case("uint8", "int8", "uint8", "long sums", scale=9.0, rows=(2, 1500), columns=(1500, 2))
        yield case("uint8", "uint8", "uint8", "vectors", rows=(7,), columns=(7,))
        yield case("uint8", "uint8", "uint8", "zero size", rows=(0, 7))


@op_class
class ConvInteger(Op):
    """(x, w, x_zero_point?, w_zero_point?) -> the convolution of x - x_zero_point with w - w_zero_point, in int32.

    x and w are int8 or uint8 each; fields and shapes are those of Conv. Padding counts as the zero point of x, one
    number; that of w is one number, or one for each output channel. Source: ONNX ConvInteger-10.
    """

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def resolve(self, x: Value, w: Value, *zero_points: Value | None) -> ConvInteger:
        return _resolved(self, x, w)

    def infer(self, x: Value, w: Value, x_zero_point: Value | None = None, w_zero_point: Value | None = None) -> Types:
        for value, zero_point in ((x, x_zero_point), (w, w_zero_point)):
            need_dtype(value, EIGHT_BITS)
            same_dtype(value, zero_point)
        _check_single(x_zero_point)
        _check_channels(w, w_zero_point)
        return TensorType("int32", _conv_shape(self, x, w))

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return _conv_cost(self, inputs, 0, 1)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for note, x, w, given in _convolutions():
            operands = (_bytes(rng, x, "uint8"), _bytes(rng, w, "int8"), np.array(113, np.uint8), np.array(-3, np.int8))
            yield Sample(cls(**given), operands, constant=(1, 2, 3), note=note)
        x, w = (2, 3, 6, 5), (4, 3, 3, 3)
        for left, right in (("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")):
            zero_points = (np.array(101, left), _bytes(rng, (4,), right))
            operands = (_bytes(rng, x, left), _bytes(rng, w, right), *zero_points)
            yield Sample(cls(pads=(1,) * 4), operands, constant=(1, 2, 3), note=f"{left} by {right}, per channel")
        yield Sample(cls(pads=(1,) * 4), (_bytes(rng, x, "uint8"), _bytes(rng, w, "int8")), note="no zero points")


@op_class
class QLinearConv(Op):
    """(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b?) -> y: a quantised convolution.

    x, w and y are int8 or uint8 each; y has the type of its zero point. Fields and shapes are those of Conv. Padding
    counts as the zero point of x. Scale and zero point of w are one number, or one for each output channel; all others
    are one number. b is int32, with the scale x_scale * w_scale and zero point 0, and is added to the sum. Up to
    131,071 products are summed. The formula is that of this family. Source: ONNX QLinearConv-10.
    """

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def resolve(self, x: Value, x_scale: Value, x_zero_point: Value, w: Value, *others: Value | None) -> QLinearConv:
        return _resolved(self, x, w)

    def infer(
        self,
        x: Value,
        x_scale: Value,
        x_zero_point: Value,
        w: Value,
        w_scale: Value,
        w_zero_point: Value,
        y_scale: Value,
        y_zero_point: Value,
        b: Value | None = None,
    ) -> Types:
        _check_parameters(x, x_scale, x_zero_point)
        _check_parameters(w, w_scale, w_zero_point)
        _check_result(y_scale, y_zero_point)
        for parameter in (x_scale, x_zero_point):
            _check_single(parameter)
        for parameter in (w_scale, w_zero_point):
            _check_channels(w, parameter)
        ensure(b is None or b.dtype == "int32", f"the bias is {b and b.dtype}, wants int32")
        shape = _conv_shape(self, x, w, b)
        need_terms(_terms(w))
        return TensorType(y_zero_point.dtype, shape)

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        return _conv_cost(self, inputs, 0, 3)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def parameters(dtype: str, scale: float, zero_point: int) -> tuple[Array, Array]:
            return np.array(scale, np.float32), np.array(zero_point, dtype)

        constant = (1, 2, 3, 4, 5, 6, 7, 8)
        for note, x, w, given in _convolutions():
            left = (_bytes(rng, x, "uint8"), *parameters("uint8", 0.02, 113))
            right = (_bytes(rng, w, "int8"), *parameters("int8", 0.1, -3))
            bias = integers(rng, w[:1], -2000, 2000, "int32")
            yield Sample(cls(**given), (*left, *right, *parameters("uint8", 0.7, 101), bias), constant, note)
        x, w = (2, 3, 6, 5), (4, 3, 3, 3)
        for first, second in (("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")):
            left = (_bytes(rng, x, first), *parameters(first, 0.02, 101))
            right = (_bytes(rng, w, second), floats(rng, (4,), 0.05, 0.2), _bytes(rng, (4,), second))
            operands = (*left, *right, *parameters("int8", 0.9, 7))
            yield Sample(cls(pads=(1,) * 4), operands, constant[:7], f"{first} by {second}, per channel, no bias")


def need_terms(count: Dim) -> None:
    """Raise UnsupportedError for sums that may not fit in int32."""
    if isinstance(count, int) and count > MOST_TERMS:
        raise UnsupportedError(f"sums {count} products of 8 bits; more than {MOST_TERMS} may not fit in 32 bits")


def as_conv(op: ConvInteger | QLinearConv) -> Conv:
    """The convolution of floating point with the same fields."""
    return Conv(**{field.name: getattr(op, field.name) for field in fields(Conv)})


def _resolved(op: C, x: Value, w: Value) -> C:
    conv = as_conv(op).resolve(_real(x), _real(w))
    return replace(op, **{field.name: getattr(conv, field.name) for field in fields(Conv)})


def _conv_shape(op: ConvInteger | QLinearConv, x: Value, w: Value, b: Value | None = None) -> Shape | None:
    (real,) = as_tuple(as_conv(op).infer(_real(x), _real(w), None if b is None else _real(b)))
    return real.shape


def _real(value: Value) -> Value:
    """A value of the same shape for inference that takes only floating point."""
    return Value(value.name, TensorType("float32", value.shape))


def _product(a: Value, b: Value) -> TensorType:
    need_dtype(a, EIGHT_BITS)
    need_dtype(b, EIGHT_BITS)
    (found,) = as_tuple(MatMul().infer(_real(a), _real(b)))
    return found


def _check_parameters(x: Value, scale: Value, zero_point: Value) -> None:
    need_dtype(x, EIGHT_BITS)
    same_dtype(x, zero_point)
    need_dtype(scale, FLOATS)
    if scale.shape is not None and zero_point.shape is not None:
        check_alike(scale.shape, zero_point.shape)


def _check_result(scale: Value, zero_point: Value) -> None:
    need_dtype(scale, FLOATS)
    need_dtype(zero_point, EIGHT_BITS)
    _check_single(scale)
    _check_single(zero_point)


def _check_single(parameter: Value | None) -> None:
    if parameter is not None:
        ensure(parameter.shape in (None, (), (1,)), f"%{parameter.name} is {parameter.type}, wants one number")


def _check_channels(w: Value, parameter: Value | None) -> None:
    """One number, or one for each output channel of a convolution."""
    if parameter is None or parameter.shape in (None, (), (1,)):
        return
    need_rank(parameter, 1)
    fits = w.shape is None or same_dim(w.shape[0], (parameter.shape or (0,))[0])
    ensure(fits, f"%{parameter.name} has not one number for each channel of {w.type}")


def _check_rows(a: Value, parameter: Value | None) -> None:
    if parameter is None or parameter.shape is None or a.shape is None:
        return
    shape = (*parameter.shape, 1) if parameter.rank == 1 else parameter.shape
    fits = shape in ((), (1, 1)) or (len(a.shape) > 1 and shape[-1] == 1 and _fits(shape[:-1], a.shape[:-1]))
    ensure(fits, f"%{parameter.name} is {parameter.type}, wants one number or one for each row of {a.type}")


def _check_columns(b: Value, parameter: Value | None) -> None:
    if parameter is None or parameter.shape is None or b.shape is None:
        return
    shape = (1, *parameter.shape) if parameter.rank == 1 else parameter.shape
    columns = (*b.shape[:-2], *b.shape[-1:])
    fits = shape in ((), (1, 1)) or (len(b.shape) > 1 and shape[-2] == 1 and _fits((*shape[:-2], *shape[-1:]), columns))
    ensure(fits, f"%{parameter.name} is {parameter.type}, wants one number or one for each column of {b.type}")


def _fits(shape: Shape, whole: Shape) -> bool:
    """Whether `shape` broadcasts to `whole`, as far as is known."""
    pairs = zip(shape[::-1], whole[::-1], strict=False)
    return len(shape) <= len(whole) and all(dim == 1 or same_dim(dim, other) for dim, other in pairs)


def _terms(w: Value) -> Dim:
    """Products in one sum of a convolution."""
    total: Dim = 1
    for dim in (w.shape or ())[1:]:
        total = total * dim
    return total


def _matmul_cost(op: Op, inputs: Sequence[Value | None], a: int, b: int) -> tuple[Dim, Dim]:
    left, right = inputs[a], inputs[b]
    ensure(left is not None and right is not None, "an operand is missing")
    flops: Dim = 0 if left is None or right is None else MatMul().cost(_real(left), _real(right))[0]
    return flops, moved_bytes(op.infer(*inputs), inputs)


def _conv_cost(op: ConvInteger | QLinearConv, inputs: Sequence[Value | None], x: int, w: int) -> tuple[Dim, Dim]:
    image, weight = inputs[x], inputs[w]
    ensure(image is not None and weight is not None, "an operand is missing")
    flops: Dim = 0 if image is None or weight is None else as_conv(op).cost(_real(image), _real(weight))[0]
    return flops, moved_bytes(op.infer(*inputs), inputs)  # type: ignore[arg-type]


def _bytes(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, tuple(shape), endpoint=True).astype(dtype)


def _convolutions() -> Iterable[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]]:
    yield "no padding", (1, 3, 7, 6), (4, 3, 3, 3), {}
    yield "padding is the zero point", (2, 3, 7, 6), (4, 3, 3, 3), {"pads": (1, 0, 2, 1), "strides": (2, 1)}
    yield "1x1", (2, 5, 6, 7), (3, 5, 1, 1), {}
    yield "1x1, strided", (1, 4, 7, 7), (6, 4, 1, 1), {"strides": (2, 3)}
    yield "groups", (2, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "strides": (2, 1), "pads": (1, 0, 2, 1)}
    yield "depthwise", (2, 5, 8, 9), (5, 1, 3, 5), {"group": 5, "pads": (1, 2, 1, 2)}
    yield "dilated", (1, 2, 11, 12), (3, 2, 3, 2), {"dilations": (2, 3), "pads": (2, 1, 0, 3)}
    yield "SAME_UPPER", (1, 2, 5, 7), (2, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": (2, 2)}
    yield "SAME_LOWER", (1, 2, 5, 7), (2, 2, 4, 4), {"auto_pad": "SAME_LOWER", "strides": (1, 2)}
    yield "one spatial dim", (2, 3, 11), (4, 3, 4), {"pads": (2, 1), "strides": (2,)}
    yield "three spatial dims", (1, 2, 5, 4, 6), (3, 2, 2, 3, 2), {"pads": (1, 1, 0, 0, 1, 1)}
    yield "longer than float32 can sum at once", (1, 130, 3, 3), (2, 130, 3, 3), {"pads": (1, 1, 1, 1)}
    yield "empty batch", (0, 2, 4, 4), (3, 2, 3, 3), {}
