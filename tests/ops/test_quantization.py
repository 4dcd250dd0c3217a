"""Types of the quantised ops: which scales fit which operands, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError, UnsupportedError
from aicore.ir import Builder, Op, TensorType, Value, as_tuple, symbol
from aicore.ops.quantization import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from aicore.ops.quantized_linear import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul

Operand = tuple[Any, ...] | None
"""Dtype, then dims; or absent."""


def build(op: Op, *operands: Operand) -> tuple[Op, tuple[Value, ...]]:
    builder = Builder()
    values = [None if o is None else builder.input(f"x{i}", o[0], o[1:]) for i, o in enumerate(operands)]
    results = as_tuple(builder.apply(op, *values))
    return builder.nodes[-1].op, results


def result(op: Op, *operands: Operand) -> TensorType:
    return build(op, *operands)[1][0].type


X = ("float32", 2, 3, 5)


@pytest.mark.parametrize(
    ("op", "operands", "dtype"),
    [
        (QuantizeLinear(), (X, ("float32",)), "uint8"),
        (QuantizeLinear(), (X, ("float16",), ("int16",)), "int16"),
        (QuantizeLinear(), (X, ("float32", 1), ("int4",)), "int4"),
        (QuantizeLinear(), (("int32", 2, 3, 5), ("int32",)), "uint8"),
        (QuantizeLinear(output_dtype="float8_e4m3fn"), (X, ("float32",)), "float8_e4m3fn"),
        (QuantizeLinear(), (X, ("float32", 3), ("int8", 3)), "int8"),
        (QuantizeLinear(axis=-1), (X, ("float32", 5), ("int8", 5)), "int8"),
        (QuantizeLinear(axis=2, block_size=2), (X, ("float32", 2, 3, 3)), "uint8"),
        (QuantizeLinear(axis=-3, block_size=7), (X, ("float32", 1, 3, 5)), "uint8"),
        (QuantizeLinear(precision="float32"), (X, ("float8_e8m0fnu",)), "uint8"),
        (DequantizeLinear(), (("uint8", 2, 3, 5), ("float16",), ("uint8",)), "float16"),
        (DequantizeLinear(output_dtype="float32"), (("int4", 2, 3, 5), ("float8_e8m0fnu",)), "float32"),
        (DequantizeLinear(), (("int32", 2, 3, 5), ("float32", 3)), "float32"),
    ],
)
def test_dtypes(op: Op, operands: tuple[Operand, ...], dtype: str) -> None:
    assert result(op, *operands) == TensorType(dtype, (2, 3, 5))


def test_a_vector_has_one_axis() -> None:
    assert result(QuantizeLinear(axis=1), ("float32", 5), ("float32", 5)).shape == (5,)


def test_unknown_dims_and_ranks() -> None:
    assert result(QuantizeLinear(), ("float32", 2, "C"), ("float32", 3)).shape == (2, symbol("C"))
    blocks = result(QuantizeLinear(axis=1, block_size=4), ("float32", 2, "C"), ("float32", 2, "blocks"))
    assert blocks.shape == (2, symbol("C"))
    x, scale = Value("x", TensorType("float32")), Builder().input("s", "float32", ())
    assert Builder().apply(QuantizeLinear(), x, scale).type == TensorType("uint8")


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (QuantizeLinear(), (X, ("float32", 2)), "axis 1 of .2, 3, 5. has not the length of the scale, 2"),
        (QuantizeLinear(axis=3), (X, ("float32", 3)), "axis 3 is out of range"),
        (QuantizeLinear(), (X, ("float32", 2, 3, 3)), "needs a block_size"),
        (QuantizeLinear(axis=2, block_size=2), (X, ("float32", 2, 3, 2)), r"want a scale of shape \(2, 3, 3\)"),
        (QuantizeLinear(axis=2, block_size=2), (X, ("float32", 3)), "want a scale of rank 3"),
        (QuantizeLinear(block_size=-1), (X, ("float32",)), "block_size is -1"),
        (QuantizeLinear(), (X, ("float32", 3), ("int8",)), "scale and zero point have different shapes"),
        (QuantizeLinear(output_dtype="int8"), (X, ("float32",), ("uint8",)), "the zero point is uint8"),
        (QuantizeLinear(), (("int64", 2), ("float32",)), "%x0 has element type int64"),
        (QuantizeLinear(), (X, ("int64",)), "%x1 has element type int64"),
        (DequantizeLinear(), (("uint8", 2), ("float32",), ("int8",)), "different dtypes"),
        (DequantizeLinear(), (("int64", 2), ("float32",)), "%x0 has element type int64"),
        (MatMulInteger(), (("int32", 2, 3), ("int8", 3, 4)), "%x0 has element type int32"),
        (MatMulInteger(), (("int8", 2, 3), ("int8", 4, 4)), "inner dimensions differ"),
        (MatMulInteger(), (("int8", 2, 3), ("int8", 3, 4), ("uint8",)), "different dtypes"),
        (MatMulInteger(), (("int8", 2, 3), ("int8", 3, 4), ("int8", 3)), "one for each row"),
        (MatMulInteger(), (("int8", 2, 3), ("int8", 3, 4), None, ("int8", 3)), "one for each column"),
        (MatMulInteger(), (("int8", 3), ("int8", 3, 4), ("int8", 3)), "one for each row"),
        (ConvInteger(), (("int8", 1, 2, 5), ("int8", 3, 2, 3), ("int8", 2)), "wants one number"),
        (ConvInteger(), (("int8", 1, 2, 5), ("int8", 3, 2, 3), None, ("int8", 2)), "one number for each channel"),
        (ConvInteger(), (("int8", 1, 4, 5), ("int8", 3, 2, 3)), "the input has 4 channels"),
        (ConvInteger(), (("int8", 1, 2, 5), ("float32", 3, 2, 3)), "%x1 has element type float32"),
    ],
)
def test_refused(op: Op, operands: tuple[Operand, ...], message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        build(op, *operands)


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (QuantizeLinear(output_dtype="int32"), (X, ("float32",)), "does not quantise to int32"),
        (QuantizeLinear(precision="int8"), (X, ("float32",)), "precision is int8"),
        (DequantizeLinear(), (("int8", 2), ("float8_e8m0fnu",)), "does not dequantise to float8_e8m0fnu"),
    ],
)
def test_unsupported(op: Op, operands: tuple[Operand, ...], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        build(op, *operands)


def test_dynamic_quantization_has_three_outputs() -> None:
    _, outputs = build(DynamicQuantizeLinear(), ("float32", "N", 4))
    types = [TensorType("uint8", (symbol("N"), 4)), TensorType("float32", ()), TensorType("uint8", ())]
    assert [value.type for value in outputs] == types


def test_products() -> None:
    assert result(MatMulInteger(), ("uint8", 2, 1, 5, 7), ("int8", 4, 7, 3)) == TensorType("int32", (2, 4, 5, 3))
    rows, columns = ("uint8", 2, 1, 5, 1), ("int8", 4, 1, 3)
    assert result(MatMulInteger(), ("uint8", 2, 1, 5, 7), ("int8", 4, 7, 3), rows, columns).rank == 4
    assert MatMulInteger().cost(*build_values(("uint8", 2, 5, 7), ("int8", 7, 3)))[0] == 2 * 2 * 5 * 7 * 3


def build_values(*operands: tuple[Any, ...]) -> list[Value]:
    return [Builder().input(f"x{i}", o[0], o[1:]) for i, o in enumerate(operands)]


def quantized(x: tuple[Any, ...], scale: tuple[int, ...] = ()) -> tuple[tuple[Any, ...], ...]:
    """An operand, its scale and its zero point."""
    return x, ("float32", *scale), (x[0], *scale)


Y = (("float32",), ("int8",))


def test_quantized_products() -> None:
    a, b = quantized(("uint8", 2, 7)), quantized(("int8", 7, 3), (3,))
    assert result(QLinearMatMul(), *a, *b, *Y) == TensorType("int8", (2, 3))
    with pytest.raises(InferenceError, match=r"%x6 is float32.3., wants one number"):
        result(QLinearMatMul(), *a, *b, ("float32", 3), ("int8", 3))
    with pytest.raises(InferenceError, match="one for each row"):
        result(QLinearMatMul(), *quantized(("uint8", 2, 7), (7,)), *b, *Y)
    with pytest.raises(InferenceError, match="scale and zero point have different shapes"):
        result(QLinearMatMul(), *a[:2], ("uint8", 2), *b, *Y)


def test_quantized_convolutions() -> None:
    x, w = quantized(("uint8", 1, 2, 5, "W")), quantized(("int8", 3, 2, 3, 3), (3,))
    op, (y,) = build(QLinearConv(auto_pad="VALID"), *x, *w, *Y, ("int32", 3))
    assert y.type == TensorType("int8", (1, 3, 3, symbol("W") - 2))
    assert op == QLinearConv("NOTSET", (1, 1), 1, (3, 3), (0, 0, 0, 0), (1, 1))
    with pytest.raises(InferenceError, match="the bias is int64"):
        build(QLinearConv(), *x, *w, *Y, ("int64", 3))
    with pytest.raises(InferenceError, match="the bias has not 3 entries"):
        build(QLinearConv(), *x, *w, *Y, ("int32", 4))
    with pytest.raises(InferenceError, match="wants one number"):
        build(QLinearConv(), *quantized(("uint8", 1, 2, 5, 5), (2,)), *w, *Y)


def test_sums_that_may_not_fit_in_32_bits() -> None:
    """131,072 products of -128 and -128 are 2^31."""
    for terms, fits in ((131_071, True), (131_072, False)):
        a, b = quantized(("int8", 1, terms)), quantized(("int8", terms, 1))
        x, w = quantized(("int8", 1, terms, 1)), quantized(("int8", 1, terms, 1))
        for op, operands in ((QLinearMatMul(), (*a, *b, *Y)), (QLinearConv(), (*x, *w, *Y))):
            if fits:
                build(op, *operands)
                continue
            with pytest.raises(UnsupportedError, match=f"{type(op).__name__}.*sums 131072 products"):
                build(op, *operands)
    assert result(MatMulInteger(), ("int8", 1, 131_072), ("int8", 131_072, 1)).dtype == "int32"


def test_costs() -> None:
    x, w = build_values(("uint8", 1, 2, 5, 5), ("int8", 3, 2, 3, 3))
    assert ConvInteger().cost(x, w) == (3 * 9 * 2 * 18, 50 + 54 + 4 * 27)
    np.testing.assert_equal(QuantizeLinear().cost(*build_values(X, ("float32",))), (30, 120 + 4 + 30))
