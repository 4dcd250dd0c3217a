"""Pointwise references by numbers worked out by hand, where the ONNX text or aicore's policy decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aicore.errors import AicoreError
from aicore.ir import FLOATS, INTEGERS, Op, numpy_dtype
from aicore.ops import activation as act
from aicore.ops.arithmetic import Add, Div, Max, Mean, Min, Mod, Mul, Pow, Sub, Sum
from aicore.ops.cast import Cast, CastLike
from aicore.ops.elementwise import Abs, Erf, Exp, Neg, Round, Sign, Sqrt
from aicore.ops.logic import BitShift, BitwiseNot, Equal, Greater, IsInf, IsNaN, Less, Or, Where
from aicore_cpu_numpy.reference.cast import convert

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]
NAN, INF = math.nan, math.inf


def array(numbers: Any, dtype: str = "float32") -> Array:
    return np.array(numbers, numpy_dtype(dtype))


CASES: list[tuple[Op, list[Array], Array]] = [
    (Div(), [array([7, -7, 7, -7, 5, 0], "int32"), array([2, 2, -2, -2, 0, 0], "int32")],
     array([3, -3, -3, 3, 0, 0], "int32")),
    (Div(), [array([-128, 127], "int8"), array([-1, -1], "int8")], array([-128, -127], "int8")),
    (Div(), [array([250, 7], "uint8"), array([3, 0], "uint8")], array([83, 0], "uint8")),
    (Div(), [array([1.0, -1.0, 0.0]), array([0.0, 0.0, 0.0])], array([INF, -INF, NAN])),
    (Mod(), [array([7, -7, 7, -7, 5], "int64"), array([3, 3, -3, -3, 0], "int64")], array([1, 2, -2, -1, 0], "int64")),
    (Mod(fmod=1), [array([7, -7, 7, -7, 5], "int64"), array([3, 3, -3, -3, 0], "int64")],
     array([1, -1, 1, -1, 0], "int64")),
    (Mod(), [array([-4.3, 7.2, 5.0, INF, 1.0]), array([2.0, -3.0, 0.0, 1.0, -INF])],
     array([1.7, -1.8, NAN, NAN, -INF])),
    (Mod(fmod=1), [array([-4.3, 7.2, 5.0, 1.0]), array([2.0, -3.0, 0.0, -INF])], array([-0.3, 1.2, NAN, 1.0])),
    (Add(), [array([127, -128], "int8"), array([1, -1], "int8")], array([-128, 127], "int8")),
    (Sub(), [array([0], "uint8"), array([1], "uint8")], array([255], "uint8")),
    (Mul(), [array([2**31], "int64"), array([2**32], "int64")], array([-(2**63)], "int64")),
    (Pow(), [array([2, 3, -2, 1, -1, -1, 2, 0], "int32"), array([10, 4, 3, -5, -2, -3, -1, -1], "int64")],
     array([1024, 81, -8, 1, 1, -1, 0, 0], "int32")),
    (Pow(), [array([9, 2], "int64"), array([0.5, -1.0])], array([3, 0], "int64")),
    (Pow(), [array([2.0, -8.0]), array([3, -1], "int32")], array([8.0, -0.125])),
    (Pow(), [array([3], "int64"), array([2], "uint64")], array([9], "int64")),
    (Max(), [array([1.0, NAN, 3.0]), array([2.0, 1.0, NAN])], array([2.0, NAN, NAN])),
    (Min(), [array([1.0, NAN, 3.0]), array([2.0, 1.0, NAN])], array([1.0, NAN, NAN])),
    (Max(), [array([3], "uint8"), array([200], "uint8"), array([7], "uint8")], array([200], "uint8")),
    (Sum(), [array([1.0, 2.0]), array([3.0]), array([[10.0], [20.0]])], array([[14.0, 15.0], [24.0, 25.0]])),
    (Mean(), [array([1.0, 2.0]), array([3.0, 4.0]), array([5.0, 9.0])], array([3.0, 5.0])),
    (Sign(), [array([-2.5, 0.0, 3.0, NAN])], array([-1.0, 0.0, 1.0, NAN])),
    (Abs(), [array([-128, -1], "int8")], array([-128, 1], "int8")),
    (Neg(), [array([-128, 5], "int8")], array([-128, -5], "int8")),
    (Round(), [array([0.5, 1.5, 2.5, -0.5, -1.5, -4.5, 2.3, NAN, INF])],
     array([0.0, 2.0, 2.0, -0.0, -2.0, -4.0, 2.0, NAN, INF])),
    (Erf(), [array([0.0, 0.5, -1.0, INF])], array([0.0, math.erf(0.5), -math.erf(1.0), 1.0])),
    (BitShift("LEFT"), [array([1, 2, 3, 255], "uint8"), array([1, 2, 8, 7], "uint8")], array([2, 8, 0, 128], "uint8")),
    (BitShift("RIGHT"), [array([-5, -5, 5, -5, 5], "int32"), array([1, 40, 40, -1, -1], "int32")],
     array([-3, -1, 0, -1, 0], "int32")),
    (BitShift("LEFT"), [array([3, 3, -3], "int32"), array([31, 32, -1], "int32")],
     array([-(2**31), 0, 0], "int32")),
    (BitwiseNot(), [array([0, 5], "uint8")], array([255, 250], "uint8")),
    (Or(), [array([[True], [False]], "bool"), array([False, True], "bool")],
     array([[True, True], [False, True]], "bool")),
    (Equal(), [array([NAN, 1.0, INF]), array([NAN, 1.0, INF])], array([False, True, True], "bool")),
    (Equal(), [array(["a", "b"], "string"), array(["a", "c"], "string")], array([True, False], "bool")),
    (Greater(), [array([NAN, 2.0]), array([1.0, 1.0])], array([False, True], "bool")),
    (Less(), [array([-1], "int8"), array([1], "int8")], array([True], "bool")),
    (Where(), [array([True, False], "bool"), array([1.0, NAN]), array([NAN, 2.0])], array([1.0, 2.0])),
    (IsNaN(), [array([NAN, INF, 1.0])], array([True, False, False], "bool")),
    (IsInf(), [array([INF, -INF, NAN, 1.0])], array([True, True, False, False], "bool")),
    (IsInf(detect_negative=0), [array([INF, -INF])], array([True, False], "bool")),
    (IsInf(detect_positive=0), [array([INF, -INF])], array([False, True], "bool")),
    (act.Relu(), [array([-1.0, 0.0, 2.0, NAN, INF])], array([0.0, 0.0, 2.0, NAN, INF])),
    (act.Relu(), [array([-3, 3], "int32")], array([0, 3], "int32")),
    (act.Clip(2.0, -1.0), [array([-5.0, 0.0, 5.0, NAN])], array([-1.0, -1.0, -1.0, NAN])),
    (act.Clip(max=3), [array([9, -9], "int8")], array([3, -9], "int8")),
    (act.Clip(-1.0, NAN), [array([0.0])], array([NAN])),
    (act.LeakyRelu(0.1), [array([-2.0, 3.0, NAN, -INF])], array([-0.2, 3.0, NAN, -INF])),
    (act.LeakyRelu(-2.0), [array([-2.0, 3.0])], array([4.0, 3.0])),
    (act.LeakyRelu(0.0), [array([INF, -2.0])], array([INF, 0.0])),
    (act.PRelu(), [array([[-1.0, 2.0], [-3.0, -4.0]]), array([[2.0], [0.5]])], array([[-2.0, 2.0], [-1.5, -2.0]])),
    (act.PRelu(), [array([1.0]), array([INF])], array([1.0])),
    (act.Elu(2.0), [array([-1.0, 1.0])], array([2 * (math.exp(-1) - 1), 1.0])),
    (act.Selu(2.0, 3.0), [array([-1.0, 1.0])], array([6 * (math.exp(-1) - 1), 3.0])),
    (act.Celu(2.0), [array([-1.0, 1.0])], array([2 * (math.exp(-0.5) - 1), 1.0])),
    (act.Gelu(), [array([1.0, -2.0])], array([0.5 * (1 + math.erf(math.sqrt(0.5))), -(1 - math.erf(math.sqrt(2)))])),
    (act.Gelu("tanh"), [array([1.0])], array([0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715))])),
    (act.Sigmoid(), [array([0.0, -INF, INF, 2.0, -200.0])], array([0.5, 0.0, 1.0, 1 / (1 + math.exp(-2)), 0.0])),
    (act.HardSigmoid(0.5, 0.25), [array([-9.0, 0.5, 9.0, NAN])], array([0.0, 0.5, 1.0, NAN])),
    (act.HardSwish(), [array([-4.0, 0.0, 1.5, 4.0, -INF])], array([0.0, 0.0, 1.125, 4.0, NAN])),
    (act.Swish(2.0), [array([1.0, -INF])], array([1 / (1 + math.exp(-2)), NAN])),
    (act.Mish(), [array([1.0])], array([math.tanh(math.log(1 + math.e))])),
    (act.Softplus(), [array([0.0, 1000.0, -1000.0])], array([math.log(2), 1000.0, 0.0])),
    (act.Softsign(), [array([3.0, -1.0])], array([0.75, -0.5])),
    (act.ThresholdedRelu(2.0), [array([2.0, 2.5, NAN, -1.0])], array([0.0, 2.5, NAN, 0.0])),
    (act.Shrink(1.0, 0.5), [array([-2.0, -1.0, 1.0, 3.0, NAN])], array([-1.5, 0.0, 0.0, 2.5, NAN])),
    (act.Shrink(1.5, 1.0), [array([0, 1, 2, 255], "uint8")], array([0, 0, 1, 254], "uint8")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1][0].dtype}")
def test_by_hand(case: tuple[Op, list[Array], Array], reference: Run) -> None:
    op, operands, wanted = case
    with np.errstate(all="ignore"):
        (got,) = reference(op, operands)
    assert got.dtype == wanted.dtype
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", [Exp(), act.Tanh(), Sqrt(), act.Gelu(), act.HardSwish(), act.Mish()], ids=str)
def test_narrow_floats_are_rounded_once(op: Op, dtype: str, reference: Run) -> None:
    x = np.linspace(0.1, 3, 29).astype(numpy_dtype(dtype))
    (got,) = reference(op, [x])
    (exact,) = reference(op, [x.astype(np.float64)])
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got.astype(np.float64), exact.astype(np.float32).astype(x.dtype).astype(np.float64))


@pytest.mark.parametrize("dtype", sorted(FLOATS | INTEGERS))
def test_arithmetic_keeps_every_type(dtype: str, reference: Run) -> None:
    a, b = array([6, 7], dtype), array([3, 2], dtype)
    for op, wanted in ((Add(), [9, 9]), (Sub(), [3, 5]), (Mul(), [18, 14]), (Max(), [6, 7]), (Mod(), [0, 1])):
        (got,) = reference(op, [a, b])
        assert got.dtype == a.dtype
        np.testing.assert_array_equal(got.astype(np.float64), wanted)


class TestCast:
    @pytest.mark.parametrize("to", sorted(INTEGERS))
    def test_floats_saturate_and_nan_is_zero(self, to: str, reference: Run) -> None:
        limits = np.iinfo(to)
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            (got,) = reference(Cast(to), [array([NAN, INF, -INF, 1.9, -0.9], dtype)])
            assert got.tolist() == [0, limits.max, limits.min, 1, 0]

    def test_edges_of_int32(self, reference: Run) -> None:
        x = array([2147483520, 2147483648, -2147483648, -2147483904, 3e9])
        (got,) = reference(Cast("int32"), [x])
        assert got.tolist() == [2147483520, 2147483647, -2147483648, -2147483648, 2147483647]

    def test_integers_keep_their_low_bits(self, reference: Run) -> None:
        (got,) = reference(Cast("int8"), [array([200, -129, 256, 5], "int16")])
        assert got.tolist() == [-56, 127, 0, 5]
        (got,) = reference(Cast("uint64"), [array([-1], "int8")])
        assert got.tolist() == [2**64 - 1]
        (got,) = reference(Cast("int4"), [array([7, 8, -9, 17], "int32")])
        assert got.astype(int).tolist() == [7, -8, 7, 1]

    def test_a_chain_to_bool_is_not_collapsed(self, reference: Run) -> None:
        half = array([0.5, NAN, 2.0])
        (direct,) = reference(Cast("bool"), [half])
        (whole,) = reference(Cast("int32"), [half])
        (chained,) = reference(Cast("bool"), [whole])
        assert direct.tolist() == [True, True, True]
        assert chained.tolist() == [False, False, True]

    def test_strings(self, reference: Run) -> None:
        texts = array(["3.14", "1e-5", "+INF", "inf", "-INF", "NaN", "100"], "string")
        (got,) = reference(Cast("float32"), [texts])
        np.testing.assert_array_equal(got, array([3.14, 1e-5, INF, INF, -INF, NAN, 100]))
        (got,) = reference(Cast("int64"), [array(["9007199254740993", b"-5"], "string")])
        assert got.tolist() == [9007199254740993, -5]
        (got,) = reference(Cast("int64"), [array(["100.5"], "string")])
        assert got.tolist() == [100]
        (got,) = reference(Cast("string"), [array([314.15926, NAN, 0.1])])
        assert got.tolist() == ["314.15927", "nan", "0.1"]
        (got,) = reference(Cast("string"), [array([[-5], [7]], "int8")])
        assert got.tolist() == [["-5"], ["7"]]

    def test_a_text_that_is_no_number(self, reference: Run) -> None:
        with pytest.raises((ValueError, AicoreError), match="Hello"):
            reference(Cast("float32"), [array(["Hello"], "string")])

    def test_float8(self, reference: Run) -> None:
        x = array([500.0, -INF, NAN, 1.0])
        (got,) = reference(Cast("float8_e4m3fn"), [x])
        np.testing.assert_array_equal(got.astype(np.float32), [448, -448, NAN, 1])
        (got,) = reference(Cast("float8_e4m3fn", saturate=0), [x])
        np.testing.assert_array_equal(got.astype(np.float32), [NAN, NAN, NAN, 1])
        (got,) = reference(Cast("float8_e5m2", saturate=0), [array([1e6, -INF])])
        np.testing.assert_array_equal(got.astype(np.float32), [INF, -INF])

    @pytest.mark.parametrize(
        ("mode", "wanted"), [("up", [2, 4, 4, 1]), ("down", [1, 2, 2, 1]), ("nearest", [1, 4, 2, 1])]
    )
    def test_powers_of_two(self, mode: str, wanted: list[float]) -> None:
        got = convert(array([1.4, 3.0, 2.5, 1.0]), "float8_e8m0fnu", True, mode)
        np.testing.assert_array_equal(got.astype(np.float32), wanted)

    def test_powers_of_two_at_the_ends(self) -> None:
        x = array([0.0, INF, NAN, 1e-45, -1.0], "float64")
        saturated = convert(x, "float8_e8m0fnu").view(np.uint8)
        assert saturated.tolist() == [0, 254, 255, 0, 255]
        strict = convert(x, "float8_e8m0fnu", saturate=False).view(np.uint8)
        assert strict.tolist() == [255, 255, 255, 255, 255]

    def test_narrow_sources(self, reference: Run) -> None:
        x = np.array([1.5, -2.0], ml_dtypes.float8_e5m2)
        (got,) = reference(CastLike(), [x, array([], "int8")])
        assert (got.dtype, got.tolist()) == (np.int8, [1, -2])
        (got,) = reference(Cast("float32"), [np.array([-8, 7], ml_dtypes.int4)])
        assert got.tolist() == [-8.0, 7.0]

    def test_same_type_is_a_copy(self, reference: Run) -> None:
        x = array([1.0])
        (got,) = reference(Cast("float32"), [x])
        assert not np.shares_memory(got, x)
