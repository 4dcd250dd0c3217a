"""Attention and the encoder layer against NumPy in float64; what dropout does on average."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn.layers import MultiHeadAttention, TransformerEncoderLayer
from tests.nn.built import Built, built

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
N, L, E = 2, 5, 6
X = RNG.standard_normal((N, L, E))
MEMORY, OTHER = RNG.standard_normal((N, 7, E)), RNG.standard_normal((N, 7, E))


def softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def attention(
    p: dict[str, Array], inputs: tuple[Array, Array, Array], heads: int, causal: bool = False, mask: Any = None
) -> Array:
    """The formula, head by head."""
    biases = p.get("in_proj_bias", np.zeros(3 * E))
    q, k, v = (
        x @ w.T + b for x, w, b in zip(inputs, np.split(p["in_proj_weight"], 3), np.split(biases, 3), strict=True)
    )
    size, found = E // heads, []
    for h in range(heads):
        part = slice(h * size, h * size + size)
        scores = q[:, :, part] @ k[:, :, part].transpose(0, 2, 1) / math.sqrt(size)
        if causal:
            scores = np.where(np.tri(*scores.shape[1:]), scores, -np.inf)
        if mask is not None:
            scores = np.where(mask[:, None], scores, -np.inf)
        found.append(softmax(scores) @ v[:, :, part])
    return np.concatenate(found, axis=2) @ p["out_proj.weight"].T + p.get("out_proj.bias", np.zeros(E))


def random_weights(layer: Built) -> dict[str, Array]:
    return {name: RNG.standard_normal(shape) * 0.5 for name, shape in layer.shapes.items()}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_self_attention(heads: int, causal: bool, training: bool) -> None:
    layer = built(MultiHeadAttention(heads, causal=causal), X, training=training, dtype="float64")
    assert layer.shapes == {
        "in_proj_weight": (3 * E, E),
        "in_proj_bias": (3 * E,),
        "out_proj.weight": (E, E),
        "out_proj.bias": (E,),
    }
    assert layer.count == 4 * E * (E + 1)
    weights = random_weights(layer)
    expected = attention(weights, (X, X, X), heads, causal)
    np.testing.assert_allclose(layer.run(weights)["output"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("inputs", [(X, MEMORY), (X, MEMORY, OTHER)])
def test_cross_attention(inputs: tuple[Array, ...]) -> None:
    layer = built(MultiHeadAttention(2), *inputs, dtype="float64")
    weights = random_weights(layer)
    expected = attention(weights, (inputs[0], inputs[1], inputs[-1]), 2)
    np.testing.assert_allclose(layer.run(weights)["output"], expected, rtol=1e-9, atol=1e-12)


def test_causal_cross_attention_sees_the_first_keys() -> None:
    layer = built(MultiHeadAttention(2, causal=True), X, MEMORY, dtype="float64")
    weights = random_weights(layer)
    expected = attention(weights, (X, MEMORY, MEMORY), 2, causal=True)
    np.testing.assert_allclose(layer.run(weights)["output"], expected, rtol=1e-9, atol=1e-12)


MASK = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]])  # each position sees at least the first


@pytest.mark.parametrize("dropout", [0.0, 1e-9])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
def test_masked_keys(dtype: str, causal: bool, dropout: float) -> None:
    config = MultiHeadAttention(2, causal=causal, masked=True, dropout=dropout)
    layer = built(config, X, MASK.astype(dtype), training=True, dtype="float64")
    weights = random_weights(layer)
    expected = attention(weights, (X, X, X), 2, causal, MASK)
    np.testing.assert_allclose(layer.run(weights)["output"], expected, rtol=1e-7, atol=1e-9)
    found = layer.gradients(weights)
    assert all(np.isfinite(gradient).all() and gradient.any() for gradient in found.values())


def test_masked_memory() -> None:
    mask = np.array([[1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 1]])
    layer = built(MultiHeadAttention(2, masked=True), X, MEMORY, mask, dtype="float64")
    weights = random_weights(layer)
    expected = attention(weights, (X, MEMORY, MEMORY), 2, mask=mask)
    np.testing.assert_allclose(layer.run(weights)["output"], expected, rtol=1e-9, atol=1e-12)


def test_masked_positions_change_nothing_in_the_encoder_layer() -> None:
    layer = built(TransformerEncoderLayer(2, 9), X, MASK, dtype="float64")
    weights = random_weights(layer)
    y = layer.run(weights)["output"]
    other = np.where(MASK[:, :, None], X, RNG.standard_normal(X.shape))
    changed = built(TransformerEncoderLayer(2, 9), other, MASK, dtype="float64").run(weights)["output"]
    np.testing.assert_allclose(changed[MASK > 0], y[MASK > 0], rtol=1e-10)
    assert (np.abs(changed - y)[MASK == 0] > 1e-3).any()


def test_without_bias() -> None:
    layer = built(MultiHeadAttention(2, use_bias=False), X, dtype="float64")
    assert list(layer.shapes) == ["in_proj_weight", "out_proj.weight"]
    weights = random_weights(layer)
    expected = attention(weights, (X, X, X), 2)
    np.testing.assert_allclose(layer.run(weights)["output"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_of_attention_keeps_the_mean(causal: bool) -> None:
    # All that follows it is linear, so the mean over many samples is the result without dropout.
    count = 4000
    many = np.repeat(X[:1], count, axis=0)
    fields = {"heads": 2, "causal": causal, "dropout": 0.4}
    layer = built(MultiHeadAttention(**fields), many, training=True, dtype="float64")
    weights = random_weights(layer)
    y = layer.run(weights)["output"]
    expected = attention(weights, (X[:1],) * 3, 2, causal)[0]
    assert (np.abs(y.mean(0) - expected) <= 5 * y.std(0) / math.sqrt(count)).all()
    assert (y.std(0) > 0).all()
    silent = built(MultiHeadAttention(**fields), X, dtype="float64").run(weights)["output"]
    np.testing.assert_allclose(silent, attention(weights, (X, X, X), 2, causal), rtol=1e-9, atol=1e-12)


def normalized(x: Array, p: dict[str, Array], name: str, rms: bool) -> Array:
    if rms:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * p[f"{name}.weight"]
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def encoder(p: dict[str, Array], x: Array, norm_first: bool, rms: bool, causal: bool) -> Array:
    def attended(x: Array) -> Array:
        own = {name.removeprefix("self_attn."): value for name, value in p.items() if name.startswith("self_attn.")}
        return attention(own, (x, x, x), 2, causal)

    def network(x: Array) -> Array:
        hidden = np.maximum(x @ p["linear1.weight"].T + p["linear1.bias"], 0)
        return hidden @ p["linear2.weight"].T + p["linear2.bias"]

    if norm_first:
        x = x + attended(normalized(x, p, "norm1", rms))
        return x + network(normalized(x, p, "norm2", rms))
    x = normalized(x + attended(x), p, "norm1", rms)
    return normalized(x + network(x), p, "norm2", rms)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("normalization", ["layer", "rms"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer(norm_first: bool, normalization: Any, causal: bool) -> None:
    config = TransformerEncoderLayer(2, 9, norm_first=norm_first, normalization=normalization, causal=causal)
    layer = built(config, X, dtype="float64")
    norms = 2 * E * (2 if normalization == "layer" else 1)
    assert layer.count == 4 * E * (E + 1) + (E + 1) * 9 + (9 + 1) * E + norms
    weights = random_weights(layer)
    expected = encoder(weights, X, norm_first, normalization == "rms", causal)
    np.testing.assert_allclose(layer.run(weights)["output"], expected, rtol=1e-7, atol=1e-9)


def test_encoder_layer_in_training() -> None:
    fields = {"heads": 2, "hidden": 9}
    quiet = built(TransformerEncoderLayer(**fields, dropout=0.0), X, training=True, dtype="float64")
    weights = random_weights(quiet)
    expected = encoder(weights, X, False, False, False)
    np.testing.assert_allclose(quiet.run(weights)["output"], expected, rtol=1e-7, atol=1e-9)
    loud = built(TransformerEncoderLayer(**fields, dropout=0.5), X, training=True, dtype="float64")
    first, again, other = (loud.run(weights, key)["output"] for key in ((1, 2), (1, 2), (1, 3)))
    np.testing.assert_array_equal(first, again)
    assert (np.abs(first - other) > 1e-6).any()
    assert loud.traced.scope.stream() == 4  # in the attention, after it, in the hidden layer, after it


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MultiHeadAttention(0), "heads is 0"),
        (lambda: MultiHeadAttention(2, dropout=1.0), "dropout is 1.0"),
        (lambda: MultiHeadAttention(2, initializer="hee"), "'hee' is none of"),
        (lambda: built(MultiHeadAttention(4), X), "6 features do not divide into 4 heads"),
        (lambda: built(MultiHeadAttention(2), X[0]), "wants rank 3: batch, positions, features"),
        (lambda: built(MultiHeadAttention(2), X, MEMORY[:, :, :4]), r"have \[6, 4\] features, wants equal ones"),
        (lambda: built(MultiHeadAttention(2), X, X, X, X), "4 inputs of features, wants 1"),
        (lambda: built(MultiHeadAttention(2, masked=True)), "no inputs"),
        (lambda: built(MultiHeadAttention(2, masked=True), X), "0 inputs of features, wants 1"),
        (lambda: built(MultiHeadAttention(2, masked=True), X, X), "wants rank 2: batch, positions of the keys"),
        (lambda: built(MultiHeadAttention(2), X.astype(np.int64)), "wants floating point"),
        (lambda: TransformerEncoderLayer(0, 9), "heads is 0"),
        (lambda: TransformerEncoderLayer(2, 0), "hidden is 0"),
        (lambda: TransformerEncoderLayer(2, 9, dropout=-1), "dropout is -1"),
        (lambda: TransformerEncoderLayer(2, 9, activation="relo"), "'relo' is none of"),
        (lambda: TransformerEncoderLayer(2, 9, epsilon=0), "epsilon is 0"),
        (
            lambda: TransformerEncoderLayer(2, 9, normalization="batch"),  # type: ignore[arg-type]
            "normalization is 'batch', wants 'layer' or 'rms'",
        ),
    ],
)
def test_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
