"""Small networks that are trained for some steps, to compare targets: all kinds of layers, losses and optimisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.ir import TensorType, dtype_name, symbol
from aicore.nn.data import BATCH
from aicore.nn.layer import Layer, Sequential
from aicore.nn.layers import (
    GRU,
    LSTM,
    BatchNormalization,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool1D,
    MaxPool2D,
    Permute,
    ReLU,
    TransformerEncoderLayer,
)
from aicore.nn.losses import Loss, loss_of
from aicore.nn.optimizers import SGD, Adam, AdamW, Optimizer, RMSprop
from aicore.nn.step import TARGET, Task, training_graph
from aicore.testing.trajectories import Trajectory

Array = np.ndarray[Any, Any]

_BATCH = 16


def sample_trajectories(steps: int = 50, seed: int = 0) -> list[Trajectory]:
    """An MLP, a CNN with BatchNorm and pooling, an LSTM, a GRU and a transformer encoder, `steps` batches each."""
    rng = np.random.default_rng(seed)
    classes = loss_of("sparse_categorical_crossentropy")
    cnn = Sequential(
        *(Conv2D(8, 3, padding="same"), BatchNormalization(), ReLU(), MaxPool2D(2)),
        *(Conv2D(16, 3), BatchNormalization(), ReLU(), Flatten(), Dense(5)),
    )
    transformer = Sequential(
        *(Embedding(20, 16), TransformerEncoderLayer(2, 32), Permute((2, 1)), GlobalAveragePool1D(), Dense(3))
    )
    mlp = Sequential(Dense(32, activation="relu"), Dropout(0.2), Dense(16, activation="gelu"), Dense(4))
    images, words = _normal(rng, steps, (1, 12, 12)), rng.integers(0, 20, (steps, _BATCH, 9))
    return [
        _trajectory("MLP", mlp, classes, Adam(1e-3), _normal(rng, steps, (12,)), _classes(rng, steps, 4), seed),
        _trajectory("CNN", cnn, classes, SGD(1e-2, momentum=0.9), images, _classes(rng, steps, 5), seed),
        _recurrent("LSTM", LSTM(12), RMSprop(1e-3), rng, steps, seed),
        _recurrent("GRU", GRU(12), SGD(1e-2, momentum=0.9, nesterov=True, global_clipnorm=1.0), rng, steps, seed),
        _trajectory("transformer", transformer, classes, AdamW(1e-3), words, _classes(rng, steps, 3), seed),
    ]


def _recurrent(
    name: str, layer: Layer, optimizer: Optimizer, rng: np.random.Generator, steps: int, seed: int
) -> Trajectory:
    x = _normal(rng, steps, (7, 5))
    sums = x.sum(axis=(2, 3))[..., None].astype(np.float32)
    return _trajectory(name, Sequential(layer, Dense(1)), loss_of("mean_squared_error"), optimizer, x, sums, seed)


def _trajectory(
    name: str, layer: Layer, criterion: Loss, optimizer: Optimizer, x: Array, y: Array, seed: int
) -> Trajectory:
    inputs = {"input": _type_of(x)}
    step = training_graph(Task(layer, inputs, _type_of(y), criterion, (), optimizer))
    batches = [{"input": one, TARGET: wanted} for one, wanted in zip(x, y, strict=True)]
    return Trajectory(name, step.graph, step.first_values(seed), batches)


def _type_of(batches: Array) -> TensorType:
    return TensorType(dtype_name(batches.dtype), (symbol(BATCH), *batches.shape[2:]))


def _normal(rng: np.random.Generator, steps: int, shape: Sequence[int]) -> Array:
    return rng.normal(size=(steps, _BATCH, *shape)).astype(np.float32)


def _classes(rng: np.random.Generator, steps: int, count: int) -> Array:
    return rng.integers(0, count, (steps, _BATCH))
