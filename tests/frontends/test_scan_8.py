"""Scan of opset 8, which has a batch axis in front of everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from aicore.errors import ModelError, UnsupportedError
from aicore.frontends.onnx import load_model
from tests.frontends.models import FLOAT, INT64, model, node, run, tensor


def scanned(**attributes: Any) -> onnx.ModelProto:
    """A running sum of the slices, each scaled by a value from outside."""
    body = helper.make_graph(
        [node("Mul", ["x", "k"], ["scaled"]), node("Add", ["s", "scaled"], ["t"]), node("Identity", ["t"], ["each"])],
        "body",
        [tensor("s", FLOAT, [2]), tensor("x", FLOAT, [2])],
        [tensor("t", FLOAT, [2]), tensor("each", FLOAT, [2])],
    )
    nodes = [
        node("Exp", ["z"], ["k"]),
        node("Scan", ["", "first", "rows"], ["y", "all"], name="scan", body=body, num_scan_inputs=1, **attributes),
    ]
    return model(nodes, {"z": [2], "first": [3, 2], "rows": [3, 4, 2]}, ["y", "all"], opset=8)


@pytest.mark.parametrize("backwards", [False, True])
def test_each_batch_is_scanned_on_its_own(backwards: bool) -> None:
    rng = np.random.default_rng(0)
    z, first, rows = (rng.normal(size=shape).astype(np.float32) for shape in [(2,), (3, 2), (3, 4, 2)])
    last, steps = run(scanned(**({"directions": [1]} if backwards else {})), z=z, first=first, rows=rows)
    ordered = rows[:, ::-1] if backwards else rows
    wanted = first[:, None] + np.cumsum(ordered.astype(np.float64) * np.exp(z), axis=1)
    np.testing.assert_allclose(steps, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, wanted[:, -1], rtol=1e-5, atol=1e-6)


def test_sequence_lengths_are_refused() -> None:
    made = scanned()
    made.graph.node[1].input[0] = "lengths"
    made.graph.input.append(tensor("lengths", INT64, [3]))
    with pytest.raises(UnsupportedError, match="Scan 'scan': sequence_lens of opset 8 is not supported"):
        load_model(made)


def test_more_scanned_operands_than_there_are() -> None:
    made = scanned()
    made.graph.node[1].attribute[1].i = 7
    with pytest.raises(ModelError, match="Scan 'scan': has 2 operands, of which 7 are to be scanned"):
        load_model(made)
