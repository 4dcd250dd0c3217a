"""Another device gives the same bits, as far as its kernels are the same: the fake GPU has those of the CPU."""

from __future__ import annotations

import numpy as np

from aicore import nn


def test_training_on_the_fake_gpu_equals_the_cpu_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    layers = nn.Sequential(nn.Dense(8, activation="gelu"), nn.Dropout(0.3), nn.BatchNormalization(), nn.Dense(1))
    models = [
        nn.Model(layers, target=target).compile("adam", "mean_squared_error", ["mae"]) for target in ("cpu", "fake")
    ]
    histories = [
        model.fit(x, y, epochs=3, batch_size=7, validation_split=0.2, verbose=False).history for model in models
    ]
    assert histories[0] == histories[1]
    states = [model.state_dict() for model in models]
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])
    np.testing.assert_array_equal(*(model.predict(x) for model in models))
