"""The pools by the definition of a window, and by numbers worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool

Array = np.ndarray[Any, Any]
Run = Callable[..., Any]
NAN, INF = float("nan"), float("inf")


def line(*numbers: float) -> Array:
    """A tensor (1, 1, L)."""
    return np.array([[numbers]], np.float64)


def windows_by_definition(op: Any, size: int, axis: int, positions: int) -> list[list[int]]:
    """For each window, the indices of its elements along one axis, those in the padding included."""
    kernel, stride, dilation, pad = op.kernel_shape[axis], op.strides[axis], op.dilations[axis], op.pads[axis]
    return [[o * stride - pad + k * dilation for k in range(kernel)] for o in range(positions)]


FIELDS: list[dict[str, Any]] = [
    {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)},
    {"strides": (2, 3), "dilations": (1, 1), "pads": (1, 0, 2, 1), "ceil_mode": 1},
    {"strides": (1, 2), "dilations": (2, 1), "pads": (2, 1, 0, 1)},
    {"strides": (3, 3), "dilations": (1, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("counted", [0, 1])
def test_pools_are_their_definition(fields: dict[str, Any], counted: int, reference: Run) -> None:
    common = {"kernel_shape": (3, 2), **fields}
    x = np.random.default_rng(0).standard_normal((2, 2, 7, 8))
    average = AveragePool(count_include_pad=counted, **common)
    (largest,), (mean,), (norm,) = (reference(op, [x]) for op in (MaxPool(**common), average, LpPool(p=3, **common)))
    rows = windows_by_definition(average, 7, 0, mean.shape[2])
    columns = windows_by_definition(average, 8, 1, mean.shape[3])
    for n, c, i, j in np.ndindex(*mean.shape):
        places = list(itertools.product(rows[i], columns[j]))
        inside = np.array([x[n, c, a, b] for a, b in places if 0 <= a < 7 and 0 <= b < 8])
        padded = [(a, b) for a, b in places if a < 7 + average.pads[2] and b < 8 + average.pads[3]]
        assert largest[n, c, i, j] == inside.max()
        np.testing.assert_allclose(mean[n, c, i, j], inside.sum() / (len(padded) if counted else len(inside)))
        np.testing.assert_allclose(norm[n, c, i, j], (np.abs(inside) ** 3).sum() ** (1 / 3))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        # x = 6 2 4 8 2
        (AveragePool(kernel_shape=(2,)), [4, 3, 6, 5]),
        (AveragePool(kernel_shape=(2,), strides=(2,)), [4, 6]),
        (AveragePool(kernel_shape=(2,), strides=(2,), ceil_mode=1), [4, 6, 2]),
        (AveragePool(kernel_shape=(2,), dilations=(2,)), [5, 5, 3]),
        (AveragePool(kernel_shape=(2,), strides=(2,), pads=(1, 0)), [6, 3, 5]),
        (AveragePool(kernel_shape=(2,), strides=(2,), pads=(1, 0), count_include_pad=1), [3, 3, 5]),
        # the last window lies half beyond the padding, so even counting padding it has 1 element
        (AveragePool(kernel_shape=(2,), strides=(2,), ceil_mode=1, count_include_pad=1), [4, 6, 2]),
        # the last of ceil((5 + 2 - 3) / 3) + 1 = 3 windows would start at 6 - 1, in the padding: left out
        (AveragePool(kernel_shape=(3,), strides=(3,), pads=(1, 1), ceil_mode=1), [4, 14 / 3]),
        # the second window holds 8 2 and one of padding; the third position of padding lies beyond
        (AveragePool(kernel_shape=(4,), strides=(4,), pads=(1, 1), ceil_mode=1), [4, 5]),
        (AveragePool(kernel_shape=(4,), strides=(4,), pads=(1, 1), ceil_mode=1, count_include_pad=1), [3, 10 / 3]),
        # SAME: ceil(5 / 2) = 3 windows reach 6 elements, one of them padding
        (AveragePool(kernel_shape=(2,), strides=(2,), auto_pad="SAME_UPPER"), [4, 6, 2]),
        (AveragePool(kernel_shape=(2,), strides=(2,), auto_pad="SAME_LOWER"), [6, 3, 5]),
        (AveragePool(kernel_shape=(2,), strides=(2,), auto_pad="VALID"), [4, 6]),
        (AveragePool(kernel_shape=(2,), strides=(2,), auto_pad="VALID", ceil_mode=1), [4, 6]),
        (MaxPool(kernel_shape=(2,), strides=(2,), ceil_mode=1), [6, 8, 2]),
        (MaxPool(kernel_shape=(2,), dilations=(3,)), [8, 2]),
        (MaxPool(kernel_shape=(3,), pads=(1, 1)), [6, 6, 8, 8, 8]),
        (LpPool(kernel_shape=(2,), p=1), [8, 6, 12, 10]),
        (LpPool(kernel_shape=(2,), strides=(3,), p=2), [40**0.5, 68**0.5]),
    ],
)
def test_by_hand(op: Any, expected: list[float], reference: Run) -> None:
    np.testing.assert_allclose(reference(op, [line(6, 2, 4, 8, 2)])[0], line(*expected), rtol=1e-12)


def test_max_pool_of_negative_integers_ignores_padding(reference: Run) -> None:
    x = np.full((1, 1, 3), -128, np.int8)
    x[0, 0, 1] = -5
    (y,) = reference(MaxPool(kernel_shape=(2,), pads=(1, 1)), [x])
    assert y.dtype == np.int8
    np.testing.assert_array_equal(y, [[[-128, -5, -5, -128]]])


def test_max_pool_propagates_nan_and_negative_infinity(reference: Run) -> None:
    (y,) = reference(MaxPool(kernel_shape=(2,)), [line(1, NAN, 2, -INF, -INF)])
    np.testing.assert_array_equal(y, line(NAN, NAN, 2, -INF))


def test_average_pool_propagates_nan_to_its_windows_alone(reference: Run) -> None:
    (y,) = reference(AveragePool(kernel_shape=(2,), pads=(1, 0)), [line(NAN, 1, 3)])
    np.testing.assert_array_equal(y, line(NAN, NAN, 2))


def test_indices_count_the_whole_input(reference: Run) -> None:
    x = np.zeros((2, 2, 2, 3))
    x[0, 0, 1, 2], x[0, 1, 0, 1], x[1, 0, 1, 0], x[1, 1, 1, 1] = 9, 8, 7, 6
    op = MaxPool(kernel_shape=(2, 3), indices=True)
    # row by row: 6 elements a channel, then 3 * row + column; column by column: row + 2 * column
    _, rows = reference(op, [x])
    np.testing.assert_array_equal(rows.ravel(), [0 + 5, 6 + 1, 12 + 3, 18 + 4])
    _, columns = reference(MaxPool(kernel_shape=(2, 3), indices=True, storage_order=1), [x])
    np.testing.assert_array_equal(columns.ravel(), [0 + 5, 6 + 2, 12 + 1, 18 + 3])


def test_indices_name_the_first_of_equals_and_never_padding(reference: Run) -> None:
    op = MaxPool(kernel_shape=(2,), pads=(1, 1), indices=True)
    for x in (line(4, 4, 4), line(-INF, -INF, -INF), line(NAN, NAN, NAN)):
        _, indices = reference(op, [x])
        assert indices.dtype == np.int64
        np.testing.assert_array_equal(indices, [[[0, 0, 1, 2]]])
    _, indices = reference(op, [np.full((1, 1, 3), -128, np.int8)])
    np.testing.assert_array_equal(indices, [[[0, 0, 1, 2]]])
    _, indices = reference(op, [line(7, NAN, 9)])
    np.testing.assert_array_equal(indices, [[[0, 1, 1, 2]]])


def test_global_pools(reference: Run) -> None:
    x = np.array([[[[3.0, -4.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, NAN]]]])
    np.testing.assert_array_equal(reference(GlobalAveragePool(), [x])[0], [[[[-0.25]], [[NAN]]]])
    np.testing.assert_array_equal(reference(GlobalMaxPool(), [x])[0], [[[[3]], [[NAN]]]])
    np.testing.assert_array_equal(reference(GlobalLpPool(), [x])[0], [[[[5]], [[NAN]]]])
    np.testing.assert_array_equal(reference(GlobalLpPool(p=1), [x])[0], [[[[7]], [[NAN]]]])


def test_global_pools_of_nothing(reference: Run) -> None:
    x = np.zeros((1, 2, 0, 3))
    np.testing.assert_array_equal(reference(GlobalAveragePool(), [x])[0], np.full((1, 2, 1, 1), NAN))
    np.testing.assert_array_equal(reference(GlobalMaxPool(), [x])[0], np.full((1, 2, 1, 1), -INF))


def test_narrow_floats_are_rounded_once(reference: Run) -> None:
    ones = np.ones((1, 1, 4096), np.float16)
    (y,) = reference(AveragePool(kernel_shape=(4096,)), [ones])
    assert (y.dtype, y.item()) == (np.float16, 1)
    (y,) = reference(GlobalAveragePool(), [ones])
    assert (y.dtype, y.item()) == (np.float16, 1)
