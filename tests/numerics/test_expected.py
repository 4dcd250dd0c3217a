"""What is found wrong with results, whichever way it is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.numerics.difference import measure
from aicore.numerics.expected import Expected

Array = np.ndarray[Any, Any]
INF, NAN = np.inf, np.nan
WANT = np.array([[1.0, -2.0], [0.0, 3e38]])
ALLOWED = np.array([[1e-6, 2e-6], [1e-30, 1e32]])


def float32(*numbers: float) -> Array:
    return np.array(numbers, np.float32).reshape(2, 2)


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        (float32(1, -2, 0, 3e38), WANT, True),
        (float32(1 + 5e-7, -2 - 1.5e-6, 0, 3e38), WANT, True),
        (float32(1 + 2e-6, -2, 0, 3e38), WANT, False),
        (float32(1, -2, 1e-20, 3e38), WANT, False),
        (float32(1, -2, 0, INF), WANT, False),
        (float32(1, -2, 0, NAN), WANT, False),
        (float32(1, -2, NAN, 3e38), WANT, False),
        (float32(1, INF, NAN, -INF), np.array([[1, INF], [NAN, -INF]]), True),
        (float32(1, INF, NAN, INF), np.array([[1, INF], [NAN, -INF]]), False),
        (float32(1, 2, 0, INF), np.array([[1, INF], [0, INF]]), False),
        (float32(1, -2, 0, INF), np.array([[1, -2], [0, 4e38]]), True),  # beyond the largest: an overflow is right
    ],
)
def test_numbers_are_judged_as_by_measure(got: Array, want: Array, right: bool) -> None:
    assert measure(got, want, ALLOWED).is_right == right
    fault = Expected((want,), (ALLOWED,), wide=True).fault([got])
    assert (not fault) == right
    assert fault == measure(got, want, ALLOWED).text


def test_the_first_result_that_is_wrong_is_told() -> None:
    expected = Expected((WANT, WANT), (ALLOWED, ALLOWED), wide=True)
    right, wrong = float32(1, -2, 0, 3e38), float32(1, -3, 0, 3e38)
    assert not expected.fault([right, right])
    assert "[0, 1] is -3, should be -2" in expected.fault([right, wrong])
    assert expected.fault([right]) == "1 results instead of 2"


def test_shapes_and_types_are_part_of_a_result() -> None:
    expected = Expected((WANT,), (ALLOWED,), wide=True)
    assert expected.fault([WANT[0].astype(np.float32)]) == "the shape is [2], should be [2, 2]"
    assert expected.fault([np.zeros((2, 2), np.int64)]) == "the dtype is int64, should be float64"
    exact = Expected((np.array([1, 2]),), (np.zeros(()),), wide=False)
    assert not exact.fault([np.array([1, 2])])
    assert exact.fault([np.array([1, 3])])
    assert exact.fault([np.array([1, 2], np.int32)]) == "the dtype is int32, should be int64"
