"""Is the sum of a sequence above a threshold? A recurrent network has to carry the sum along."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from aicore import nn

Array = np.ndarray[Any, Any]

LAYERS: dict[str, nn.Layer] = {"rnn": nn.RNN(24), "lstm": nn.LSTM(24), "gru": nn.GRU(24)}


def data(count: int, seed: int) -> tuple[Array, Array]:
    """Sequences (count, 12, 1) of numbers from 0 to 1, and whether their sum is above 6."""
    x = np.random.default_rng(seed).uniform(size=(count, 12, 1)).astype(np.float32)
    return x, (x.sum(axis=(1, 2)) > 6)[:, None]


def main(kind: str = "lstm") -> float:
    """Returns the accuracy on new sequences."""
    model = nn.Model(nn.Sequential(LAYERS[kind], nn.Dense(1)), target="cpu")
    rate = nn.schedules.CosineDecay(1e-2, decay_steps=50 * 32)
    model.compile(nn.Adam(rate, global_clipnorm=1.0), "binary_crossentropy", ["accuracy"])
    model.fit(*data(2000, seed=0), epochs=50, batch_size=64, verbose=False)
    accuracy = model.evaluate(*data(1000, seed=1))["accuracy"]
    print(f"{kind}: accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    for name in sys.argv[1:] or LAYERS:
        main(name)
