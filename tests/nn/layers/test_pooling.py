"""Pooling by hand and against windows in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn.layers import (
    AveragePool1D,
    AveragePool2D,
    AvgPool2D,
    GlobalAveragePool1D,
    GlobalAveragePool2D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    MaxPool1D,
    MaxPool2D,
)
from tests.nn.built import built

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 6, 7))
SQUARE = np.arange(16.0).reshape(1, 1, 4, 4)


def windows(x: Any, size: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """(batch, channels, places..., window...)."""
    axes = tuple(range(2, x.ndim))
    found = np.lib.stride_tricks.sliding_window_view(x, size, axes)
    return found[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]


def output(layer: Any, x: Any, training: bool = False) -> Any:
    return built(layer, x, training=training, dtype="float64").run()["output"]


def test_by_hand() -> None:
    np.testing.assert_array_equal(output(MaxPool2D(), SQUARE)[0, 0], [[5, 7], [13, 15]])
    np.testing.assert_array_equal(output(AveragePool2D(), SQUARE)[0, 0], [[2.5, 4.5], [10.5, 12.5]])
    # A window of 2 at stride 1, of the length 4: one element of padding, at the end.
    np.testing.assert_array_equal(output(MaxPool2D(2, 1, "same"), SQUARE)[0, 0][3], [13, 14, 15, 15])
    row = np.array([[[1.0, 2.0, 3.0, 4.0]]])
    np.testing.assert_array_equal(output(AveragePool1D(2, 1, "same"), row)[0, 0], [1.5, 2.5, 3.5, 4.0])
    np.testing.assert_array_equal(output(AveragePool1D(2, 2, 1), row)[0, 0], [1.0, 2.5, 4.0])
    counted = output(AveragePool1D(2, 2, 1, count_include_pad=True), row)
    np.testing.assert_array_equal(counted[0, 0], [0.5, 2.5, 2.0])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("size", "strides"), [((2, 2), (2, 2)), ((3, 2), (1, 3))])
def test_windows(size: tuple[int, int], strides: tuple[int, int], training: bool) -> None:
    found = windows(X, size, strides)
    np.testing.assert_allclose(output(MaxPool2D(size, strides), X, training), found.max((-1, -2)), rtol=1e-12)
    np.testing.assert_allclose(output(AveragePool2D(size, strides), X, training), found.mean((-1, -2)), rtol=1e-12)
    one = windows(X[:, :, 0], size[1:], strides[1:])
    np.testing.assert_allclose(output(MaxPool1D(size[1], strides[1]), X[:, :, 0], training), one.max(-1), rtol=1e-12)
    average = output(AveragePool1D(size[1], strides[1]), X[:, :, 0], training)
    np.testing.assert_allclose(average, one.mean(-1), rtol=1e-12)


def test_strides_are_the_window_by_default() -> None:
    assert output(MaxPool2D(3), X).shape == (2, 3, 2, 2)
    assert output(AveragePool2D((2, 3)), X).shape == (2, 3, 3, 2)


def test_padding_is_never_the_largest() -> None:
    np.testing.assert_array_equal(output(MaxPool2D(2, 2, 1), -SQUARE - 1)[0, 0, 0], [-1, -2, -4])


@pytest.mark.parametrize("training", [False, True])
def test_global(training: bool) -> None:
    np.testing.assert_allclose(output(GlobalAveragePool2D(), X, training), X.mean((2, 3)), rtol=1e-12)
    np.testing.assert_allclose(output(GlobalMaxPool2D(), X, training), X.max((2, 3)), rtol=1e-12)
    kept = output(GlobalAveragePool2D(keepdims=True), X, training)
    np.testing.assert_allclose(kept, X.mean((2, 3), keepdims=True), rtol=1e-12)
    row = X[:, :, 0]
    np.testing.assert_allclose(output(GlobalAveragePool1D(), row, training), row.mean(2), rtol=1e-12)
    np.testing.assert_allclose(output(GlobalMaxPool1D(True), row, training), row.max(2, keepdims=True), rtol=1e-12)


def test_they_have_no_parameters() -> None:
    for layer in (MaxPool2D(), AveragePool2D(), GlobalAveragePool2D()):
        assert built(layer, X, training=True).shapes == {}


def test_the_earlier_name() -> None:
    assert AvgPool2D is AveragePool2D


@pytest.mark.parametrize("kind", [MaxPool2D, AveragePool2D])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"pool_size": 0}, "pool_size is 0"),
        ({"pool_size": (2, 2, 2)}, r"pool_size is \(2, 2, 2\)"),
        ({"strides": -1}, "strides is -1"),
        ({"padding": "full"}, "padding is 'full'"),
    ],
)
def test_refused_fields(kind: Any, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kind(**fields)


@pytest.mark.parametrize(
    "make",
    [
        lambda: built(MaxPool2D(), X[0]),
        lambda: built(AveragePool2D(), X[0]),
        lambda: built(GlobalMaxPool2D(), X[0]),
        lambda: built(MaxPool1D(), X),
    ],
)
def test_refused_ranks(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match="wants rank"):
        make()
