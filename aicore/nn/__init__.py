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

if TYPE_CHECKING:
    from aicore.nn import callbacks, initializers, layers, losses, metrics, optimizers, schedules
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
    from aicore.nn.layers.activations import (
        CELU,
        ELU,
        GELU,
        SELU,
        Activation,
        HardSigmoid,
        HardSwish,
        Identity,
        LeakyReLU,
        LogSoftmax,
        Mish,
        PReLU,
        ReLU,
        ReLU6,
        Sigmoid,
        SiLU,
        Softmax,
        Softplus,
        Softsign,
        Tanh,
    )
    from aicore.nn.layers.attention import MultiHeadAttention, TransformerEncoderLayer
    from aicore.nn.layers.conditional import Conditional
    from aicore.nn.layers.convolution import Conv1D, Conv2D, ConvTranspose1D, ConvTranspose2D
    from aicore.nn.layers.dense import Dense, Embedding
    from aicore.nn.layers.merging import Add, Apply, Concatenate, Multiply, Residual
    from aicore.nn.layers.normalization import (
        BatchNormalization,
        Dropout,
        GroupNormalization,
        LayerNormalization,
        RMSNormalization,
    )
    from aicore.nn.layers.pooling import (
        AveragePool1D,
        AveragePool2D,
        AvgPool2D,
        GlobalAveragePool1D,
        GlobalAveragePool2D,
        GlobalMaxPool1D,
        GlobalMaxPool2D,
        MaxPool1D,
        MaxPool2D,
    )
    from aicore.nn.layers.recurrent import GRU, LSTM, RNN, SimpleRNN
    from aicore.nn.layers.shaping import Flatten, Permute, Reshape, UpSample2D, ZeroPad2D
    from aicore.nn.metrics import Accuracy, Metric, TopKAccuracy
    from aicore.nn.model import Model
    from aicore.nn.optimizers import LAMB, SGD, Adagrad, Adam, AdamW, Lion, Optimizer, RMSprop
    from aicore.nn.schedules import Schedule
    from aicore.nn.scope import Scope

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GRU",
    "LAMB",
    "LSTM",
    "RNN",
    "SELU",
    "SGD",
    "Accuracy",
    "Activation",
    "Adagrad",
    "Adam",
    "AdamW",
    "Add",
    "Apply",
    "AveragePool1D",
    "AveragePool2D",
    "AvgPool2D",
    "BatchNormalization",
    "CSVLogger",
    "Callback",
    "Concatenate",
    "Conditional",
    "Conv1D",
    "Conv2D",
    "ConvTranspose1D",
    "ConvTranspose2D",
    "Dense",
    "Dropout",
    "EarlyStopping",
    "Embedding",
    "Flatten",
    "GlobalAveragePool1D",
    "GlobalAveragePool2D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "History",
    "Identity",
    "Layer",
    "LayerNormalization",
    "LeakyReLU",
    "LearningRateScheduler",
    "Lion",
    "LogSoftmax",
    "MaxPool1D",
    "MaxPool2D",
    "Metric",
    "Mish",
    "Model",
    "ModelCheckpoint",
    "MultiHeadAttention",
    "Multiply",
    "Optimizer",
    "PReLU",
    "Permute",
    "RMSNormalization",
    "RMSprop",
    "ReLU",
    "ReLU6",
    "ReduceLROnPlateau",
    "Reshape",
    "Residual",
    "Schedule",
    "Scope",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SimpleRNN",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
    "TopKAccuracy",
    "TransformerEncoderLayer",
    "UpSample2D",
    "ZeroPad2D",
    "callbacks",
    "initializers",
    "layers",
    "losses",
    "metrics",
    "optimizers",
    "schedules",
]

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
_MODULES = ("callbacks", "initializers", "layers", "losses", "metrics", "optimizers", "schedules")

_own = lazy_names(__name__, _HOMES)


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return _own(name)
    from aicore.nn import layers

    if name not in layers.HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(layers, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
