"""What tests of this plugin share: a small network with everything that quantisation has a rule for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Graph, Origin, Value
from aicore.ops.convolution import Conv
from aicore_int8_quant.passes import fuse

Array = np.ndarray[Any, Any]


class Network:
    """Builds layers with seeded weights."""

    def __init__(self, seed: int = 0) -> None:
        self.op = Builder()
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        return (scale * self._rng.standard_normal(shape)).astype(np.float32)

    def constant(self, array: Array, name: str) -> Value:
        return self.op.constant(array, name)

    def conv(self, x: Value, channels: int, kernel: int = 3, name: str = "conv", **attributes: Any) -> Value:
        assert x.shape is not None
        into = x.shape[1]
        assert isinstance(into, int)
        w = self.normal(channels, into, kernel, kernel, scale=(2 / (into * kernel * kernel)) ** 0.5)
        pads = (kernel // 2,) * 4
        operands = (x, self.constant(w, f"{name}_w"), self.constant(self.normal(channels, scale=0.1), f"{name}_b"))
        y: Value = self.op.apply(Conv(pads=pads, **attributes), *operands, names=[name], origin=Origin(name))
        return y


def residual_network() -> Graph:
    """Residual blocks, a downsampled one, MaxPool, Concat with a sigmoid, pooling, Gemm, MatMul with a bias."""
    net = Network()
    op = net.op
    x = op.input("x", "float32", ("n", 3, 16, 16))
    a = op.Relu(net.conv(x, 8, name="stem"))
    b = net.conv(op.Relu(net.conv(a, 8, name="block1a")), 8, name="block1b")
    a = op.Relu(op.Add(b, a))
    short = net.conv(a, 16, 1, name="short", strides=(2, 2))
    b = net.conv(op.Relu(net.conv(a, 16, name="block2a", strides=(2, 2))), 16, name="block2b")
    a = op.MaxPool(op.Relu(op.Add(b, short)), kernel_shape=(2, 2), strides=(2, 2))
    a = op.HardSwish(net.conv(a, 16, name="swish"))
    gate = op.Sigmoid(net.conv(a, 16, 1, name="gate"))
    a = net.conv(op.Concat(a, gate, axis=1), 16, name="joined")
    a = op.Flatten(op.GlobalAveragePool(a))
    gemm = op.Gemm(
        a, op.constant(net.normal(24, 16, scale=0.3), "fc1_w"), op.constant(net.normal(24), "fc1_b"), transB=1
    )
    y = op.Add(
        op.MatMul(op.Relu(gemm), op.constant(net.normal(24, 10, scale=0.3), "fc2_w")), op.constant(net.normal(10))
    )
    return op.graph([x], {"y": y})


@pytest.fixture(autouse=True, scope="session")
def int8_everywhere() -> Iterator[None]:
    """Products of such small networks are often faster in floating point, which is not what is tested.

    The tests of the race take the option as it is by default.
    """
    patch = pytest.MonkeyPatch()
    patch.setattr(fuse, "losers", lambda entrants, ctx: frozenset())
    yield
    patch.undo()


@pytest.fixture(scope="session")
def network() -> Graph:
    return residual_network()


@pytest.fixture(scope="session")
def make_network() -> Callable[[], Network]:
    return Network


@pytest.fixture(scope="session")
def batches() -> list[dict[str, Array]]:
    rng = np.random.default_rng(7)
    return [{"x": rng.standard_normal((n, 3, 16, 16)).astype(np.float32)} for n in (4, 1, 3, 4)]
