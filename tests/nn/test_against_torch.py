"""Whole networks beside PyTorch's autograd: the same loss, and the same gradients, from the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import aicore
from aicore import nn
from aicore.ir import TensorType, dtype_name, symbol
from aicore.nn.initial import first_values
from aicore.nn.losses import loss_of
from aicore.nn.step import Task, training_graph

torch = pytest.importorskip("torch", reason="a comparison, which needs the extra `export`")

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
BATCH = 8


def ours(layer: nn.Layer, x: Array, y: Array, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Loss, gradients by parameter, and next running statistics, in one run of a training step in float64."""
    inputs = {"input": TensorType(dtype_name(x.dtype), (symbol("batch"), *x.shape[1:]))}
    target = TensorType(dtype_name(y.dtype), (symbol("batch"), *y.shape[1:]))
    criterion = loss_of("sparse_categorical_crossentropy")
    task = Task(layer, inputs, target, criterion, (), nn.SGD(0.0), dtype="float64", gradients=True)
    step = training_graph(task)
    values = step.first_values(0) | dict(weights)
    program = aicore.compile(step.graph, "cpu")
    return program.run({**values, "input": x, "target": y})


def weights_of(layer: nn.Layer, x: Array) -> dict[str, Array]:
    from aicore.nn.trace import trace

    inputs = {"input": TensorType(dtype_name(x.dtype), (symbol("batch"), *x.shape[1:]))}
    variables = trace(layer, inputs, training=True, dtype="float64").scope.variables
    return first_values(variables.values(), seed=1)


def compare(layer: nn.Layer, module: Any, names: Mapping[str, str], x: Array, y: Array) -> dict[str, Array]:
    """names: PyTorch's parameter by ours, of the same layout."""
    weights = weights_of(layer, x)
    module.double().train()
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    with torch.no_grad():
        for name, theirs in names.items():
            own[theirs].copy_(torch.from_numpy(weights[name]))
    loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
    loss.backward()
    found = ours(layer, x, y, weights)
    np.testing.assert_allclose(found["loss"], loss.item(), rtol=1e-10)
    for name, theirs in names.items():
        gradient = own[theirs].grad
        if gradient is not None:
            np.testing.assert_allclose(found[f"grad.{name}"], gradient.numpy(), rtol=1e-7, atol=1e-10, err_msg=name)
    return found


def classes(count: int) -> Array:
    return np.random.default_rng(5).integers(0, count, BATCH)


def test_perceptron() -> None:
    layer = nn.Sequential(nn.Dense(16, activation="relu"), nn.Dense(12, activation="tanh"), nn.Dense(4))
    module = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 12), torch.nn.Tanh(), torch.nn.Linear(12, 4)
    )
    places = {"dense": "0", "dense_1": "2", "dense_2": "4"}
    names = {f"{ours}.{p}": f"{theirs}.{p}" for ours, theirs in places.items() for p in ("weight", "bias")}
    compare(layer, module, names, np.random.default_rng(0).normal(size=(BATCH, 6)), classes(4))


def test_convolutions_with_normalisation_and_pooling() -> None:
    layer = nn.Sequential(
        *(nn.Conv2D(6, 3, padding="same"), nn.BatchNormalization(), nn.ReLU(), nn.MaxPool2D(2)),
        *(nn.Conv2D(8, 3, strides=2), nn.BatchNormalization(), nn.ReLU(), nn.AveragePool2D(2), nn.Flatten()),
        nn.Dense(5),
    )
    module = torch.nn.Sequential(
        *(torch.nn.Conv2d(2, 6, 3, padding=1), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Conv2d(6, 8, 3, stride=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AvgPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(8, 5)),
    )
    places = {
        "conv2d": "0",
        "batch_normalization": "1",
        "conv2d_1": "4",
        "batch_normalization_1": "5",
        "dense": "9",
    }
    names = {f"{ours}.{p}": f"{theirs}.{p}" for ours, theirs in places.items() for p in ("weight", "bias")}
    # epsilon: the layers' default may be another one than PyTorch's
    for theirs in ("1", "5"):
        module.get_submodule(theirs).eps = nn.BatchNormalization().epsilon
    compare(layer, module, names, np.random.default_rng(1).normal(size=(BATCH, 2, 12, 12)), classes(5))


def test_lstm() -> None:
    """ONNX's order of gates is input, output, forget, cell; PyTorch's is input, forget, cell, output."""

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 5, batch_first=True)
            self.last = torch.nn.Linear(5, 4)

        def forward(self, x: Any) -> Any:
            return self.last(self.lstm(x)[0][:, -1])

    layer = nn.Sequential(nn.LSTM(5), nn.Dense(4))
    x, y = np.random.default_rng(2).normal(size=(BATCH, 6, 3)), classes(4)
    weights = weights_of(layer, x)
    module = Network().double()

    def reordered(packed: Array) -> Array:
        i, o, f, c = np.split(packed, 4)
        return np.concatenate([i, f, c, o])

    w, r, b = (weights[f"lstm.{name}"] for name in ("weight", "recurrent_weight", "bias"))
    with torch.no_grad():
        module.lstm.weight_ih_l0.copy_(torch.from_numpy(reordered(w[0])))
        module.lstm.weight_hh_l0.copy_(torch.from_numpy(reordered(r[0])))
        module.lstm.bias_ih_l0.copy_(torch.from_numpy(reordered(b[0, :20])))
        module.lstm.bias_hh_l0.copy_(torch.from_numpy(reordered(b[0, 20:])))
        module.last.weight.copy_(torch.from_numpy(weights["dense.weight"]))
        module.last.bias.copy_(torch.from_numpy(weights["dense.bias"]))
    loss = torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
    loss.backward()
    found = ours(layer, x, y, weights)
    np.testing.assert_allclose(found["loss"], loss.item(), rtol=1e-10)
    checked = {
        "weight_ih_l0": found["grad.lstm.weight"][0],
        "weight_hh_l0": found["grad.lstm.recurrent_weight"][0],
        "bias_ih_l0": found["grad.lstm.bias"][0, :20],
        "bias_hh_l0": found["grad.lstm.bias"][0, 20:],
    }
    for name, gradient in checked.items():
        theirs = getattr(module.lstm, name).grad.numpy()
        np.testing.assert_allclose(reordered(gradient), theirs, rtol=1e-7, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder(norm_first: bool) -> None:
    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.block = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=norm_first)
            self.last = torch.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.last(self.block(x).mean(dim=1))

    block = nn.TransformerEncoderLayer(2, 16, dropout=0.0, norm_first=norm_first)
    layer = nn.Sequential(block, nn.Permute((2, 1)), nn.GlobalAveragePool1D(), nn.Dense(4))
    x = np.random.default_rng(3).normal(size=(BATCH, 5, 8))
    weights = weights_of(layer, x)
    names = {name: name.replace("transformer_encoder_layer", "block").replace("dense", "last") for name in weights}
    compare(layer, Network(), names, x, classes(4))
