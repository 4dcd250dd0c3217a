"""Dense and Embedding: values by hand, parameters, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn.initializers import Constant
from aicore.nn.layers import Dense, Embedding
from tests.nn.built import built

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 3))
W, B = RNG.standard_normal((4, 3)), RNG.standard_normal(4)


def test_by_hand() -> None:
    layer = built(Dense(2, "relu"), [[1.0, 2.0, 3.0]])
    weights = {"weight": np.float32([[1, 0, -1], [1, 1, 1]]), "bias": np.float32([0.5, -1])}
    np.testing.assert_array_equal(layer.run(weights)["output"], [[0.0, 5.0]])  # 1 - 3 + 0.5 < 0; 6 - 1


@pytest.mark.parametrize("training", [False, True])
def test_values(training: bool) -> None:
    layer = built(Dense(4, "tanh"), X, training=training, dtype="float64")
    assert layer.shapes == {"weight": (4, 3), "bias": (4,)}
    assert layer.count == 4 * 3 + 4
    y = layer.run({"weight": W, "bias": B})["output"]
    np.testing.assert_allclose(y, np.tanh(X @ W.T + B), rtol=1e-12)


def test_more_axes_and_no_bias() -> None:
    x = RNG.standard_normal((2, 6, 3))
    layer = built(Dense(4, use_bias=False), x, dtype="float64")
    assert layer.shapes == {"weight": (4, 3)}
    np.testing.assert_allclose(layer.run({"weight": W})["output"], x @ W.T, rtol=1e-12)
    biased = built(Dense(4), x, dtype="float64").run({"weight": W, "bias": B})["output"]
    np.testing.assert_allclose(biased, x @ W.T + B, rtol=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (2, 6, 3)])
def test_gradients(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape)
    g = np.cos(x @ W.T + B).reshape(-1, 4)  # that of sum(sin(y))
    found = built(Dense(4), x, training=True, dtype="float64").gradients({"weight": W, "bias": B})
    np.testing.assert_allclose(found["weight"], g.T @ x.reshape(-1, 3), rtol=1e-10)
    np.testing.assert_allclose(found["bias"], g.sum(0), rtol=1e-10)


def test_initialisers() -> None:
    first = built(Dense(4, initializer="ones", bias_initializer=Constant(2.0)), X).initial()
    np.testing.assert_array_equal(first["weight"], np.ones((4, 3)))
    np.testing.assert_array_equal(first["bias"], np.full(4, 2.0))


def test_embedding() -> None:
    ids = np.array([[0, 6, 2], [2, 2, 5]])
    layer = built(Embedding(7, 4), ids, dtype="float64")
    assert layer.shapes == {"weight": (7, 4)}
    table = RNG.standard_normal((7, 4))
    np.testing.assert_array_equal(layer.run({"weight": table})["output"], table[ids])
    expected = np.zeros((7, 4))
    np.add.at(expected, ids, np.cos(table[ids]))
    np.testing.assert_allclose(layer.gradients({"weight": table})["weight"], expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Dense(0), "units is 0, wants an integer of 1 or more"),
        (lambda: Dense(2.0), "units is 2.0, wants an integer"),  # type: ignore[arg-type]
        (lambda: Dense(True), "units is True, wants an integer"),
        (lambda: Dense(2, initializer="hee"), "initializer 'hee' is none of zeros"),
        (lambda: Dense(2, bias_initializer="hee"), "initializer 'hee' is none of zeros"),
        (lambda: built(Dense(2), np.zeros(3)), r"float32\[batch\], wants \(batch, ..., features\)"),
        (lambda: built(Dense(2), np.zeros((3, 2), np.int64)), "int64.*wants floating point"),
        (lambda: Embedding(0, 3), "input_dim is 0"),
        (lambda: Embedding(3, -1), "output_dim is -1"),
        (lambda: Embedding(3, 1, "hee"), "initializer 'hee'"),
        (lambda: built(Embedding(3, 2), np.zeros((2, 2))), "wants int32 or int64"),
    ],
)
def test_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
