"""Activation layers against their formulas in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn.layers import (
    ACTIVATIONS,
    CELU,
    ELU,
    GELU,
    Activation,
    Dense,
    LeakyReLU,
    LogSoftmax,
    PReLU,
    ReLU,
    SiLU,
    Softmax,
)
from tests.nn.built import built

X = np.array([[-7.5, -3.0, -1.25, -0.5], [0.0, 0.3, 2.0, 6.5], [1.0, -0.1, 3.1, -4.0]])
ALPHA, GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # those of ONNX Selu


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def softmax(x: Any, axis: int = -1) -> Any:
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


FORMULAS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x < 0, 0.01 * x, x),
    "elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "selu": lambda x: GAMMA * np.where(x < 0, ALPHA * np.expm1(x), x),
    "celu": lambda x: np.where(x < 0, np.expm1(x), x),
    "gelu": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "sigmoid": sigmoid,
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "tanh": np.tanh,
    "softmax": softmax,
    "log_softmax": lambda x: np.log(softmax(x)),
}


def test_every_name_has_a_formula() -> None:
    assert set(FORMULAS) == set(ACTIVATIONS)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", FORMULAS)
def test_by_name(name: str, training: bool) -> None:
    y = built(Activation(name), X, training=training, dtype="float64").run()["output"]
    np.testing.assert_allclose(y, FORMULAS[name](X), rtol=1e-7, atol=1e-12)  # HardSigmoid's alpha is a float32


@pytest.mark.parametrize("name", FORMULAS)
def test_inside_a_layer(name: str) -> None:
    weights = {"weight": np.eye(4), "bias": np.zeros(4)}
    y = built(Dense(4, name), X, dtype="float64").run(weights)["output"]
    np.testing.assert_allclose(y, FORMULAS[name](X), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Activation("leaky_relu", 0.25), np.where(X < 0, 0.25 * X, X)),
        (LeakyReLU(0.25), np.where(X < 0, 0.25 * X, X)),
        (ELU(0.5), np.where(X < 0, 0.5 * np.expm1(X), X)),
        (CELU(2.0), np.where(X < 0, 2 * np.expm1(X / 2), X)),
        (SiLU(0.5), X * sigmoid(X / 2)),
        (GELU("tanh"), FORMULAS["gelu_tanh"](X)),
        (Softmax(0), softmax(X, 0)),
        (LogSoftmax(0), np.log(softmax(X, 0))),
    ],
)
def test_with_settings(layer: Any, expected: Any) -> None:
    np.testing.assert_allclose(built(layer, X, dtype="float64").run()["output"], expected, rtol=1e-12, atol=1e-14)


def test_prelu_has_a_slope_for_each_channel() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    layer = built(PReLU(), x, dtype="float64")
    assert layer.shapes == {"weight": (3,)}
    slope = np.array([0.5, -1.0, 2.0])
    expected = np.where(x < 0, slope[:, None, None] * x, x)
    np.testing.assert_allclose(layer.run({"weight": slope})["output"], expected, rtol=1e-12)
    np.testing.assert_allclose(layer.initial()["weight"], 0.25)
    gradient = layer.gradients({"weight": slope})["weight"]
    by_hand = np.where(x < 0, np.cos(expected) * x, 0).sum((0, 2, 3))
    np.testing.assert_allclose(gradient, by_hand, rtol=1e-10)


def test_prelu_shared() -> None:
    layer = built(PReLU(shared=True), X, dtype="float64")
    assert layer.shapes == {"weight": (1,)}
    np.testing.assert_allclose(layer.run({"weight": np.array([3.0])})["output"], np.where(X < 0, 3 * X, X))


def test_as_the_activation_of_a_layer_it_has_its_own_parameters() -> None:
    found = built(Dense(4, PReLU(name="slope")), X)
    assert list(found.shapes) == ["weight", "bias", "slope.weight"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Activation("relo"), "activation 'relo' is none of linear, relu"),
        (lambda: Activation("relu", 0.1), "activation 'relu' takes no alpha"),
        (lambda: Dense(3, "softmaxx"), "'softmaxx' is none of"),
        (lambda: Dense(3, 3.0), "3.0 is none of"),  # type: ignore[arg-type]
        (lambda: GELU("erf"), "approximate is 'erf', wants one of 'none', 'tanh'"),  # type: ignore[arg-type]
        (lambda: CELU(0.0), "alpha is 0"),
        (lambda: PReLU("hee"), "initializer 'hee' is none of"),
        (lambda: built(PReLU(), np.zeros(3)), "wants \\(batch, channels, ...\\)"),
        (lambda: built(PReLU(), np.zeros((3, 2), np.int64)), "wants floating point"),
    ],
)
def test_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()


def test_they_compare_and_print() -> None:
    assert ReLU() == ACTIVATIONS["relu"]
    assert ReLU() != ReLU(name="first")
    assert repr(Activation("elu", 0.5)) == "Activation(function='elu', alpha=0.5, name='')"
    assert len({LeakyReLU(), LeakyReLU(0.01), LeakyReLU(0.2)}) == 2
