"""The networks whose training is compared, as layers of aicore: those of `benchmarks.gpu.networks`, with a loss behind.

mlp 784-1024-1024-10; small_cnn two convolutions with batch norms on 28x28; lstm 128-256 over 64 steps, and a dense
layer on its last state; resnet18 on 224x224 with 1000 classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aicore import nn
from aicore.nn.layer import Layer


def mlp() -> Layer:
    return nn.Sequential(nn.Dense(1024, activation="relu"), nn.Dense(1024, activation="relu"), nn.Dense(10))


def small_cnn() -> Layer:
    layers: list[Layer] = []
    for filters in (16, 32):
        layers += [*_convolution(filters, 3), nn.ReLU(), nn.MaxPool2D(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dense(128, activation="relu"), nn.Dense(10))


def lstm() -> Layer:
    return nn.Sequential(nn.LSTM(256), nn.Dense(10))


def resnet18() -> Layer:
    layers: list[Layer] = [*_convolution(64, 7, 2), nn.ReLU(), nn.MaxPool2D(3, strides=2, padding=1)]
    inputs = 64
    for stage in range(4):
        filters = 64 << stage
        for index in range(2):
            stride = 2 if stage and not index else 1
            body = nn.Sequential(*_convolution(filters, 3, stride), nn.ReLU(), *_convolution(filters, 3))
            same = stride == 1 and inputs == filters
            shortcut = None if same else nn.Sequential(*_convolution(filters, 1, stride))
            layers.append(nn.Residual(body, shortcut, activation="relu"))
            inputs = filters
    return nn.Sequential(*layers, nn.GlobalAveragePool2D(), nn.Flatten(), nn.Dense(1000))


def _convolution(filters: int, size: int, stride: int = 1) -> list[Layer]:
    convolution = nn.Conv2D(filters, size, strides=stride, padding=size // 2, use_bias=False)
    return [convolution, nn.BatchNormalization()]


@dataclass(frozen=True)
class Network:
    """shape: of one sample. classes: of its targets. keep_previous: of the model's `compile`."""

    layer: Callable[[], Layer]
    shape: tuple[int, ...]
    classes: int
    keep_previous: bool = True


NETWORKS: dict[str, Network] = {
    "mlp": Network(mlp, (784,), 10),
    "small_cnn": Network(small_cnn, (1, 28, 28), 10),
    "lstm": Network(lstm, (64, 128), 10),
    "resnet18": Network(resnet18, (3, 224, 224), 1000, keep_previous=False),
}
