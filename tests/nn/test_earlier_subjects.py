"""What the earlier version's tests trained, by its names of layers and methods: each learns what it has to."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore import nn
from aicore.nn.losses import BinaryCrossentropy, CategoricalCrossentropy

RNG = np.random.default_rng(0)


def trained(layers: Any, loss: Any, x: Any, y: Any, epochs: int, rate: float = 0.02, **options: Any) -> nn.Model:
    model = nn.Model(layers, target="cpu", seed=0)
    model.compile(optimizer="adam", loss=loss, learning_rate=rate, **options)
    model.fit(x, y, epochs=epochs, batch_size=32, verbose=False)
    return model


def test_linear_regression() -> None:
    x = RNG.uniform(-1, 1, (128, 1)).astype(np.float32)
    model = trained(nn.Sequential(nn.Dense(1)), "mse", x, 3 * x - 0.5, epochs=80, rate=0.05)
    weights = model.state_dict()
    np.testing.assert_allclose(weights["dense.weight"], [[3]], atol=0.01)
    np.testing.assert_allclose(weights["dense.bias"], [-0.5], atol=0.01)


def test_polynomial_regression() -> None:
    x = RNG.uniform(-1, 1, (256, 1)).astype(np.float32)
    y = x**3 - x**2 + 0.5
    layers = nn.Sequential(nn.Dense(32, activation="tanh", initializer="xavier"), nn.Dense(1))
    assert trained(layers, "mse", x, y, epochs=80).evaluate(x, y)["loss"] < 0.002


def test_three_classes_with_softmax() -> None:
    centres = np.array([[0, 2], [2, -1], [-2, -1]], np.float32)
    classes = RNG.integers(0, 3, 240)
    x = (centres[classes] + RNG.normal(0, 0.5, (240, 2))).astype(np.float32)
    y = np.eye(3, dtype=np.float32)[classes]
    layers = nn.Sequential(nn.Dense(16, activation="relu", initializer="he"), nn.Dense(3), nn.Activation("softmax"))
    model = trained(layers, CategoricalCrossentropy(from_logits=False), x, y, epochs=20, metrics=["accuracy"])
    np.testing.assert_allclose(model.predict(x).sum(1), 1, rtol=1e-5)
    assert model.evaluate(x, y)["accuracy"] > 0.97


def test_lines_in_images() -> None:
    """Vertical or horizontal: a convolution and pooling tell them apart wherever the line is."""
    images, kinds = RNG.normal(0, 0.1, (200, 1, 8, 8)), RNG.integers(0, 2, 200)
    for image, kind, place in zip(images, kinds, RNG.integers(0, 8, 200), strict=True):
        image[0, :, place] += kind
        image[0, place, :] += 1 - kind
    x, y = images.astype(np.float32), kinds.astype(np.float32)[:, None]
    layers = nn.Sequential()
    for layer in (
        nn.Conv2D(8, kernel_size=3, strides=1, padding="same", activation="relu"),
        nn.BatchNormalization(momentum=0.9, epsilon=1e-5),
        nn.MaxPool2D(),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Dense(1),
        nn.Activation("sigmoid"),
    ):
        layers = layers.add(layer)
    model = trained(layers, BinaryCrossentropy(from_logits=False), x, y, epochs=12)
    assert ((model.predict(x) > 0.5) == y).mean() > 0.98


def test_sums_of_sequences() -> None:
    x = RNG.uniform(0, 1, (400, 10, 1)).astype(np.float32)
    y = (x.sum(1) > 5).astype(np.float32)
    layers = nn.Sequential(nn.RNN(16, return_sequences=False), nn.Dense(1, activation="sigmoid"))
    model = trained(layers, BinaryCrossentropy(from_logits=False), x, y, epochs=40)
    assert ((model.predict(x) > 0.5) == y).mean() > 0.95


def test_weights_travel() -> None:
    x = RNG.normal(size=(64, 3)).astype(np.float32)
    layers = nn.Sequential(nn.Dense(4, activation="relu"), nn.Dense(1))
    first = trained(layers, "mse", x, x[:, :1], epochs=2)
    second = nn.Model(layers, inputs=(3,), target="cpu", seed=1)
    second.load_state_dict(first.state_dict())
    np.testing.assert_array_equal(first.predict(x), second.predict(x))
