"""Biases take off what rounded weights add on average; values derived by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Graph
from aicore.ops.convolution import Conv
from aicore_int8_quant import quantize
from aicore_int8_quant.passes.correction import ChannelMeans

Array = np.ndarray[Any, Any]


def bias_of(graph: Graph, data: Array, **options: Any) -> Array:
    """The first weight's bias as a number."""
    weight = next(iter(quantize(graph, [data], **options).job.weights.values()))
    assert weight.bias is not None
    assert weight.bias_params is not None
    return weight.bias_params.dequantize(weight.bias)


def product(gemm: bool, transposed: bool = False) -> Graph:
    """Weights 127 and 10.4, whose scale is 1: the second is rounded to 10, which loses 0.4."""
    op = Builder()
    x = op.input("x", "float32", ("n", 2))
    w, b = np.float32([[127.0], [10.4]]), op.constant(np.float32([5.0]))
    if gemm:
        y = op.Gemm(x, op.constant(w.T.copy() if transposed else w), b, transB=int(transposed))
    else:
        y = op.Add(op.MatMul(x, op.constant(w)), b)
    return op.graph([x], {"y": y})


DATA = np.float32([[-1, 1], [1, 3]])
"""The second column has the mean 2, and so 0.8 is lost on average."""


@pytest.mark.parametrize(
    "graph", [product(False), product(True), product(True, True)], ids=["MatMul", "Gemm", "transB"]
)
def test_products(graph: Graph) -> None:
    step = 4 / 255  # of the bias: x from -1 to 3, weights in steps of 1
    np.testing.assert_allclose(bias_of(graph, DATA), [5.0], atol=step)
    np.testing.assert_allclose(bias_of(graph, DATA, correct_biases=True), [5.8], atol=step)


def test_convolutions_with_groups() -> None:
    """Two groups of two channels; of each, one has a kernel of 127 and 10.4: only the second such has a mean, of 2."""
    op = Builder()
    x = op.input("x", "float32", ("n", 4, 1, 4))
    w = op.constant(np.float32([[[[127.0, 10.4]], [[0, 0]]]] * 2))
    y = op.apply(Conv(group=2), x, w, op.constant(np.float32([5.0, 5.0])))
    data = np.float32([[[[-1, 1, -1, 1]], [[0] * 4], [[1, 3, 1, 3]], [[0] * 4]]])
    found = bias_of(op.graph([x], {"y": y}), data, correct_biases=True)
    np.testing.assert_allclose(found, [5.0, 5.8], atol=4 / 255)


def test_the_mean_error_goes() -> None:
    rng = np.random.default_rng(0)
    op = Builder()
    x = op.input("x", "float32", ("n", 64))
    w, b = rng.standard_normal((64, 8)).astype(np.float32), op.constant(np.zeros(8, np.float32))
    graph = op.graph([x], {"y": op.Gemm(x, op.constant(w), b)})
    data = rng.random((500, 64)).astype(np.float32)

    def offset(**options: Any) -> float:
        y = quantize(graph, [data], **options).compile("cpu").run({"x": data})["y"]
        return float(np.abs((y - data.astype(np.float64) @ w.astype(np.float64)).mean(0)).max())

    assert offset(correct_biases=True) < 0.2 * offset()


def test_means_over_batches() -> None:
    means = ChannelMeans(1)
    assert means.means.tolist() == [0]
    means.update(np.float32([[1, 2], [3, 4]]))
    means.update(np.float32([[5, np.nan], [7, 6]]))
    assert means.means.tolist() == [4, 3]
