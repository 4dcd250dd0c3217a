"""What the quantised ops mean, by numbers worked out from the ONNX text."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aicore.ir import Builder, Op, as_tuple, dtype_name
from aicore.kernels import REFERENCE, KernelTable
from aicore.ops.quantization import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from aicore.ops.quantized_linear import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from aicore.runtime.evaluate import ReferenceEvaluator
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
EVALUATE = ReferenceEvaluator(KernelTable(k for k in all_kernels() if k.variant == REFERENCE))
INF, NAN = float("inf"), float("nan")


def run(op: Op, *operands: Any) -> Array:
    """The op's only result, of the type that inference gives."""
    arrays = [None if o is None else np.asarray(o) for o in operands]
    builder = Builder()
    values = [None if a is None else builder.input(f"x{i}", dtype_name(a.dtype), a.shape) for i, a in enumerate(arrays)]
    (expected,) = as_tuple(builder.apply(op, *values))
    (found,) = EVALUATE(builder.nodes[-1].op, *arrays)
    assert dtype_name(found.dtype) == expected.dtype
    assert found.shape == expected.type.static_shape
    return found


def f32(*numbers: Any) -> Array:
    return np.array(numbers, np.float32)


def one(number: float, dtype: str = "float32") -> Array:
    return np.array(number, dtype)


def test_halves_are_rounded_to_even_before_the_zero_point_is_added() -> None:
    """0.5 + 1 would round to 2, and 1.5 + 1 to 2: but it is 0 + 1 and 2 + 1."""
    x = f32(0.5, 1.5, 2.5, -0.5, -1.5, 3.49)
    assert run(QuantizeLinear(), x, one(1), one(1, "int8")).tolist() == [1, 3, 3, 1, -1, 4]


def test_division_is_not_multiplication_by_the_reciprocal() -> None:
    """45.5 / 7 is 6.5, which rounds to 6; but 1 / 7 in float32 is a little too large, and the product above 6.5."""
    assert run(QuantizeLinear(), f32(45.5), one(7)).tolist() == [6]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("int16", -32768, 32767),
        ("uint16", 0, 65535),
        ("int4", -8, 7),
        ("uint4", 0, 15),
        ("int2", -2, 1),
        ("uint2", 0, 3),
    ],
)
def test_saturation_happens_in_floating_point(dtype: str, low: int, high: int) -> None:
    """3e9 does not fit in int32, and must not wrap on its way."""
    x = f32(3e9, -3e9, INF, -INF, 1e30, low, high)
    found = run(QuantizeLinear(output_dtype=dtype), x, one(1)).astype(np.int64)
    assert found.tolist() == [high, low, high, low, high, low, high]


def test_nan_is_the_zero_point() -> None:
    assert run(QuantizeLinear(), f32(NAN, 0, 1), one(1), one(7, "int8")).tolist() == [7, 7, 8]
    assert run(QuantizeLinear(), f32(0, 1, -1), one(0), one(7, "int8")).tolist() == [7, 127, -128]


def test_scales_per_axis_and_per_block() -> None:
    x = f32([2, 4, 6], [2, 4, 6])
    rows, columns = f32(1, 2), f32(1, 2, 4)
    assert run(QuantizeLinear(axis=0), x, rows).tolist() == [[2, 4, 6], [1, 2, 3]]
    assert run(QuantizeLinear(axis=-1), x, columns).tolist() == [[2, 2, 2], [2, 2, 2]]  # 6 / 4 is 1.5
    blocks = f32([1, 2], [2, 4])
    assert run(QuantizeLinear(axis=1, block_size=2), x, blocks).tolist() == [[2, 4, 3], [1, 2, 2]]
    zero_points = np.uint8([[1, 2], [3, 4]])
    quantized = run(QuantizeLinear(axis=1, block_size=2), x, blocks, zero_points)
    assert quantized.tolist() == [[3, 5, 5], [4, 5, 6]]
    back = run(DequantizeLinear(axis=1, block_size=2), quantized, blocks, zero_points)
    assert back.tolist() == [[2, 4, 6], [2, 4, 8]]


def test_precision_of_the_division() -> None:
    """2049 is 2048 in float16, and 2049 / 2 is 1024.5, which rounds to 1024; 2051 / 2 is 1025.5, so 1026."""
    x, scale, zero = f32(2051), one(2, "float16"), one(0, "int16")
    assert run(QuantizeLinear(precision="float32"), x, scale, zero).item() == 1026
    assert run(QuantizeLinear(), x, scale, zero).item() == 1026  # 2051 is 2052 in float16
    x = f32(2049)
    assert run(QuantizeLinear(precision="float32"), x, one(1, "float16"), zero).item() == 2049
    assert run(QuantizeLinear(), x, one(1, "float16"), zero).item() == 2048


def test_int32_operands() -> None:
    assert run(QuantizeLinear(output_dtype="int8"), np.int32([3, 5, -3, 300]), np.int32(2)).tolist() == [2, 2, -2, 127]
    big = np.int32([2**24 + 1, -(2**31)])
    assert run(DequantizeLinear(), big, one(1)).tolist() == [2**24, -(2.0**31)]  # rounded to float32


def test_eight_bit_floats_are_not_rounded_to_whole_numbers() -> None:
    x = f32(0.3, 500, -INF, NAN)
    found = run(QuantizeLinear(output_dtype="float8_e4m3fn"), x, one(1)).astype(np.float32)
    np.testing.assert_array_equal(found, f32(0.3125, 448, -448, NAN))
    over = run(QuantizeLinear(output_dtype="float8_e5m2", saturate=0), f32(1e6, -1e6), one(1)).astype(np.float32)
    np.testing.assert_array_equal(over, f32(INF, -INF))


def test_dequantization() -> None:
    ends = np.int8([-128, 127])
    assert run(DequantizeLinear(), ends, one(0.5), one(-128, "int8")).tolist() == [0, 127.5]
    assert run(DequantizeLinear(), np.uint16([65535, 0]), one(2), one(65535, "uint16")).tolist() == [0, -131070]
    four = np.array([-8, 7]).astype(ml_dtypes.int4)
    assert run(DequantizeLinear(), four, one(0.25), np.array(7).astype(ml_dtypes.int4)).tolist() == [-3.75, 0]
    eight = np.array([0.5, 448]).astype(ml_dtypes.float8_e4m3fn)
    assert run(DequantizeLinear(output_dtype="float16"), eight, one(2)).tolist() == [1, 896]


def test_dynamic_quantization() -> None:
    """The range -1 to 2, widened to nothing: the scale is 3 / 255, and 1 / scale is 85."""
    y, scale, zero_point = EVALUATE(DynamicQuantizeLinear(), f32(-1, 0, 2))
    assert (y.tolist(), zero_point.item()) == ([0, 85, 255], 85)
    np.testing.assert_allclose(scale, 3 / 255, rtol=1e-7)
    y, scale, zero_point = EVALUATE(DynamicQuantizeLinear(), f32(51, 255))  # the range includes 0
    assert (y.tolist(), scale.item(), zero_point.item()) == ([51, 255], 1, 0)
    y, scale, zero_point = EVALUATE(DynamicQuantizeLinear(), f32(-255, -51))
    assert (y.tolist(), scale.item(), zero_point.item()) == ([0, 204], 1, 255)


def test_dynamic_quantization_of_zeros_comes_back_as_zeros() -> None:
    found = EVALUATE(DynamicQuantizeLinear(), f32(0, 0))
    assert [array.tolist() for array in found] == [[0, 0], 0, 0]


def test_integer_products() -> None:
    """(10 - 8) * (3 - 1) + (0 - 8) * (-2 - 1) is 28, and so on."""
    a, b = np.uint8([[10, 0]]), np.int8([[3, 1], [-2, 1]])
    assert run(MatMulInteger(), a, b).tolist() == [[30, 10]]
    assert run(MatMulInteger(), a, b, np.uint8(8), np.int8(1)).tolist() == [[28, 0]]
    assert run(MatMulInteger(), a, b, None, np.int8([1, 2])).tolist() == [[20, -10]]
    rows = run(MatMulInteger(), np.uint8([[1], [2]]), np.int8([[3]]), np.uint8([1, 0]))
    assert rows.tolist() == [[0], [6]]


def test_integer_sums_wrap() -> None:
    a = np.full((1, 131_072), -128, np.int8)
    assert run(MatMulInteger(), a, a.T).item() == -(2**31)


def test_quantized_product() -> None:
    """28 * (0.5 * 0.25 / 0.5) is 7, and 0 is 0; the zero point is 3."""
    a, b = np.uint8([[10, 0]]), np.int8([[3, 1], [-2, 1]])
    left, right = (a, one(0.5), np.uint8(8)), (b, one(0.25), np.int8(1))
    assert run(QLinearMatMul(), *left, *right, one(0.5), np.int8(3)).tolist() == [[10, 3]]
    # 28 / 8 is 3.5, which rounds to 4; and 28 / 0.125 is 224, beyond 127
    assert run(QLinearMatMul(), *left, *right, one(1), np.int8(0)).tolist() == [[4, 0]]
    assert run(QLinearMatMul(), *left, *right, one(1 / 64), np.int8(0)).tolist() == [[127, 0]]
    by_column = (b, f32(0.25, 1), np.int8([1, 1]))
    assert run(QLinearMatMul(), *left, *by_column, one(0.5), np.uint8(3)).tolist() == [[10, 3]]


def test_integer_convolution_pads_with_the_zero_point() -> None:
    """Of (5, 6) around 5: 0 * 1 + 0 * 2 + 1 * 3 at the first place, 0 * 1 + 1 * 2 at the second."""
    x, w = np.uint8([[[5, 6]]]), np.int8([[[1, 2, 3]]])
    assert run(ConvInteger(pads=(1, 1)), x, w, np.uint8(5)).tolist() == [[[3, 2]]]
    assert run(ConvInteger(pads=(1, 1)), x, w).tolist() == [[[5 * 2 + 6 * 3, 5 + 6 * 2]]]
    two = np.concatenate((w, w))
    per_channel = run(ConvInteger(pads=(1, 1)), x, two, np.uint8(5), np.int8([0, 1]))
    assert per_channel.tolist() == [[[3, 2], [2, 1]]]


def test_quantized_convolution() -> None:
    """The sums 3 and 2, with the bias 5, times 0.5 * 1 / 2: 2 and 1.75; with the scale 2 of a channel 4 and 3.5."""
    x, w, bias = np.uint8([[[5, 6]]]), np.int8([[[1, 2, 3]], [[1, 2, 3]]]), np.int32([5, 5])
    image, result = (x, one(0.5), np.uint8(5)), (one(2), np.uint8(10))
    weight = (w, f32(1, 2), np.int8([0, 0]))
    found = run(QLinearConv(pads=(1, 1)), *image, *weight, *result, bias)
    assert found.tolist() == [[[12, 12], [14, 14]]]
    assert run(QLinearConv(pads=(1, 1)), *image, *weight, *result).tolist() == [[[11, 10], [12, 11]]]


def test_sums_beyond_24_bits_are_rounded_once() -> None:
    """2^24 + 1 is a tie between two float32 numbers, and becomes 2^24: half of 2^-16 of it is 128, not 128.0000076."""
    a = np.concatenate((np.full(1024, -128), [1]))[None].astype(np.int8)
    b = np.concatenate((np.full(1024, -128), [1]))[:, None].astype(np.int8)
    assert run(MatMulInteger(), a, b).item() == 2**24 + 1
    zero = np.int8(0)
    found = run(QLinearMatMul(), a, one(1), zero, b, one(1), zero, one(2.0**17 * 8 / 8), np.uint8(0))
    assert found.item() == 128
