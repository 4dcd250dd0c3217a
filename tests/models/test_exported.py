"""Small networks exported from PyTorch, with symbolic batch and length; the files need no PyTorch."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import aicore
from aicore.ir import symbol
from tools.export_models import FOLDER, MODELS, tokens

Array = np.ndarray[Any, Any]

RELATIVE_BOUND = 1e-4
SIZES = ((1, 9), (4, 33))
ORDER = (0, 1, 0, 1)


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.onnx"


def relative_difference(ours: Array, theirs: Array) -> float:
    return float(np.linalg.norm((ours.astype(np.float64) - theirs).ravel()) / np.linalg.norm(theirs.ravel()))


@cache
def _theirs(path: Path, size: int) -> Array:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    result: Array = session.run(None, {"tokens": tokens(*SIZES[size])})[0]
    return result


def _check(path: Path, **options: Any) -> None:
    program = aicore.compile(path, fallback="error", **options)
    assert program.inputs["tokens"].shape == (symbol("batch"), symbol("length"))
    for size in ORDER:
        y = program(tokens=tokens(*SIZES[size]))["y"]
        expected = _theirs(path, size)
        assert y.dtype == np.float32
        assert y.shape == expected.shape
        assert float(np.std(expected)) > 0.05
        assert relative_difference(y, expected) < RELATIVE_BOUND


@pytest.mark.parametrize("target", ["cpu", "fake"])
@pytest.mark.parametrize("name", list(MODELS))
def test_agrees_with_onnxruntime(name: str, target: str) -> None:
    _check(path_of(name), target=target)


@pytest.mark.parametrize("name", list(MODELS))
def test_unoptimised_gives_the_same_numbers(name: str) -> None:
    _check(path_of(name), target="cpu", optimize=False)


@pytest.mark.parametrize("name", list(MODELS))
def test_files_are_small_and_tell_nothing_of_the_machine_that_wrote_them(name: str) -> None:
    content = path_of(name).read_bytes()
    assert len(content) < 300_000
    for trace in (b".py", b"site-packages", b"/home/", b"stack_trace"):
        assert trace not in content


@pytest.mark.parametrize("size", [0, 1])
def test_classifier_in_float64(size: int) -> None:
    """The forward pass written out, with the weights of the file."""
    model = onnx.load(path_of("torch_lstm_classifier"))
    weights = {i.name: numpy_helper.to_array(i).astype(np.float64) for i in model.graph.initializer}
    layers = [[weights[name] for name in node.input[1:4]] for node in model.graph.node if node.op_type == "LSTM"]
    assert len(layers) == 2
    ids = tokens(*SIZES[size])
    x = weights["embedding.weight"][ids].swapaxes(0, 1)
    last: list[Array] = []
    for layer in layers:
        both = [_lstm(x[::step], *(a[k] for a in layer)) for k, step in ((0, 1), (1, -1))]
        last = [h for _, h in both]
        x = np.concatenate([both[0][0], both[1][0][::-1]], axis=2)
    joined = np.concatenate([x.mean(axis=0), *last], axis=1)
    expected = np.maximum(joined, 0) @ weights["scores.weight"].T + weights["scores.bias"]
    y = aicore.compile(path_of("torch_lstm_classifier"), target="cpu")(tokens=ids)["y"]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def _lstm(x: Array, w: Array, r: Array, b: Array) -> tuple[Array, Array]:
    """Every step's h, and the last one; gates in the order input, output, forget, cell."""
    h = c = np.zeros((x.shape[1], r.shape[1]))
    wb, rb = np.split(b, 2)
    found = []
    for step in x:
        i, o, f, g = np.split(step @ w.T + h @ r.T + wb + rb, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        found.append(h)
    return np.stack(found), h


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


IN_TORCH = """
import sys, numpy as np, torch
from tools.export_models import build, tokens
name, path, batch, length = sys.argv[1:]
with torch.no_grad():
    np.save(path, build(name).double()(torch.from_numpy(tokens(int(batch), int(length)))).numpy())
"""
HAS_TORCH = all(importlib.util.find_spec(package) for package in ("torch", "onnxscript"))


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch and onnxscript are not installed: the committed files are tested")
@pytest.mark.slow
def test_exported_anew_they_still_run(tmp_path: Path) -> None:
    """By the PyTorch that is installed, which may write other nodes; and PyTorch itself gives the same numbers."""
    _python("-m", "tools.export_models", str(tmp_path))
    for name in MODELS:
        _check(tmp_path / f"{name}.onnx", target="cpu")
        program = aicore.compile(path_of(name), target="cpu")
        for batch, length in SIZES:
            path = tmp_path / f"{name}-{batch}.npy"
            _python("-c", IN_TORCH, name, str(path), str(batch), str(length))
            expected = np.load(path)
            assert expected.dtype == np.float64
            assert relative_difference(program(tokens=tokens(batch, length))["y"], expected) < RELATIVE_BOUND


def _python(*arguments: str) -> None:
    """In a process of its own: PyTorch's warnings are not ours."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=FOLDER.parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
