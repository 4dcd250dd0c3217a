"""The seven networks in PyTorch, with seeded weights, and their ONNX files.

ResNet: He et al. 2015, with the stride on the 3x3 convolution; MobileNetV2: Sandler et al. 2018. They are written out
here because torchvision may be missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

CALIBRATION_BATCH = 4
"""Images from which batch norms take their statistics, so that no activation of a random network explodes."""


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)); without the relu for a linear bottleneck."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, rectify: bool = True) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut
        self.rectify = rectify

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(x) + self.shortcut(x)
        return torch.relu(y) if self.rectify else y


class Recurrent(nn.Module):
    """One LSTM; its outputs of all steps."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.lstm(x)[0]
        return y


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def small_cnn() -> nn.Module:
    stages = [(1, 16), (16, 32)]
    layers = [
        layer for inputs, outputs in stages for layer in (*_convolution(inputs, outputs, 3), nn.ReLU(), nn.MaxPool2d(2))
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def _basic(inputs: int, width: int, stride: int) -> list[nn.Module]:
    return [*_convolution(inputs, width, 3, stride), nn.ReLU(), *_convolution(width, width, 3)]


def _bottleneck(inputs: int, width: int, stride: int) -> list[nn.Module]:
    narrow = [*_convolution(inputs, width, 1), nn.ReLU(), *_convolution(width, width, 3, stride), nn.ReLU()]
    return [*narrow, *_convolution(width, 4 * width, 1)]


def _resnet(block: Callable[[int, int, int], list[nn.Module]], depths: tuple[int, ...], expansion: int) -> nn.Module:
    layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            stride = 2 if stage and not index else 1
            outputs = expansion * width
            same = stride == 1 and inputs == outputs
            shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))
            layers.append(Residual(nn.Sequential(*block(inputs, width, stride)), shortcut))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def resnet18() -> nn.Module:
    return _resnet(_basic, (2, 2, 2, 2), 1)


def resnet50() -> nn.Module:
    return _resnet(_bottleneck, (3, 4, 6, 3), 4)


_INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, repeats and first stride of MobileNetV2's stages, table 2 of the paper."""


def mobilenet_v2() -> nn.Module:
    layers: list[nn.Module] = [*_convolution(3, 32, 3, 2), nn.ReLU6()]
    inputs = 32
    for expansion, outputs, repeats, first in _INVERTED:
        for index in range(repeats):
            stride = 1 if index else first
            wide = inputs * expansion
            body: list[nn.Module] = [] if expansion == 1 else [*_convolution(inputs, wide, 1), nn.ReLU6()]
            body += [*_convolution(wide, wide, 3, stride, groups=wide), nn.ReLU6(), *_convolution(wide, outputs, 1)]
            whole = nn.Sequential(*body)
            same = stride == 1 and inputs == outputs
            layers.append(Residual(whole, nn.Identity(), rectify=False) if same else whole)
            inputs = outputs
    layers += [*_convolution(inputs, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


def lstm() -> nn.Module:
    return Recurrent(128, 256)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


@dataclass(frozen=True)
class Network:
    """How to make one, and the shape of its input without the batch."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]


NETWORKS: dict[str, Network] = {
    "mlp": Network(mlp, (784,)),
    "small_cnn": Network(small_cnn, (1, 28, 28)),
    "resnet18": Network(resnet18, (3, 224, 224)),
    "resnet50": Network(resnet50, (3, 224, 224)),
    "mobilenet_v2": Network(mobilenet_v2, (3, 224, 224)),
    "lstm": Network(lstm, (64, 128)),
    "encoder": Network(encoder, (128, 256)),
}


def build(name: str) -> nn.Module:
    """The network on the CPU, seeded, ready for inference; biases and batch norms are not those of a fresh one."""
    torch.manual_seed(0)
    network = NETWORKS[name].make()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() == 1:  # PyTorch starts with biases of 0 and scales of 1, which hide mistakes
                parameter.add_(0.1 * torch.randn_like(parameter))
        _calibrate(network, name)
    return network.eval()


def _calibrate(network: nn.Module, name: str) -> None:
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = 1.0  # the statistics of this one batch
    network.train()
    network(inputs(name, CALIBRATION_BATCH, seed=1))


def inputs(name: str, batch: int, seed: int = 0) -> torch.Tensor:
    """Seeded normal numbers on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *NETWORKS[name].shape, generator=generator)


def expected(network: nn.Module, x: torch.Tensor) -> Any:
    """The output in float64 on the CPU, as a NumPy array. The network is float32 again afterwards, bit for bit."""
    with torch.inference_mode(), _plain_attention():
        result = network.double()(x.double()).numpy()
    network.float()
    return result


def export(network: nn.Module, x: torch.Tensor, path: Path) -> str:
    """Write the ONNX file, input `x` and output `y`; returns which exporter did it, `traced` or `dynamo`.

    The newer exporter needs onnxscript, which may be missing; it is asked when the older one fails.
    Raises RuntimeError with both reasons when neither can.
    """
    shared: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "opset_version": 18}
    reasons = []
    for exporter, dynamo in (("traced", False), ("dynamo", True)):
        try:
            with torch.no_grad(), _plain_attention(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(network, (x,), str(path), dynamo=dynamo, **shared)
        except Exception as error:  # noqa: BLE001  # exporters raise what they like; the reasons are told below
            reasons.append(f"{exporter}: {type(error).__name__}: {error}")
        else:
            return exporter
    raise RuntimeError("no exporter could write the network: " + "; ".join(reasons))


class _plain_attention:  # noqa: N801  # a context manager, named like a function
    """Without PyTorch's fused encoder layer, which has no ONNX form and, on the CPU, no float64 one."""

    def __enter__(self) -> None:
        self._before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)

    def __exit__(self, *_: object) -> None:
        torch.backends.mha.set_fastpath_enabled(self._before)
