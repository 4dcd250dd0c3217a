"""Layers, losses, optimisers, and models that train: the whole step is one graph.

    model = nn.Model(nn.Sequential(nn.Dense(32, activation="relu"), nn.Dense(10)))
    model.compile(nn.Adam(1e-3), "sparse_categorical_crossentropy", ["accuracy"])
    model.fit(x, y, epochs=10, validation_split=0.1)

Layers, optimisers and losses are frozen configurations; only a Model holds numbers, and they stay on its device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from aicore.lazy import lazy_names
from aicore.nn import layers

if TYPE_CHECKING:
    from aicore.nn import callbacks, initializers, losses, metrics, optimizers, schedules
    from aicore.nn.callbacks import (
        Callback,
        CSVLogger,
        EarlyStopping,
        LearningRateScheduler,
        ModelCheckpoint,
        ReduceLROnPlateau,
    )
    from aicore.nn.history import History
    from aicore.nn.layer import Layer, Sequential
    from aicore.nn.layers import *  # noqa: F403  # those of its __all__
    from aicore.nn.metrics import Accuracy, Metric, TopKAccuracy
    from aicore.nn.model import Model
    from aicore.nn.optimizers import LAMB, SGD, Adagrad, Adam, AdamW, Lion, Optimizer, RMSprop
    from aicore.nn.schedules import Schedule
    from aicore.nn.scope import Scope

__all__ = [
    "LAMB",
    "SGD",
    "Accuracy",
    "Adagrad",
    "Adam",
    "AdamW",
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "History",
    "Layer",
    "LearningRateScheduler",
    "Lion",
    "Metric",
    "Model",
    "ModelCheckpoint",
    "Optimizer",
    "RMSprop",
    "ReduceLROnPlateau",
    "Schedule",
    "Scope",
    "Sequential",
    "TopKAccuracy",
    "callbacks",
    "initializers",
    "layers",
    "losses",
    "metrics",
    "optimizers",
    "schedules",
]
__all__ += layers.__all__

_FILES = {
    "callbacks": "CSVLogger Callback EarlyStopping LearningRateScheduler ModelCheckpoint ReduceLROnPlateau",
    "history": "History",
    "layer": "Layer Sequential",
    "metrics": "Accuracy Metric TopKAccuracy",
    "model": "Model",
    "optimizers": "Adagrad Adam AdamW LAMB Lion Optimizer RMSprop SGD",
    "schedules": "Schedule",
    "scope": "Scope",
}
_HOMES = {name: f"{__name__}.{file}" for file, names in _FILES.items() for name in names.split()}
_MODULES = ("callbacks", "initializers", "losses", "metrics", "optimizers", "schedules")

_own = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(layers, name) if name in layers.HOMES else _own(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
