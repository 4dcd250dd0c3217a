"""Normalisations and dropout: float64 NumPy in inference and training, running statistics, gradients, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import ConfigError
from aicore.nn import Sequential
from aicore.nn.layers import BatchNormalization, Dropout, GroupNormalization, LayerNormalization, RMSNormalization
from tests.nn.built import built

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6, 3, 5)) * 2 + 1
W, B = RNG.standard_normal(6), RNG.standard_normal(6)


def per_channel(v: Any) -> Any:
    return v[:, None, None]


def normalized(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


class TestBatchNormalization:
    def test_inference_uses_running_statistics(self) -> None:
        layer = built(BatchNormalization(epsilon=0.01), X, dtype="float64")
        mean, var = RNG.standard_normal(6), RNG.uniform(0.5, 2, 6)
        found = layer.run({"weight": W, "bias": B, "running_mean": mean, "running_var": var})
        expected = (X - per_channel(mean)) / np.sqrt(per_channel(var) + 0.01) * per_channel(W) + per_channel(B)
        np.testing.assert_allclose(found["output"], expected, rtol=1e-10)
        assert set(found) == {"output"}

    def test_training_uses_and_keeps_those_of_the_batch(self) -> None:
        layer = built(BatchNormalization(momentum=0.75), X, training=True, dtype="float64")
        mean, var = RNG.standard_normal(6), RNG.uniform(0.5, 2, 6)
        found = layer.run({"weight": W, "bias": B, "running_mean": mean, "running_var": var})
        expected = normalized(X, (0, 2, 3), 1e-5) * per_channel(W) + per_channel(B)
        np.testing.assert_allclose(found["output"], expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found["next.running_mean"], 0.75 * mean + 0.25 * X.mean((0, 2, 3)), rtol=1e-10)
        np.testing.assert_allclose(found["next.running_var"], 0.75 * var + 0.25 * X.var((0, 2, 3)), rtol=1e-10)

    def test_features_without_spatial_dims(self) -> None:
        x = X[:, :, 0, 0]
        found = built(BatchNormalization(), x, training=True, dtype="float64").run()
        np.testing.assert_allclose(found["output"], normalized(x, (0,), 1e-5), rtol=1e-8)

    def test_names_and_first_values(self) -> None:
        layer = built(BatchNormalization(), X)
        assert layer.shapes == dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (6,))
        assert layer.count == 12
        first = layer.initial()
        assert all((first[name] == 1).all() for name in ("weight", "running_var"))
        assert all((first[name] == 0).all() for name in ("bias", "running_mean"))

    def test_without_scale_and_center(self) -> None:
        layer = built(BatchNormalization(scale=False, center=False), X, training=True, dtype="float64")
        assert list(layer.shapes) == ["running_mean", "running_var"]
        np.testing.assert_allclose(layer.run()["output"], normalized(X, (0, 2, 3), 1e-5), rtol=1e-8, atol=1e-10)

    def test_gradients(self) -> None:
        first = {"weight": W, "bias": B, "running_mean": np.zeros(6), "running_var": np.ones(6)}
        found = built(BatchNormalization(), X, training=True, dtype="float64").gradients(first)
        x = normalized(X, (0, 2, 3), 1e-5)
        g = np.cos(x * per_channel(W) + per_channel(B))
        np.testing.assert_allclose(found["weight"], (g * x).sum((0, 2, 3)), rtol=1e-7)
        np.testing.assert_allclose(found["bias"], g.sum((0, 2, 3)), rtol=1e-7)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("axis", [-1, -2, 1, 2])
def test_layer_normalization(axis: int, training: bool) -> None:
    axes = tuple(range(axis % 4, 4))
    layer = built(LayerNormalization(axis, epsilon=0.01), X, training=training, dtype="float64")
    shape = X.shape[axes[0] :]
    assert layer.shapes == {"weight": shape, "bias": shape}
    weights = {name: RNG.standard_normal(shape) for name in layer.shapes}
    expected = normalized(X, axes, 0.01) * weights["weight"] + weights["bias"]
    np.testing.assert_allclose(layer.run(weights)["output"], expected, rtol=1e-6, atol=1e-7)  # statistics: see the op
    g = np.cos(expected)
    batch = tuple(range(axes[0]))
    found = built(LayerNormalization(axis, epsilon=0.01), X, training=True, dtype="float64").gradients(weights)
    np.testing.assert_allclose(found["weight"], (g * normalized(X, axes, 0.01)).sum(batch), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["bias"], g.sum(batch), rtol=1e-5, atol=1e-5)


def test_layer_normalization_without_parameters() -> None:
    layer = built(LayerNormalization(scale=False, center=False), X, dtype="float64")
    assert layer.shapes == {}
    np.testing.assert_allclose(layer.run()["output"], normalized(X, (3,), 1e-5), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
def test_rms_normalization(training: bool) -> None:
    layer = built(RMSNormalization(axis=2, epsilon=0.01), X, training=training, dtype="float64")
    assert layer.shapes == {"weight": (3, 5)}
    w = RNG.standard_normal((3, 5))
    scaled = X / np.sqrt((X**2).mean((2, 3), keepdims=True) + 0.01)
    np.testing.assert_allclose(layer.run({"weight": w})["output"], scaled * w, rtol=1e-10)
    found = layer.gradients({"weight": w})["weight"]
    np.testing.assert_allclose(found, (np.cos(scaled * w) * scaled).sum((0, 1)), rtol=1e-8)
    plain = built(RMSNormalization(scale=False), X, dtype="float64")
    expected = X / np.sqrt((X**2).mean(3, keepdims=True) + 1e-6)
    np.testing.assert_allclose(plain.run()["output"], expected, rtol=1e-10)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization(groups: int, training: bool) -> None:
    layer = built(GroupNormalization(groups, epsilon=0.01), X, training=training, dtype="float64")
    assert layer.shapes == {"weight": (6,), "bias": (6,)}
    x = normalized(X.reshape(4, groups, -1), (2,), 0.01).reshape(X.shape)
    expected = x * per_channel(W) + per_channel(B)
    np.testing.assert_allclose(layer.run({"weight": W, "bias": B})["output"], expected, rtol=1e-8, atol=1e-10)
    found = layer.gradients({"weight": W, "bias": B})
    np.testing.assert_allclose(found["weight"], (np.cos(expected) * x).sum((0, 2, 3)), rtol=1e-7, atol=1e-9)


def test_group_normalization_without_parameters() -> None:
    layer = built(GroupNormalization(3, scale=False, center=False), X, dtype="float64")
    assert layer.shapes == {}
    expected = normalized(X.reshape(4, 3, -1), (2,), 1e-5).reshape(X.shape)
    np.testing.assert_allclose(layer.run()["output"], expected, rtol=1e-8, atol=1e-10)


class TestDropout:
    x = np.ones((100, 200))

    def test_inference_is_the_identity(self) -> None:
        np.testing.assert_array_equal(built(Dropout(0.3), self.x).run()["output"], self.x)

    def test_a_rate_of_0_is_too(self) -> None:
        layer = built(Dropout(0.0), self.x, training=True)
        np.testing.assert_array_equal(layer.run()["output"], self.x)

    def test_training_drops_and_scales(self) -> None:
        y = built(Dropout(0.3), self.x, training=True).run()["output"]
        assert set(np.unique(y)) == {np.float32(0), np.float32(1 / np.float32(0.7))}
        share, deviation = (y == 0).mean(), math.sqrt(0.3 * 0.7 / y.size)
        assert abs(share - 0.3) < 5 * deviation

    def test_the_key_decides(self) -> None:
        layer = built(Dropout(0.5), self.x, training=True)
        first, again, other = (layer.run(key=key)["output"] for key in ((1, 2), (1, 2), (1, 3)))
        np.testing.assert_array_equal(first, again)
        assert (first != other).mean() > 0.4

    def test_two_layers_drop_different_elements(self) -> None:
        y = built(Sequential(Dropout(0.5), Dropout(0.5)), self.x, training=True).run()["output"]
        assert set(np.unique(y)) == {0, 4}
        assert abs((y == 0).mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / y.size)  # the same would give a half


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BatchNormalization(momentum=1.0), "momentum is 1.0, wants a number from 0 to below 1"),
        (lambda: BatchNormalization(epsilon=0.0), "epsilon is 0.0, wants a number above 0"),
        (lambda: built(BatchNormalization(), np.zeros(3)), r"wants \(batch, channels, ...\)"),
        (lambda: built(BatchNormalization(), np.zeros((3, 2), np.int64)), "wants floating point"),
        (lambda: LayerNormalization(1.5), "axis is 1.5, wants an integer"),  # type: ignore[arg-type]
        (lambda: LayerNormalization(epsilon=-1), "epsilon is -1"),
        (lambda: built(LayerNormalization(0), X), "no axes from 0 on beside the batch"),
        (lambda: built(LayerNormalization(-4), X), "no axes from -4 on"),
        (lambda: built(LayerNormalization(4), X), "no axes from 4 on"),
        (lambda: RMSNormalization(axis="last"), "axis is 'last'"),  # type: ignore[arg-type]
        (lambda: RMSNormalization(epsilon=0), "epsilon is 0"),
        (lambda: GroupNormalization(0), "groups is 0"),
        (lambda: GroupNormalization(2, epsilon=0), "epsilon is 0"),
        (lambda: built(GroupNormalization(4), X), "6 channels do not divide into 4 groups"),
        (lambda: built(GroupNormalization(1), np.zeros(3)), r"wants \(batch, channels, ...\)"),
        (lambda: Dropout(1.0), "rate is 1.0, wants a number from 0 to below 1"),
        (lambda: Dropout(-0.1), "rate is -0.1"),
        (lambda: built(Dropout(), np.zeros((3, 2), np.int64)), "wants floating point"),
    ],
)
def test_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()
