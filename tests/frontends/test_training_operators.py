"""The optimisers of the preview training domain against float64 arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from aicore.errors import ModelError
from aicore.frontends.onnx import load_model
from tests.frontends.models import FLOAT, INT64, run, tensor

DOMAIN = "ai.onnx.preview.training"
RNG = np.random.default_rng(5)
SHAPES = {"1": (3,), "2": (2, 2)}


def optimiser(kind: str, roles: str, **attributes: Any) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of one node that updates two tensors, and numbers for its operands."""
    names = [f"{role}{number}" for role in roles for number in SHAPES]
    results = [f"{name}_new" for name in names if name[0] != "g"]
    made = helper.make_node(kind, ["rate", "step", *names], results, name="opt", domain=DOMAIN, **attributes)
    inputs = [tensor("rate", FLOAT, []), tensor("step", INT64, [])]
    inputs += [tensor(name, FLOAT, SHAPES[name[1]]) for name in names]
    graph = helper.make_graph([made], "training", inputs, [onnx.ValueInfoProto(name=name) for name in results])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(DOMAIN, 1)], ir_version=8)
    feeds = {name: np.abs(RNG.normal(size=SHAPES[name[1]])).astype(np.float32) for name in names}
    return model, {"rate": np.float32(0.1), **feeds}


def agree(outputs: list[Any], wanted: list[Any]) -> None:
    for output, expected in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-5)


@pytest.mark.parametrize("step", [0, 4])
def test_adagrad(step: int) -> None:
    model, feeds = optimiser("Adagrad", "xgh", decay_factor=0.5, epsilon=0.01, norm_coefficient=0.2)
    outputs = run(model, step=np.array(step), **feeds)
    rate = 0.1 / (1 + 0.5 * step)
    gradients = [feeds[f"g{i}"] + 0.2 * feeds[f"x{i}"].astype(np.float64) for i in SHAPES]
    squares = [feeds[f"h{i}"] + g * g for i, g in zip(SHAPES, gradients, strict=True)]
    moved = [
        feeds[f"x{i}"] - rate * g / (np.sqrt(s) + 0.01) for i, g, s in zip(SHAPES, gradients, squares, strict=True)
    ]
    agree(outputs, [*moved, *squares])


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("step", [0, 4])
def test_momentum(mode: str, step: int) -> None:
    model, feeds = optimiser("Momentum", "xgv", alpha=0.9, beta=0.7, norm_coefficient=0.2, mode=mode)
    outputs = run(model, step=np.array(step), **feeds)
    gradients = [feeds[f"g{i}"] + 0.2 * feeds[f"x{i}"].astype(np.float64) for i in SHAPES]
    beta = 0.7 if step > 0 else 1.0
    velocities = [0.9 * feeds[f"v{i}"] + beta * g for i, g in zip(SHAPES, gradients, strict=True)]
    steps = [v if mode == "standard" else g + 0.9 * v for g, v in zip(gradients, velocities, strict=True)]
    agree(outputs, [*(feeds[f"x{i}"] - 0.1 * s for i, s in zip(SHAPES, steps, strict=True)), *velocities])


@pytest.mark.parametrize("step", [0, 4])
def test_adam(step: int) -> None:
    options = {"alpha": 0.8, "beta": 0.95, "epsilon": 0.01, "norm_coefficient": 0.2, "norm_coefficient_post": 0.05}
    model, feeds = optimiser("Adam", "xgvh", **options)
    outputs = run(model, step=np.array(step), **feeds)
    rate = 0.1 * np.sqrt(1 - 0.95**step) / (1 - 0.8**step) if step else 0.1
    gradients = [feeds[f"g{i}"] + 0.2 * feeds[f"x{i}"].astype(np.float64) for i in SHAPES]
    means = [0.8 * feeds[f"v{i}"] + 0.2 * g for i, g in zip(SHAPES, gradients, strict=True)]
    squares = [0.95 * feeds[f"h{i}"] + 0.05 * g * g for i, g in zip(SHAPES, gradients, strict=True)]
    moved = [
        0.95 * (feeds[f"x{i}"] - rate * m / (np.sqrt(s) + 0.01)) for i, m, s in zip(SHAPES, means, squares, strict=True)
    ]
    for output, expected in zip(outputs, [*moved, *means, *squares], strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-4)


def test_an_unknown_mode() -> None:
    model, _ = optimiser("Momentum", "xgv", alpha=0.9, beta=0.7, norm_coefficient=0.0, mode="odd")
    with pytest.raises(ModelError, match="Momentum 'opt': mode 'odd' is neither 'standard' nor 'nesterov'"):
        load_model(model)


def test_operands_that_cannot_be_grouped() -> None:
    model, _ = optimiser("Adagrad", "xgh")
    del model.graph.node[0].input[-1]
    with pytest.raises(ModelError, match="Adagrad 'opt': 5 operands are no multiple of 3"):
        load_model(model)
