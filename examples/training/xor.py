"""Exclusive or: the smallest problem that needs a hidden layer."""

from __future__ import annotations

import numpy as np

from aicore import nn

X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
Y = np.array([[0], [1], [1], [0]], np.float32)


def main() -> float:
    """Returns the accuracy."""
    model = nn.Model(nn.Sequential(nn.Dense(8, activation="tanh"), nn.Dense(1)), target="cpu")
    model.compile("adam", "binary_crossentropy", ["accuracy"], learning_rate=0.05)
    model.fit(X, Y, epochs=200, batch_size=4, verbose=False)
    logits = model.predict(X)
    for row, logit in zip(X, logits[:, 0], strict=True):
        print(f"{row[0]:.0f} xor {row[1]:.0f} = {int(logit > 0)}  (logit {logit:+.2f})")
    return model.evaluate(X, Y)["accuracy"]


if __name__ == "__main__":
    main()
