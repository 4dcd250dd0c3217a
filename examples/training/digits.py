"""Handwritten digits of 8x8 pixels: a small convolutional network, its loss curve and its confusion matrix.

Data: scikit-learn's copy of the UCI data set of Alpaydin and Kaynak (1998), 1,797 digits.
`python examples/training/digits.py curves.png` also draws the curves (with matplotlib).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split

from aicore import nn

Array = np.ndarray[Any, Any]


def network() -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(32, 3, padding="same", use_bias=False),
        nn.BatchNormalization(),
        nn.ReLU(),
        nn.Conv2D(64, 3, padding="same", use_bias=False),
        nn.BatchNormalization(),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Dense(128, activation="relu"),
        nn.Dropout(0.5),
        nn.Dense(10),
    )


def data() -> tuple[Array, Array, Array, Array]:
    """Images (n, 1, 8, 8) between 0 and 1, and classes, for training and for testing."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    x, x_test, y, y_test = train_test_split(
        images, digits.target, test_size=0.25, random_state=0, stratify=digits.target
    )
    return x, x_test, y, y_test


def train(epochs: int = 25) -> tuple[nn.Model, nn.History]:
    x, _, y, _ = data()
    rate = nn.schedules.CosineDecay(3e-3, decay_steps=epochs * -(-len(x) // 64))
    model = nn.Model(network(), target="cpu")
    model.compile(nn.AdamW(rate), "sparse_categorical_crossentropy", ["accuracy"])
    return model, model.fit(x, y, epochs=epochs, batch_size=64)


def main(picture: str | None = None) -> float:
    """Returns the accuracy on digits that training did not see."""
    model, history = train()
    _, x_test, _, y_test = data()
    classes = model.predict(x_test).argmax(axis=1)
    confusion = confusion_matrix(y_test, classes)
    print(confusion)
    accuracy = float(np.mean(classes == y_test))
    print(f"accuracy {accuracy:.2%}")
    if picture is not None:
        draw(history, confusion, picture)
    return accuracy


def draw(history: nn.History, confusion: Array, path: str) -> None:
    """Loss by epoch beside the confusion matrix."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from sklearn.metrics import ConfusionMatrixDisplay

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    left.plot(range(1, history.epochs + 1), history["loss"])
    left.set(xlabel="epoch", ylabel="loss", title="Training loss", yscale="log")
    ConfusionMatrixDisplay(confusion).plot(ax=right, colorbar=False)
    right.set_title("Digits not seen in training")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
