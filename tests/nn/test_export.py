"""Trained models as ONNX files: another runtime gives the same outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aicore import nn
from aicore.ir import parse_graph, print_graph, text_constants
from aicore.nn.trajectories import sample_trajectories
from aicore.ops import CORE

onnxruntime = pytest.importorskip("onnxruntime")

LAYERS: dict[str, tuple[nn.Layer, tuple[int, ...]]] = {
    "perceptron": (nn.Sequential(nn.Dense(6, activation="gelu"), nn.Dropout(0.5), nn.Dense(3)), (4,)),
    "convolutions": (
        nn.Sequential(
            *(nn.Conv2D(4, 3, padding="same"), nn.BatchNormalization(), nn.ReLU(), nn.MaxPool2D(2)),
            *(nn.Conv2D(6, 3, strides=2, padding="same"), nn.SiLU(), nn.GlobalAveragePool2D(), nn.Dense(3)),
        ),
        (2, 9, 9),
    ),
    "upwards": (
        nn.Sequential(nn.ConvTranspose2D(3, 3, strides=2), nn.LeakyReLU(), nn.Flatten(), nn.Dense(3)),
        (2, 4, 4),
    ),
    "rnn": (nn.Sequential(nn.RNN(5, return_sequences=True), nn.GRU(5, bidirectional=True), nn.Dense(3)), (6, 2)),
    "lstm": (nn.Sequential(nn.LSTM(5), nn.Dense(3)), (6, 2)),
    "transformer": (
        nn.Sequential(nn.TransformerEncoderLayer(2, 12, causal=True), nn.Flatten(), nn.Dense(3)),
        (5, 8),
    ),
    "normalised": (nn.Sequential(nn.RMSNormalization(), nn.LayerNormalization(), nn.Dense(3)), (7,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_trained_model_runs_in_onnxruntime(name: str, tmp_path: Path) -> None:
    layer, shape = LAYERS[name]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, *shape)).astype(np.float32), rng.integers(0, 3, 12)
    model = nn.Model(layer, target="cpu").compile(nn.Adam(1e-2), "sparse_categorical_crossentropy")
    model.fit(x, y, epochs=2, batch_size=6, verbose=False)
    model.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": x})
    np.testing.assert_allclose(found, model.predict(x), rtol=2e-5, atol=2e-6)


def test_embeddings_take_integers(tmp_path: Path) -> None:
    model = nn.Model(nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Dense(2)), target="cpu")
    x = np.random.default_rng(0).integers(0, 10, (6, 3))
    expected = model.predict(x)
    model.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"input": x})[0], expected, rtol=1e-5, atol=1e-6)


def test_training_steps_print_and_parse_back() -> None:
    for step in sample_trajectories(steps=1):
        text = print_graph(step.graph)
        assert print_graph(parse_graph(text, CORE, text_constants(step.graph))) == text
