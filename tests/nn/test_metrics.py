"""Metrics against NumPy, for every way in which targets may be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import nn
from aicore.errors import ConfigError
from aicore.ir import Builder

RNG = np.random.default_rng(1)
CLASSES = RNG.integers(0, 3, 12)
X = RNG.normal(size=(12, 3)).astype(np.float32)


def measured(metric: Any, x: Any, y: Any, loss: Any, layer: nn.Layer | None = None) -> float:
    """Of a model that gives its input as its prediction."""
    model = nn.Model(layer or nn.Activation("linear"), target="cpu").compile("sgd", loss, [metric])
    return model.evaluate(x, y, batch_size=5)[nn.metrics.metric_of(metric).name]


@pytest.mark.parametrize("y", [CLASSES, CLASSES[:, None], CLASSES.astype(np.uint8)], ids=["(n,)", "(n, 1)", "uint8"])
def test_accuracy_and_top_k_take_classes_as_a_vector_or_a_column(y: Any) -> None:
    right = X.argmax(axis=1) == CLASSES
    among_two = [number in row for number, row in zip(CLASSES, np.argsort(X, axis=1)[:, 1:], strict=True)]
    loss = "sparse_categorical_crossentropy"
    assert measured("accuracy", X, y, loss) == pytest.approx(right.mean(), rel=1e-6)
    assert measured(nn.metrics.TopKAccuracy(2), X, y, loss) == pytest.approx(np.mean(among_two), rel=1e-6)


def test_accuracy_and_top_k_take_one_hot_rows() -> None:
    y, loss = np.eye(3, dtype=np.float32)[CLASSES], "categorical_crossentropy"
    assert measured("accuracy", X, y, loss) == pytest.approx((X.argmax(axis=1) == CLASSES).mean(), rel=1e-6)
    assert measured(nn.metrics.TopKAccuracy(3), X, y, loss) == 1


@pytest.mark.parametrize("pixels", [(2, 4), (3, 3)])
def test_accuracy_looks_for_classes_on_the_axis_of_the_loss(pixels: tuple[int, int]) -> None:
    x = RNG.normal(size=(4, 3, *pixels)).astype(np.float32)
    y = RNG.integers(0, 3, (4, *pixels))
    loss = nn.losses.SparseCategoricalCrossentropy(axis=1)
    assert measured("accuracy", x, y, loss) == pytest.approx((x.argmax(axis=1) == y).mean(), rel=1e-6)


def test_errors_of_a_column_and_a_vector_are_not_broadcast() -> None:
    x, y = RNG.normal(size=(6, 1)).astype(np.float32), RNG.normal(size=6).astype(np.float32)
    assert measured("mae", x, y, "mse") == pytest.approx(np.abs(x[:, 0] - y).mean(), rel=1e-5)
    assert measured("mse", x, y, "mse") == pytest.approx(((x[:, 0] - y) ** 2).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("metric", "target", "message"),
    [
        (nn.metrics.Accuracy(), ("batch", 4), "are no classes of predictions"),
        (nn.metrics.Accuracy(), ("batch", 3, 1), "are no classes of predictions"),
        (nn.metrics.TopKAccuracy(2), ("batch", 3, 1), "are no classes of predictions"),
        (nn.metrics.Accuracy(axis=2), ("batch",), "have no axis 2 of classes"),
        (nn.metrics.MeanAbsoluteError(), ("batch", 1), "the shapes differ"),
        (nn.metrics.MeanSquaredError(), ("batch", 4), "the shapes differ"),
    ],
)
def test_targets_that_do_not_fit_are_refused(metric: Any, target: Any, message: str) -> None:
    op = Builder()
    prediction, wanted = op.input("p", "float32", ("batch", 3)), op.input("t", "float32", target)
    with pytest.raises(ConfigError, match=message):
        metric.build(op, prediction, wanted)
