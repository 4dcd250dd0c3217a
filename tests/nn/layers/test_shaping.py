"""Layers that move elements, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn.layers import Flatten, Permute, Reshape, UpSample2D, ZeroPad2D
from tests.nn.built import built

X = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Flatten(), X.reshape(2, 60)),
        (Reshape((12, 5)), X.reshape(2, 12, 5)),
        (Reshape((-1, 10)), X.reshape(2, 6, 10)),
        (Reshape((60,)), X.reshape(2, 60)),
        (Permute((2, 3, 1)), X.transpose(0, 2, 3, 1)),
        (ZeroPad2D(), np.pad(X, [(0, 0), (0, 0), (1, 1), (1, 1)])),
        (ZeroPad2D((1, 2)), np.pad(X, [(0, 0), (0, 0), (1, 1), (2, 2)])),
        (ZeroPad2D(((0, 1), (2, 3))), np.pad(X, [(0, 0), (0, 0), (0, 1), (2, 3)])),
        (UpSample2D(), X.repeat(2, 2).repeat(2, 3)),
        (UpSample2D((3, 1)), X.repeat(3, 2)),
    ],
)
def test_values(layer: Any, expected: Any, training: bool) -> None:
    found = built(layer, X, training=training)
    np.testing.assert_array_equal(found.run()["output"], expected)
    assert found.shapes == {}


def test_up_sampling_has_a_gradient() -> None:
    from aicore.nn import Sequential
    from aicore.nn.layers import PReLU

    # d/dw of sum(sin(up(w x))) for x < 0: each pixel counts size * size times.
    x = -X - 1
    found = built(Sequential(PReLU(shared=True), UpSample2D((2, 3))), x, dtype="float64")
    gradient = found.gradients({"p_relu.weight": np.array([0.3])})["p_relu.weight"]
    np.testing.assert_allclose(gradient, [6 * (np.cos(0.3 * x) * x).sum()], rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Reshape((0, 3)), r"target_shape is \(0, 3\), wants a tuple of positive integers, or -1"),
        (lambda: Reshape([3]), r"target_shape is \[3\]"),  # type: ignore[arg-type]
        (lambda: Reshape((-1, -1)), "more than one -1"),
        (lambda: built(Reshape((7, 9)), X), r"60 elements of a sample do not fit target_shape \(7, 9\)"),
        (lambda: built(Reshape((7, -1)), X), "60 elements of a sample do not fit"),
        (lambda: built(Reshape((1,)), np.float32(3)), "wants \\(batch, ...\\)"),
        (lambda: Permute((0, 1)), r"dims is \(0, 1\), wants each of 1, 2, ... once"),
        (lambda: Permute((1, 1)), "wants each of 1, 2, ... once"),
        (lambda: built(Permute((2, 1)), X), r"dims \(2, 1\) are of 2 axes"),
        (lambda: ZeroPad2D(-1), "padding is -1"),
        (lambda: ZeroPad2D((1, 2, 3)), r"padding is \(1, 2, 3\), wants a number, a pair"),  # type: ignore[arg-type]
        (lambda: ZeroPad2D("same"), "padding is 'same', wants a number"),  # type: ignore[arg-type]
        (lambda: built(ZeroPad2D(), X[0]), "wants rank 4"),
        (lambda: UpSample2D(0), "size is 0"),
        (lambda: built(UpSample2D(), X[0]), "wants rank 4"),
    ],
)
def test_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
