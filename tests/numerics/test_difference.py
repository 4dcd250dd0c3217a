"""How far apart arrays are; the numbers are worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aicore.numerics.difference import Difference, measure, precision

NAN, INF = np.nan, np.inf


def floats(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def wide(*numbers: float) -> Any:
    return np.array(numbers, np.float64)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_precision(name: str) -> None:
    info: Any = ml_dtypes.finfo(name)
    kind = precision(name)
    assert kind.roundoff == float(info.eps) / 2
    assert kind.smallest == float(info.smallest_normal)
    assert kind.largest == float(info.max)


def test_spacing() -> None:
    found = precision("float32").spacing(wide(1, 1.5, 2, 0, 1e-45))
    assert found.tolist() == [2**-23, 2**-23, 2**-22, 2**-149, 2**-149]


def test_errors() -> None:
    got = measure(floats(1, 2 + 2**-20, -4, 0), wide(1, 2, -4, 0), 2**-20)
    assert got.is_right
    assert (got.max_absolute, got.max_relative, got.mean_relative) == (2**-20, 2**-21, 2**-23)
    assert got.max_ulps == 4  # of 2^-22
    assert got.share == 1


def test_beyond_what_is_allowed() -> None:
    got = measure(floats(1, 3, 5), wide(1, 2, 4), wide(0, 0.5, 1))
    assert (got.wrong, got.elements, got.share) == (1, 3, 2)
    assert got.text == "1 of 3 elements are wrong; [1] is 3, should be 2, at most 0.5 apart"


def test_nothing_is_allowed_by_default() -> None:
    got = measure(floats(1 + 2**-23), wide(1))
    assert got.share == math.inf
    assert got.text == "1 of 1 elements are wrong; [0] is 1.00000012, should be 1"


@pytest.mark.parametrize(
    ("got", "want", "wrong"),
    [
        (NAN, NAN, 0),
        (NAN, 1, 1),
        (1, NAN, 1),
        (INF, INF, 0),
        (-INF, INF, 1),
        (1e30, INF, 1),
        (0.0, -0.0, 0),
    ],
)
def test_what_is_not_finite_must_be_in_the_same_places(got: float, want: float, wrong: int) -> None:
    assert measure(floats(got), wide(want), 1e9).wrong == wrong


@pytest.mark.parametrize(
    ("got", "want", "wrong"),
    [
        (INF, 1e39, 0),  # both overflow float32
        (INF, -1e39, 1),
        (INF, 3.4028236e38, 0),  # rounds to infinity or to the largest number: one unit apart
        (INF, 3e38, 1),
        (3.4028235e38, 1e39, 1),
    ],
)
def test_overflow(got: float, want: float, wrong: int) -> None:
    assert measure(floats(got), wide(want), 2e31).wrong == wrong


def test_integers_and_bools_must_be_equal() -> None:
    got = measure(np.array([1, 2, 9]), np.array([1, 2, 3]), 100)
    assert (got.wrong, got.max_absolute, got.max_relative, got.max_ulps) == (1, 6, 2, 0)
    assert got.text == "1 of 3 elements are wrong; [2] is 9, should be 3"
    assert measure(np.array([True]), np.array([True])).is_right


def test_large_integers_are_not_rounded() -> None:
    assert measure(np.array([2**62 + 1]), np.array([2**62])).wrong == 1


def test_texts_and_narrow_types() -> None:
    assert measure(np.array(["a", "b"], object), np.array(["a", "c"], object)).wrong == 1
    narrow = np.array([1, 2], ml_dtypes.float8_e4m3fn)
    assert measure(narrow, narrow).is_right
    assert measure(narrow, narrow[::-1]).wrong == 2
    odd = np.array([NAN], ml_dtypes.float8_e4m3fn)
    assert measure(odd, odd).is_right


def test_other_shapes_and_dtypes() -> None:
    assert measure(floats(1), wide(1, 2)).text == "the shape is [1], should be [2]"
    assert measure(np.array([1]), np.array([True])).text == "the dtype is int64, should be bool"


def test_no_elements() -> None:
    assert measure(floats(), wide()).is_right
    assert measure(np.zeros((2, 0), int), np.zeros((2, 0), int)).is_right


def test_together() -> None:
    one = Difference(0.1, 0.1, 1, 2, 0, 1, 0.5)
    two = Difference(0.2, 0.4, 0.5, 1, 3, 2, 4, "three are wrong")
    both = one.worse(two)
    assert (both.max_relative, both.max_absolute, both.max_ulps, both.wrong, both.elements) == (0.2, 1, 2, 3, 3)
    assert both.mean_relative == pytest.approx(0.3)
    assert both.text == "three are wrong"
    assert not both.is_right
