"""Layers: frozen configurations that build their nodes, and hold no numbers.

Fields are checked when a layer is made (ConfigError), inputs when it is built. Batches come first, and channels before
spatial dims. Parameters have PyTorch's names and layouts where it has the layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicore.lazy import lazy_names

if TYPE_CHECKING:
    from aicore.nn.layers.activations import (
        ACTIVATIONS,
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

_FILES = {
    "activations": (
        "ACTIVATIONS Activation CELU ELU GELU HardSigmoid HardSwish Identity LeakyReLU LogSoftmax Mish PReLU ReLU "
        "ReLU6 SELU SiLU Sigmoid Softmax Softplus Softsign Tanh"
    ),
    "attention": "MultiHeadAttention TransformerEncoderLayer",
    "conditional": "Conditional",
    "convolution": "Conv1D Conv2D ConvTranspose1D ConvTranspose2D",
    "dense": "Dense Embedding",
    "merging": "Add Apply Concatenate Multiply Residual",
    "normalization": "BatchNormalization Dropout GroupNormalization LayerNormalization RMSNormalization",
    "pooling": (
        "AveragePool1D AveragePool2D AvgPool2D GlobalAveragePool1D GlobalAveragePool2D GlobalMaxPool1D GlobalMaxPool2D "
        "MaxPool1D MaxPool2D"
    ),
    "recurrent": "GRU LSTM RNN SimpleRNN",
    "shaping": "Flatten Permute Reshape UpSample2D ZeroPad2D",
}
HOMES = {name: f"{__name__}.{file}" for file, names in _FILES.items() for name in names.split()}
"""The module of each layer."""

__all__ = [
    "ACTIVATIONS",
    "CELU",
    "ELU",
    "GELU",
    "GRU",
    "LSTM",
    "RNN",
    "SELU",
    "Activation",
    "Add",
    "Apply",
    "AveragePool1D",
    "AveragePool2D",
    "AvgPool2D",
    "BatchNormalization",
    "Concatenate",
    "Conditional",
    "Conv1D",
    "Conv2D",
    "ConvTranspose1D",
    "ConvTranspose2D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAveragePool1D",
    "GlobalAveragePool2D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LayerNormalization",
    "LeakyReLU",
    "LogSoftmax",
    "MaxPool1D",
    "MaxPool2D",
    "Mish",
    "MultiHeadAttention",
    "Multiply",
    "PReLU",
    "Permute",
    "RMSNormalization",
    "ReLU",
    "ReLU6",
    "Reshape",
    "Residual",
    "SiLU",
    "Sigmoid",
    "SimpleRNN",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
    "TransformerEncoderLayer",
    "UpSample2D",
    "ZeroPad2D",
]

__getattr__ = lazy_names(__name__, HOMES)
