"""The benchmark of training steps: networks, bars, and what is a fault. PyTorch is not needed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aicore.ir import TensorType
from aicore.nn.trace import trace
from benchmarks import cuda_training
from benchmarks.training.aicore_step import TrainedModel, data
from benchmarks.training.networks import NETWORKS

MLP_UPDATED = 3 * 4 * 1_863_690 + 8
"""Bytes of the MLP's parameters, their two slots, and the step; the learning rate has 4 more, which no step changes."""


def row(network: str = "mlp", **more: Any) -> dict[str, Any]:
    ratio = {"median": 1.5, "low": 1.4, "high": 1.6}
    ratios = {"eager": {**ratio, "median": 9.0}, "graph": ratio}
    seconds = {"aicore": 1e-4, "eager": 9e-4, "graph": 1.5e-4}
    whole = {"network": network, "batch": 64, "best": "graph", "ratio": ratio, "ratios": ratios, "seconds": seconds}
    return {**whole, "failures": {}, "missed": [], **more}


def slow(median: float) -> dict[str, float]:
    return {"median": median, "low": median, "high": median}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("mlp", 1_863_690), ("small_cnn", 206_970), ("lstm", 397_834), ("resnet18", 11_689_512)],
)
def test_networks_are_those_that_were_measured(name: str, parameters: int) -> None:
    """As PyTorch counts the same ones, with two biases for each gate of an LSTM."""
    network = NETWORKS[name]
    traced = trace(network.layer(), {"input": TensorType("float32", (2, *network.shape))}, training=True)
    trained = [v for v in traced.scope.variables.values() if v.trainable]
    assert sum(math.prod(v.type.static_shape) for v in trained) == parameters
    (output,) = traced.outputs.values()
    assert output.shape == (2, network.classes)


def test_bars() -> None:
    assert cuda_training.missed(row()) == []
    assert "wants 1.2" in cuda_training.missed(row(ratio=slow(1.1)))[0]
    assert "wants 5.0" in cuda_training.missed(row(ratios={"eager": slow(4.9)}))[0]
    assert cuda_training.missed(row("resnet18", ratio=slow(1.01))) == []
    heavy = {"aicore": {"state": 10, "feeds": 5, "graphs": 115, "arena": 60}, "eager": 100}
    assert "1.30 of PyTorch's memory" in cuda_training.missed(row("resnet18", nbytes=heavy))[0]
    assert cuda_training.missed(row("mlp", nbytes=heavy)) == []
    assert cuda_training.missed(row(ratio=slow(0.71)), on_cpu=True) == []
    assert "wants 0.7" in cuda_training.missed(row(ratio=slow(0.6)), on_cpu=True)[0]
    assert cuda_training.missed(row("lstm", ratio=slow(0.1)), on_cpu=True) == []


def test_faults() -> None:
    assert cuda_training.faults(row(loss_difference=1e-5)) == []
    assert "away from PyTorch's" in cuda_training.faults(row(loss_difference=0.1))[0]
    assert "away from PyTorch's" in cuda_training.faults(row(loss_difference=float("nan")))[0]
    assert cuda_training.faults(row(failures={"aicore": "no device"})) == ["mlp b64: no device"]
    assert cuda_training.faults(row(failures={"eager": "no torch"})) == []
    assert cuda_training.faults({"network": "lstm", "batch": 64, "error": "stopped"}) == ["lstm b64: stopped"]


def test_figures_are_written_after_each_network(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked: list[dict[str, Any]] = []

    def measured(request: dict[str, Any], limit: float, module: str) -> tuple[str, list[Any]]:
        asked.append(request)
        return "a GPU", [row(request["network"], loss_difference=1e-6, steps=20, placement="cuda 20/20")]

    monkeypatch.setattr(cuda_training, "measure", measured)
    file = tmp_path / "figures" / "training.json"
    assert cuda_training.main(["--networks", "mlp", "resnet18", "--output", str(file), "--no-compile"]) == 0
    found = json.loads(file.read_text())
    assert [r["network"] for r in found["rows"]] == ["mlp", "resnet18"]
    assert [(r["network"], r["batches"], r["modes"]) for r in asked] == [("mlp", [64], []), ("resnet18", [32], [])]
    assert found["gpu"] == "a GPU"
    assert "cuda 20/20" in capsys.readouterr().out
    cuda_training.main(["--target", "cpu"])
    assert [r["network"] for r in asked[2:]] == list(cuda_training.CPU_NETWORKS)


def test_a_model_trains_on_one_batch() -> None:
    x, y = data("mlp", 8)
    assert (x.shape, y.shape, x.dtype) == ((8, 784), (8,), "float32")
    trained = TrainedModel("mlp", 8, "cpu", threads=1)
    losses = [trained.step() for _ in range(4)]
    assert losses[-1] < losses[0] / 2
    assert trained.nbytes()["state"] == 2 * MLP_UPDATED + 4
    assert trained.nbytes()["feeds"] == x.nbytes + y.nbytes
    assert trained.kernels() > 10


@pytest.mark.parametrize(("keep_previous", "sets"), [(True, 2), (False, 1)])
def test_queued_steps_take_turns_where_there_are_two_sets_of_arrays(
    keep_previous: bool, sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the state of the MLP is written over: one bound program then does for all steps."""
    monkeypatch.setitem(NETWORKS, "mlp", replace(NETWORKS["mlp"], keep_previous=keep_previous))
    queued, stepped = (TrainedModel("mlp", 8, "cpu", threads=1) for _ in range(2))
    call = queued.queue()
    assert len(queued._session._bindings) == sets
    call()
    call()
    for _ in range(4):
        stepped.step()
    for name, array in stepped.model.state_dict().items():
        np.testing.assert_array_equal(queued.model.state_dict()[name], array, err_msg=name)
    assert queued.nbytes()["state"] == sets * MLP_UPDATED + 4
    assert queued.keeps_previous is keep_previous
