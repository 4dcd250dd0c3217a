"""What holds of every layer: text, equality, names, gradients by finite differences, open batch sizes, import."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import TensorType, Value, symbol
from aicore.nn import Sequential
from aicore.nn import layers as nn
from aicore.nn.initializers import Ones
from aicore.nn.layer import Layer
from aicore.nn.scope import Scope, snake_case
from aicore.nn.trace import trace
from tests.nn.built import Built, built

RNG = np.random.default_rng(0)
IMAGES, ROWS, SERIES = (RNG.standard_normal(shape) for shape in ((3, 4, 6, 6), (3, 4), (3, 5, 4)))
IDS = RNG.integers(0, 7, (3, 5))


def flipped(op: Any, x: Any) -> Any:
    return op.Neg(x)


@dataclass(frozen=True)
class Scaled(Layer):
    """x * weight, with a number for each element of a sample."""

    name: str = ""

    def build(self, scope: Scope, x: Value) -> Any:
        return scope.op.Mul(x, scope.parameter("weight", x.type.shape[1:], Ones()))


EXAMPLES: dict[str, tuple[Any, Any]] = {
    "Activation": (nn.Activation("gelu"), ROWS),
    "Apply": (nn.Apply(flipped), ROWS),
    "AveragePool1D": (nn.AveragePool1D(2), SERIES),
    "AveragePool2D": (nn.AveragePool2D(3, 2, "same"), IMAGES),
    "BatchNormalization": (nn.BatchNormalization(), IMAGES),
    "Conv1D": (nn.Conv1D(4, 3, padding="same"), SERIES),
    "Conv2D": (nn.Conv2D(4, 3, 2, groups=2), IMAGES),
    "ConvTranspose1D": (nn.ConvTranspose1D(4, 3, 2), SERIES),
    "ConvTranspose2D": (nn.ConvTranspose2D(4, 3, 2, "same"), IMAGES),
    "Dense": (nn.Dense(5, "tanh"), ROWS),
    "Dropout": (nn.Dropout(0.3), ROWS),
    "Embedding": (nn.Embedding(7, 3), IDS),
    "Flatten": (nn.Flatten(), IMAGES),
    "GRU": (nn.GRU(3, bidirectional=True), SERIES),
    "GlobalAveragePool1D": (nn.GlobalAveragePool1D(), SERIES),
    "GlobalAveragePool2D": (nn.GlobalAveragePool2D(), IMAGES),
    "GlobalMaxPool1D": (nn.GlobalMaxPool1D(), SERIES),
    "GlobalMaxPool2D": (nn.GlobalMaxPool2D(), IMAGES),
    "GroupNormalization": (nn.GroupNormalization(2), IMAGES),
    "LSTM": (nn.LSTM(3, return_sequences=True), SERIES),
    "LayerNormalization": (nn.LayerNormalization(), SERIES),
    "MaxPool1D": (nn.MaxPool1D(2), SERIES),
    "MaxPool2D": (nn.MaxPool2D(3, 2, 1), IMAGES),
    "MultiHeadAttention": (nn.MultiHeadAttention(2, causal=True, dropout=0.2), SERIES),
    "PReLU": (nn.PReLU(), IMAGES),
    "Permute": (nn.Permute((2, 1)), SERIES),
    "RMSNormalization": (nn.RMSNormalization(), SERIES),
    "RNN": (nn.RNN(3, return_sequences=True), SERIES),
    "Reshape": (nn.Reshape((2, 10)), SERIES),
    "Residual": (nn.Residual(nn.Dense(4, "tanh")), ROWS),
    "TransformerEncoderLayer": (nn.TransformerEncoderLayer(2, 6), SERIES),
    "UpSample2D": (nn.UpSample2D(), IMAGES),
    "ZeroPad2D": (nn.ZeroPad2D(), IMAGES),
    **{name: (getattr(nn, name)(), ROWS) for name in nn.HOMES if nn.HOMES[name].endswith("activations")
       and isinstance(getattr(nn, name), type) and name not in ("Activation", "PReLU")},
}  # fmt: skip
SEVERAL_INPUTS = {"Add", "Concatenate", "Conditional", "Multiply"}
ALIASES = {"ACTIVATIONS", "AvgPool2D", "SimpleRNN"}


def test_there_is_an_example_of_each() -> None:
    assert set(EXAMPLES) | SEVERAL_INPUTS | ALIASES == set(nn.HOMES) == set(nn.__all__)


@pytest.mark.parametrize("name", EXAMPLES)
def test_they_compare_print_and_stay(name: str) -> None:
    layer = EXAMPLES[name][0]
    values = {field.name: getattr(layer, field.name) for field in fields(layer)}
    twin = type(layer)(**values)
    assert (twin, hash(twin)) == (layer, hash(layer))
    other = type(layer)(**{**values, "name": "another"})
    assert other != layer
    assert "another" in repr(other)
    with pytest.raises(FrozenInstanceError):
        layer.name = "renamed"
    if name != "Apply":
        assert eval(repr(layer), vars(nn) | _names_of(layer)) == layer


def _names_of(layer: Layer) -> dict[str, Any]:
    """What texts of layers refer to."""
    from aicore.nn import initializers

    return {**{name: getattr(nn, name) for name in nn.__all__}, **vars(initializers)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_field_is_documented(name: str) -> None:
    """In the layer's own docstring, or in that of a layer to which it refers."""
    shown, waiting = {name: ""}, [name]
    while waiting:
        current = waiting.pop()
        shown[current] = str(getattr(nn, current).__doc__)
        named = re.findall(r"\b(?:see|of|in|and|as) (\w+)", shown[current], re.IGNORECASE)
        waiting += [other for other in nn.__all__ if other in named and other not in shown]
    texts = " ".join(shown.values())
    assert [f.name for f in fields(EXAMPLES[name][0]) if f.name != "name" and f.name not in texts] == []


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_batch_stays_open(name: str, training: bool) -> None:
    layer, x = EXAMPLES[name]
    found = built(layer, x, training=training)
    (value,) = found.traced.outputs.values()
    assert value.shape is not None
    assert value.shape[0] == symbol("batch")
    assert all(isinstance(dim, int) for dim in value.shape[1:])


@pytest.mark.parametrize("name", EXAMPLES)
def test_gradients_by_finite_differences(name: str) -> None:
    """Along one random direction of all parameters at once, in float64; each parameter gets one."""
    layer, x = EXAMPLES[name]
    whole = layer if name == "Embedding" else Sequential(Scaled(), layer)  # so that the input has a gradient too
    first = built(whole, x, training=True, dtype="float64")
    weights = {n: RNG.standard_normal(s) * 0.6 + 0.3 for n, s in first.shapes.items()}
    trainable = [n for n, v in first.traced.scope.variables.items() if v.trainable]
    direction = {n: RNG.standard_normal(first.shapes[n]) for n in trainable}

    def loss(step: float) -> float:
        moved = {n: w + step * direction[n] if n in direction else w for n, w in weights.items()}
        found = built(whole, x, training=True, dtype="float64").run(moved)
        return float(np.sin(found["output"]).sum())

    gradients = built(whole, x, training=True, dtype="float64").gradients(weights)
    assert set(gradients) == set(trainable)
    slope = sum(float((gradients[n] * direction[n]).sum()) for n in trainable)
    step = 1e-5
    numeric = (loss(step) - loss(-step)) / (2 * step)
    assert abs(slope - numeric) <= 1e-5 * max(1.0, abs(numeric))
    reached = {n: float(np.abs(g).max()) for n, g in gradients.items()}
    assert all(size > 0 for size in reached.values()), reached


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Conv2D", "conv2d"),
        ("MaxPool2D", "max_pool2d"),
        ("BatchNormalization", "batch_normalization"),
        ("RMSNormalization", "rms_normalization"),
        ("LSTM", "lstm"),
        ("ReLU", "relu"),
        ("LeakyReLU", "leaky_relu"),
        ("GlobalAveragePool2D", "global_average_pool2d"),
        ("TransformerEncoderLayer", "transformer_encoder_layer"),
    ],
)
def test_names_in_parameters(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_numbers_of_repeated_layers() -> None:
    whole = built(Sequential(nn.Dense(4), nn.Dense(4), nn.Dense(2, name="head")), ROWS)
    assert list(whole.shapes) == [
        "dense.weight", "dense.bias", "dense_1.weight", "dense_1.bias", "head.weight", "head.bias",
    ]  # fmt: skip


def test_a_network_counts_as_its_parts() -> None:
    layers = (
        nn.Conv2D(8, 3, padding="same", activation="relu"),
        nn.BatchNormalization(),
        nn.MaxPool2D(),
        nn.Flatten(),
        nn.Dense(10),
    )
    found = built(Sequential(*layers), IMAGES, training=True)
    assert found.count == (8 * 4 * 9 + 8) + 2 * 8 + (8 * 3 * 3 * 10 + 10)
    assert found.run()["output"].shape == (3, 10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(dtype: str) -> None:
    whole = Sequential(
        nn.Conv2D(4, 3, activation="relu"), nn.BatchNormalization(), nn.GlobalAveragePool2D(), nn.Dense(2)
    )
    scope = Scope(aicore.ir.Builder(), training=True, dtype=dtype)
    assert scope.dtype == dtype
    traced = trace(whole, {"x": TensorType(dtype, (symbol("batch"), 4, 6, 6))}, training=True, dtype=dtype)
    assert traced.outputs["output"].dtype == dtype
    found = Built(traced, (IMAGES.astype(aicore.ir.numpy_dtype(dtype)),)).run()
    wide = built(whole, IMAGES, training=True, dtype="float64").run()
    np.testing.assert_allclose(found["output"].astype(np.float64), wide["output"], atol=0.1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_export(name: str) -> None:
    """The model as it is used gives the same numbers in another runtime."""
    import onnxruntime

    from aicore.frontends.onnx import export_model
    from aicore.nn.step import prediction_graph

    layer, x = EXAMPLES[name]
    found = built(layer, x)
    (array,) = found.arrays
    types = {"x": TensorType(aicore.ir.dtype_name(array.dtype), (symbol("batch"), *array.shape[1:]))}
    model = export_model(prediction_graph(layer, types, values=found.initial()))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": array})
    np.testing.assert_allclose(y, found.run()["output"], rtol=1e-4, atol=1e-5)


def test_importing_layers_loads_no_model_and_no_plugin() -> None:
    code = (
        "import sys; from aicore.nn.layers import Dense; "
        "sys.exit(any(m in sys.modules for m in ('aicore.nn.model', 'aicore.plugins', 'onnx')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
