"""Computing parts of the forward pass again changes no bit of what is learnt, with random numbers or statistics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from aicore import nn
from aicore.ir import TensorType

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(20, 1))

IMAGES = nn.Sequential(
    *(nn.Conv2D(4, 3), nn.BatchNormalization(), nn.ReLU(), nn.Dropout(0.3), nn.Flatten()),
    *(nn.Dense(8, activation="gelu"), nn.Dropout(0.2), nn.BatchNormalization(), nn.Dense(1)),
)
SEQUENCES = nn.Sequential(
    *(nn.GRU(5, return_sequences=True), nn.Dropout(0.3), nn.LSTM(4), nn.BatchNormalization(), nn.Dense(1)),
)
BRANCHES = nn.Conditional(
    nn.Sequential(nn.Dense(8, activation="gelu"), nn.Dropout(0.3), nn.Dense(1)), nn.Sequential(nn.Dense(1), nn.Tanh())
)
MODELS: Mapping[str, tuple[nn.Layer, Any, Any]] = {
    "images": (IMAGES, None, RNG.normal(size=(20, 1, 6, 6))),
    "sequences": (SEQUENCES, None, RNG.normal(size=(20, 6, 3))),
    "branches": (BRANCHES, {"choice": TensorType("bool", (1,)), "x": (3,)}, RNG.normal(size=(20, 3))),
}


def trained(name: str, recompute: Any, dtype: str) -> dict[str, Array]:
    layer, inputs, x = MODELS[name]
    model = nn.Model(layer, inputs, target="cpu", dtype=dtype)
    model.compile(nn.Adam(0.01, global_clipnorm=1.0), "mean_squared_error", recompute=recompute)
    for i in range(4):
        which = slice(5 * i, 5 * i + 5) if inputs is None else slice(i, i + 1)
        model.train_on_batch(x[which] if inputs is None else {"choice": np.array([i % 2 > 0]), "x": x[which]}, Y[which])
    return model.state_dict()


@cache
def without(name: str, dtype: str) -> Mapping[str, Array]:
    return trained(name, "nothing", dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("recompute", ["pointwise", "segments", ()])
@pytest.mark.parametrize("name", MODELS)
def test_no_bit_changes(name: str, recompute: Any, dtype: str) -> None:
    found = trained(name, recompute, dtype)
    for parameter, array in without(name, dtype).items():
        np.testing.assert_array_equal(found[parameter], array, err_msg=parameter)
