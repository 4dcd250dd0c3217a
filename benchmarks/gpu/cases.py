"""One-op graphs for kernels that the memory bounds, GEMM sizes, and the convolutions of ResNet-50."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.ir import Builder, Graph, TensorType, Value
from aicore.ops.convolution import Conv
from aicore.ops.layout import ChannelsLast

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

MEGABYTE = 1 << 20
LARGEST_BYTES = 256 * MEGABYTE
ROWS, COLUMNS = 8192, 8192
"""256 MB of float32."""


@dataclass(frozen=True)
class Case:
    """An op on operands of these shapes, all float32 and all inputs of the graph."""

    name: str
    shapes: tuple[Shape, ...]
    apply: Callable[..., Value]

    def graph(self) -> Graph:
        op = Builder()
        operands = [op.input(f"x{i}", "float32", shape) for i, shape in enumerate(self.shapes)]
        return op.graph(operands, {"y": self.apply(op, *operands)})


MEMORY_BOUND: tuple[Case, ...] = (
    Case("Add", ((ROWS, COLUMNS),) * 2, lambda op, x, y: op.Add(x, y)),
    Case("Relu", ((ROWS, COLUMNS),), lambda op, x: op.Relu(x)),
    Case("Mul by a row", ((ROWS, COLUMNS), (COLUMNS,)), lambda op, x, y: op.Mul(x, y)),
    Case("Mul by a column", ((ROWS, COLUMNS), (ROWS, 1)), lambda op, x, y: op.Mul(x, y)),
    Case("Softmax of rows of 1024", ((65536, 1024),), lambda op, x: op.Softmax(x, axis=-1)),
    Case("Softmax of rows of 8192", ((ROWS, COLUMNS),), lambda op, x: op.Softmax(x, axis=-1)),
    Case(
        "LayerNormalization of rows of 1024",
        ((65536, 1024), (1024,), (1024,)),
        lambda op, x, scale, bias: op.LayerNormalization(x, scale, bias, axis=-1),
    ),
    Case("Transpose 4096x8192", ((4096, 8192),), lambda op, x: op.Transpose(x, perm=(1, 0))),
    Case("Transpose 8192x8192", ((ROWS, COLUMNS),), lambda op, x: op.Transpose(x, perm=(1, 0))),
    Case("Transpose 4-D 0213", ((64, 1024, 16, 64),), lambda op, x: op.Transpose(x, perm=(0, 2, 1, 3))),
    Case("Transpose 4-D to channels last", ((64, 256, 64, 64),), lambda op, x: op.Transpose(x, perm=(0, 2, 3, 1))),
    Case("ReduceSum of rows", ((ROWS, COLUMNS),), lambda op, x: op.ReduceSum(x, axes=(1,), keepdims=False)),
    Case("ReduceSum of columns", ((ROWS, COLUMNS),), lambda op, x: op.ReduceSum(x, axes=(0,), keepdims=False)),
    Case("Concat of rows", ((ROWS // 2, COLUMNS),) * 2, lambda op, x, y: op.Concat(x, y, axis=0)),
    Case("Concat of columns", ((ROWS, COLUMNS // 2),) * 2, lambda op, x, y: op.Concat(x, y, axis=1)),
)
GEMM_SIZES = (1024, 2048, 4096)


def moved_bytes(graph: Graph) -> int:
    """What a perfect kernel reads and writes: each input and each output once."""
    values = [*graph.inputs, *(value for _, value in graph.outputs)]
    return sum(_bytes(value.type) for value in values)


def _bytes(tensor: TensorType) -> int:
    return int(np.prod(tensor.static_shape, dtype=np.int64)) * np.dtype(tensor.dtype).itemsize


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Seeded normal float32 numbers for all inputs."""
    rng = np.random.default_rng(seed)
    return {v.name: rng.standard_normal(v.type.static_shape, np.float32) for v in graph.inputs}


@dataclass(frozen=True)
class ConvLayer:
    """A square convolution without bias on a square image, padded by half its size."""

    channels: int
    image: int
    filters: int
    size: int
    stride: int

    def __str__(self) -> str:
        return f"{self.size}x{self.size}/{self.stride} {self.channels}->{self.filters} on {self.image}x{self.image}"

    @property
    def pad(self) -> int:
        return self.size // 2

    @property
    def multiplications(self) -> int:
        """Of one image; half its floating-point operations."""
        positions = (self.image // self.stride) ** 2
        return positions * self.filters * self.channels * self.size**2

    def weights(self) -> Array:
        """Seeded, in ONNX's order."""
        shape = (self.filters, self.channels, self.size, self.size)
        return np.random.default_rng(0).standard_normal(shape, np.float32) / np.float32(self.size * self.channels**0.5)

    def graph(self, batch: int) -> Graph:
        """The layer on images whose channels come last, as inside of networks; the weights are a constant."""
        op = Builder()
        x = op.input("x", "float32", (batch, self.image, self.image, self.channels))
        convolution = Conv(pads=(self.pad,) * 4, strides=(self.stride,) * 2)
        y = op.apply(ChannelsLast(convolution), x, op.constant(self.weights(), "w"))
        return op.graph([x], {"y": y})


def resnet50_layers() -> Counter[ConvLayer]:
    """The convolutions of ResNet-50 at 224x224, and how often each occurs; the stride is on the 3x3."""
    layers = Counter([ConvLayer(3, 224, 64, 7, 2)])
    channels, image = 64, 56
    for stage, depth in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for index in range(depth):
            stride = 2 if stage and not index else 1
            smaller = image // stride
            layers[ConvLayer(channels, image, width, 1, 1)] += 1
            layers[ConvLayer(width, image, width, 3, stride)] += 1
            layers[ConvLayer(width, smaller, 4 * width, 1, 1)] += 1
            if not index:
                layers[ConvLayer(channels, image, 4 * width, 1, stride)] += 1
            channels, image = 4 * width, smaller
    return layers


def chain(length: int) -> Graph:
    """A chain of small nodes of which none can be fused with another, and none is worth its launch."""
    op = Builder()
    x = op.input("x", "float32", (8, 64))
    y = x
    for index in range(length):
        y = op.Softmax(y, axis=index % 2)
    return op.graph([x], {"y": y})
