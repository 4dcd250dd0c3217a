"""The arithmetic of codes: each line of the numeric contract with its right value."""

from __future__ import annotations

import numpy as np
import pytest

from aicore_int8_quant.affine import Format, QParams, qparams_of
from aicore_int8_quant.errors import QuantizationError


def params(scale: float, zero_point: int = 0, dtype: str = "int8") -> QParams:
    return QParams(np.asarray(np.float32(scale)), np.asarray(np.array(zero_point, dtype)))


def test_halves_round_to_even_before_the_zero_point_is_added() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    assert params(1).quantize(x).tolist() == [-2, -2, 0, 0, 2, 2]
    assert params(1, 1).quantize(x).tolist() == [-1, -1, 1, 1, 3, 3]  # rounding the sum would give -2, 0, 0, 2, 2, 4


def test_codes_saturate_while_they_are_floats() -> None:
    x = np.array([3e9, -3e9, np.inf, -np.inf], np.float32)
    assert params(1).quantize(x).tolist() == [127, -128, 127, -128]
    assert params(1, 128, "uint8").quantize(x).tolist() == [255, 0, 255, 0]


def test_numbers_are_divided_not_multiplied_by_a_reciprocal() -> None:
    scale, x = np.float32(1 / 11), np.float32(0.3181818)
    assert np.rint(x / scale) == 3  # 3.4999998
    assert np.rint(x * (np.float32(1) / scale)) == 4  # 3.5
    assert params(float(scale)).quantize(np.array([x]))[0] == 3


def test_nan_has_no_code() -> None:
    with pytest.raises(QuantizationError, match="NaN"):
        params(1).quantize(np.array([np.nan], np.float32))


def test_one_scale_for_each_channel() -> None:
    per_channel = QParams(np.float32([1, 10]), np.int8([0, 5]), axis=1)
    x = np.float32([[[20], [20]]])
    assert per_channel.quantize(x).tolist() == [[[20], [7]]]
    assert per_channel.round_trip(x).tolist() == [[[20], [20]]]


def test_weights_leave_out_the_lowest_code() -> None:
    weight = qparams_of(np.array(-2.0), np.array(1.0), Format("int8", symmetric=True))
    assert weight.scale == np.float32(2 / 127)
    assert weight.quantize(np.float32([-2, 2])).tolist() == [-127, 127]


def test_ranges_that_have_no_scale_are_refused() -> None:
    for low, high in ((np.nan, 1.0), (0.0, np.inf)):
        with pytest.raises(QuantizationError, match="no scale"):
            qparams_of(np.array(low), np.array(high), Format())
    with pytest.raises(QuantizationError, match="int16"):
        Format("int16")


def test_every_code_stands_for_a_finite_number() -> None:
    most = float(np.finfo(np.float32).max)
    for low, high in ((-most, most), (0.0, most), (-most, 0.0), (-1.0, most)):
        found = qparams_of(np.array(low), np.array(high), Format())
        assert np.isfinite(found.dequantize(np.int8([-128, 127]))).all()
