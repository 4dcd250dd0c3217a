"""A constant that reaches a kernel through an alias has the alias's shape, where kernels bind constants, too."""

from __future__ import annotations

import numpy as np
import pytest

import aicore
from aicore.ir import Builder
from aicore.plugins import PluginRegistry


@pytest.mark.parametrize("target", ["cpu", "fake:0"])
def test_an_index_that_was_squeezed(target: str, registry: PluginRegistry) -> None:
    op = Builder()
    x = op.input("x", "int64", (3,))
    index = op.Squeeze(op.constant(np.array([1])), axes=(0,))
    graph = op.graph([x], {"y": op.Gather(x, index)})
    name = next(device for device in registry.devices() if device.startswith(target.split(":")[0]))
    program = aicore.compile(graph, target=name, optimize=False, registry=registry)
    y = program(x=np.array([4, 5, 6]))["y"]
    assert (y.shape, int(y)) == ((), 5)
