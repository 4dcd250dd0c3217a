"""Whole trainings against the same formulas in NumPy, float64: forward pass, gradients by hand, update, statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest

from aicore import nn

Array: TypeAlias = np.ndarray[Any, Any]
Numbers: TypeAlias = dict[str, Array]
Update: TypeAlias = Callable[[str, Array, Array, int], Array]

COUNT, BATCH, EPOCHS, SMOOTHING, MOMENTUM, EPSILON = 50, 16, 4, 0.1, 0.8, 1e-3
RNG = np.random.default_rng(5)
X = RNG.normal(size=(COUNT, 5))
CLASSES = (RNG.random(COUNT) < 0.1).astype(int) + (RNG.random(COUNT) < 0.06)  # most are 0

LAYERS = nn.Sequential(
    nn.Dense(7, use_bias=False, name="first"),  # the gradient of a bias would be 0 here, whose rounding Adam blows up
    nn.BatchNormalization(momentum=MOMENTUM, epsilon=EPSILON, name="norm"),
    nn.ReLU(),
    nn.Dense(3, name="last"),
)


def momentum(rate: float, nesterov: bool, decay: float) -> Update:
    kept: Numbers = {}

    def update(name: str, value: Array, slope: Array, step: int) -> Array:
        slope = slope + decay * value
        kept[name] = slope + (0.9 * kept[name] if name in kept else 0)
        return value - rate * (slope + 0.9 * kept[name] if nesterov else kept[name])

    return update


def adam(rate: float) -> Update:
    kept: dict[str, tuple[Array, Array]] = {}

    def update(name: str, value: Array, slope: Array, step: int) -> Array:
        mean, square = kept.get(name, (np.zeros_like(value), np.zeros_like(value)))
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        kept[name] = mean, square
        return value - rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)

    return update


def logits(p: Mapping[str, Array], normalised: Array) -> Array:
    shifted: Array = normalised * p["norm.weight"] + p["norm.bias"]
    found: Array = np.maximum(shifted, 0) @ p["last.weight"].T + p["last.bias"]
    return found


def losses(found: Array, classes: Array) -> tuple[Array, Array]:
    """The smoothed cross-entropy of each sample, and its gradient by the logits."""
    powers = np.exp(found - found.max(axis=1, keepdims=True))
    p = powers / powers.sum(axis=1, keepdims=True)
    wanted = np.eye(3)[classes] * (1 - SMOOTHING) + SMOOTHING / 3
    return -(wanted * np.log(p)).sum(axis=1), p - wanted


def step_by_hand(p: Numbers, x: Array, classes: Array, update: Update, step: int) -> tuple[float, float]:
    """Change the parameters; returns the sums of loss and of right classes."""
    z = x @ p["first.weight"].T
    mean, variance = z.mean(axis=0), z.var(axis=0)
    spread = np.sqrt(variance + EPSILON)
    unit = (z - mean) / spread
    shifted = unit * p["norm.weight"] + p["norm.bias"]
    found = logits(p, unit)
    each, slope = losses(found, classes)
    slope /= len(x)
    d_shifted = (slope @ p["last.weight"]) * (shifted > 0)
    d_unit = d_shifted * p["norm.weight"]
    d_z = (d_unit - d_unit.mean(axis=0) - unit * (d_unit * unit).mean(axis=0)) / spread
    slopes = {
        "last.weight": slope.T @ np.maximum(shifted, 0),
        "last.bias": slope.sum(axis=0),
        "norm.weight": (d_shifted * unit).sum(axis=0),
        "norm.bias": d_shifted.sum(axis=0),
        "first.weight": d_z.T @ x,
    }
    p.update({name: update(name, p[name], gradient, step) for name, gradient in slopes.items()})
    p["norm.running_mean"] = MOMENTUM * p["norm.running_mean"] + (1 - MOMENTUM) * mean
    p["norm.running_var"] = MOMENTUM * p["norm.running_var"] + (1 - MOMENTUM) * variance
    return float(each.sum()), float((found.argmax(axis=1) == classes).sum())


@pytest.mark.parametrize(
    ("optimizer", "update"),
    [
        (nn.SGD(0.125, momentum=0.9), lambda: momentum(0.125, nesterov=False, decay=0)),
        (nn.SGD(0.125, momentum=0.9, nesterov=True, weight_decay=0.01), lambda: momentum(0.125, True, 0.01)),
        (nn.Adam(0.03125), lambda: adam(0.03125)),
    ],
    ids=["momentum", "Nesterov with decay", "Adam"],
)
def test_training_follows_the_formulas(optimizer: nn.Optimizer, update: Callable[[], Update]) -> None:
    """Rates are powers of two, since the model keeps them in float32. Metrics are float32 too."""
    model = nn.Model(LAYERS, (5,), target="cpu", dtype="float64")
    loss = nn.losses.SparseCategoricalCrossentropy(label_smoothing=SMOOTHING)
    model.compile(optimizer, loss, ["accuracy"])
    p, follow, step = model.state_dict(), update(), 0
    history = model.fit(X, CLASSES, epochs=EPOCHS, batch_size=BATCH, shuffle=False, verbose=False)
    for epoch in range(EPOCHS):
        sums = []
        for start in range(0, COUNT, BATCH):  # the last batch has two samples
            step += 1
            which = slice(start, start + BATCH)
            sums.append(step_by_hand(p, X[which], CLASSES[which], follow, step))
        total, right = np.sum(sums, axis=0) / COUNT
        assert history["loss"][epoch] == pytest.approx(total, rel=1e-10)
        assert history["accuracy"][epoch] == pytest.approx(right, rel=1e-6)
    for name, array in model.state_dict().items():
        np.testing.assert_allclose(array, p[name], rtol=1e-9, atol=1e-12, err_msg=name)
    z = X @ p["first.weight"].T
    found = logits(p, (z - p["norm.running_mean"]) / np.sqrt(p["norm.running_var"] + EPSILON))
    np.testing.assert_allclose(model.predict(X, batch_size=7), found, rtol=1e-9, atol=1e-12)
    each, _ = losses(found, CLASSES)
    measured = model.evaluate(X, CLASSES, batch_size=7)
    assert measured["loss"] == pytest.approx(each.mean(), rel=1e-10)
    assert measured["accuracy"] == pytest.approx((found.argmax(axis=1) == CLASSES).mean(), rel=1e-6)
