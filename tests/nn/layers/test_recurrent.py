"""Recurrent layers against loops over steps in float64, with gates in ONNX's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn.layers import GRU, LSTM, RNN, SimpleRNN
from tests.nn.built import Built, built

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
N, T, I, H = 3, 5, 2, 4  # noqa: E741 - features, as in the ONNX text
X = RNG.standard_normal((N, T, I))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def rnn_step(gates: Array, recurrent: Array, states: list[Array], activation: Any = np.tanh) -> list[Array]:
    return [activation(gates + recurrent)]


def lstm_step(gates: Array, recurrent: Array, states: list[Array]) -> list[Array]:
    i, o, f, c = np.split(gates + recurrent, 4, axis=1)
    cell = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(c)
    return [sigmoid(o) * np.tanh(cell), cell]


def gru_step(gates: Array, recurrent: Array, states: list[Array]) -> list[Array]:
    (z, r, h), (rz, rr, rh) = np.split(gates, 3, axis=1), np.split(recurrent, 3, axis=1)
    z = sigmoid(z + rz)
    hidden = np.tanh(h + sigmoid(r + rr) * rh)
    return [(1 - z) * hidden + z * states[0]]


def unrolled(step: Any, weights: dict[str, Array], x: Array, states: list[Array], reverse: bool, d: int) -> Any:
    """(all hidden states (N, T, H), last states) of one direction."""
    w, r, b = weights["weight"][d], weights["recurrent_weight"][d], weights["bias"][d]
    half = len(b) // 2
    seen = np.zeros((len(x), x.shape[1], H))
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        states = step(x[:, t] @ w.T + b[:half], states[0] @ r.T + b[half:], states)
        seen[:, t] = states[0]
    return seen, states


def expected(step: Any, layer: Built, weights: dict[str, Array], first: Array | None = None) -> tuple[Any, ...]:
    """(all states, last states), those of two directions side by side."""
    directions = layer.shapes["weight"][0]
    counts = 2 if step is lstm_step else 1
    found = []
    for d in range(directions):
        states = [np.zeros((N, H)) if first is None else first[k, :, d * H : d * H + H] for k in range(counts)]
        found.append(unrolled(step, weights, X, states, d == 1, d))
    sequences = np.concatenate([seen for seen, _ in found], axis=2)
    return sequences, [np.concatenate([states[k] for _, states in found], axis=1) for k in range(counts)]


KINDS = [(RNN, rnn_step, 1), (LSTM, lstm_step, 4), (GRU, gru_step, 3)]


def random_weights(layer: Built) -> dict[str, Array]:
    return {name: RNG.standard_normal(shape) * 0.7 for name, shape in layer.shapes.items()}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("kind", "step", "gates"), KINDS)
def test_values(kind: Any, step: Any, gates: int, bidirectional: bool, training: bool) -> None:
    fields = {"bidirectional": bidirectional, "return_state": True}
    layer = built(kind(H, **fields), X, training=training, dtype="float64")
    d = 1 + bidirectional
    assert layer.shapes == {
        "weight": (d, gates * H, I),
        "recurrent_weight": (d, gates * H, H),
        "bias": (d, 2 * gates * H),
    }
    assert layer.count == d * gates * H * (I + H + 2)
    weights = random_weights(layer)
    sequences, states = expected(step, layer, weights)
    found = layer.run(weights)
    np.testing.assert_allclose(found["output0"], states[0], rtol=1e-8, atol=1e-12)
    for k, state in enumerate(states, 1):
        np.testing.assert_allclose(found[f"output{k}"], state, rtol=1e-8, atol=1e-12)
    whole = built(kind(H, return_sequences=True, bidirectional=bidirectional), X, training=training, dtype="float64")
    np.testing.assert_allclose(whole.run(weights)["output"], sequences, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("kind", "step", "gates"), KINDS)
def test_initial_states(kind: Any, step: Any, gates: int, bidirectional: bool) -> None:
    first = RNG.standard_normal((2 if kind is LSTM else 1, N, H * (1 + bidirectional)))
    layer = built(kind(H, bidirectional=bidirectional), X, *first, dtype="float64")
    weights = random_weights(layer)
    _, states = expected(step, layer, weights, first)
    np.testing.assert_allclose(layer.run(weights)["output"], states[0], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "function"), [("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0)), ("sigmoid", sigmoid)]
)
def test_activations_of_the_simple_layer(name: str, function: Any) -> None:
    layer = built(RNN(H, activation=name), X, dtype="float64")
    weights = random_weights(layer)
    _, states = expected(lambda g, r, s: rnn_step(g, r, s, function), layer, weights)
    np.testing.assert_allclose(layer.run(weights)["output"], states[0], rtol=1e-8, atol=1e-12)


def test_reset_gate_before_the_product() -> None:
    layer = built(GRU(H, reset_after=False, use_bias=False), X, dtype="float64")
    assert list(layer.shapes) == ["weight", "recurrent_weight"]
    weights = random_weights(layer)
    w, r = weights["weight"][0], weights["recurrent_weight"][0]
    state = np.zeros((N, H))
    for t in range(T):
        z, reset, h = np.split(X[:, t] @ w.T, 3, axis=1)
        rz, rr, rh = np.split(r, 3)
        z, reset = sigmoid(z + state @ rz.T), sigmoid(reset + state @ rr.T)
        state = (1 - z) * np.tanh(h + (reset * state) @ rh.T) + z * state
    np.testing.assert_allclose(layer.run(weights)["output"], state, rtol=1e-8, atol=1e-12)


def test_first_values() -> None:
    first = built(LSTM(H, bidirectional=True), X).initial()
    bias = first["bias"].reshape(2, 2, 4, H)
    assert (bias[:, 0, 2] == 1).all()  # the forget gate's bias of the input
    assert bias.sum() == 2 * H
    for gate in first["recurrent_weight"].astype(np.float64).reshape(8, H, H):
        np.testing.assert_allclose(gate @ gate.T, np.eye(H), atol=1e-6)
    limit = np.sqrt(6 / (I + H))  # glorot_uniform of one gate's [H, I]
    assert np.abs(first["weight"]).max() <= limit
    assert (built(LSTM(H, forget_bias=0.0), X).initial()["bias"] == 0).all()
    assert (built(GRU(H), X).initial()["bias"] == 0).all()


def test_keras_name() -> None:
    assert SimpleRNN is RNN


@pytest.mark.parametrize("kind", [RNN, LSTM, GRU])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"units": 0}, "units is 0"),
        ({"units": 3, "initializer": "hee"}, "'hee' is none of"),
        ({"units": 3, "recurrent_initializer": "hee"}, "'hee' is none of"),
    ],
)
def test_refused_fields(kind: Any, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kind(**fields)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RNN(3, activation="elu"), "activation is 'elu', wants one of 'tanh', 'relu', 'sigmoid'"),
        (lambda: built(LSTM(3), X[0]), "wants rank 3: batch, steps, features"),
        (lambda: built(LSTM(3), X.astype(np.int64)), "wants floating point"),
        (lambda: built(LSTM(3), X, np.zeros((N, 3))), "1 initial states, wants 2 or none"),
        (lambda: built(GRU(3), X, np.zeros((N, 6))), r"an initial state is .*, wants \(batch, 3\)"),
        (lambda: built(GRU(3), X, np.zeros((1, N, 3))), "wants rank 2: batch, units"),
    ],
)
def test_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
