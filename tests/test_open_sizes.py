"""While sizes are open, fusions are decided for typical ones; the concrete graph takes back what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np

import aicore
from aicore.ir import Builder, Graph
from aicore.plugins import PluginRegistry

CHANNELS = 4


def test_fuses_while_sizes_are_open(registry: PluginRegistry) -> None:
    program = aicore.compile(_conv_relu(), target="cpu", registry=registry)
    assert [type(node.op).__name__ for node in program.graph.nodes] == ["ConvAct"]
    for height, width in ((5, 7), (1, 1), (9, 2)):
        x = np.linspace(-1, 1, CHANNELS * height * width, dtype=np.float32).reshape(1, CHANNELS, height, width)
        np.testing.assert_array_equal(program(x=x)["y"], np.maximum(x, 0))


def test_takes_a_fusion_back_where_the_residual_broadcasts(registry: PluginRegistry) -> None:
    """relu(conv(x) + r) with r of another batch: in place only if the two batches are equal, which no type says."""
    program = aicore.compile(_conv_residual(), target="cpu", registry=registry)
    x = np.linspace(-1, 1, 3 * CHANNELS * 6, dtype=np.float32).reshape(3, CHANNELS, 2, 3)
    for batch in (3, 1):
        residual = np.linspace(-2, 2, batch * CHANNELS * 6, dtype=np.float32).reshape(batch, CHANNELS, 2, 3)
        got = program(x=x, residual=residual)["y"]
        np.testing.assert_allclose(got, np.maximum(x + residual, 0), rtol=1e-6)


def _identity_weight(op: Builder) -> Any:
    return op.constant(np.eye(CHANNELS, dtype=np.float32).reshape(CHANNELS, CHANNELS, 1, 1))


def _conv_relu() -> Graph:
    op = Builder()
    x = op.input("x", "float32", ("batch", CHANNELS, "height", "width"))
    return op.graph([x], {"y": op.Relu(op.Conv(x, _identity_weight(op)))})


def _conv_residual() -> Graph:
    op = Builder()
    x = op.input("x", "float32", ("batch", CHANNELS, "height", "width"))
    residual = op.input("residual", "float32", ("other", CHANNELS, "height", "width"))
    return op.graph([x, residual], {"y": op.Relu(op.Add(op.Conv(x, _identity_weight(op)), residual))})
