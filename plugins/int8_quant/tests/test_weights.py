"""Weights and biases as integers, channel axes, and sums that must fit in 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Graph
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.quantization import DequantizeLinear
from aicore.ops.softmax import Softmax
from aicore_int8_quant import QuantizationError, quantize
from aicore_int8_quant.linear_nodes import channel_axis, check_channel_axis

Array = np.ndarray[Any, Any]


def gemm(w: Array, b: Array) -> Graph:
    op = Builder()
    x = op.input("x", "float32", ("n", w.shape[0]))
    return op.graph([x], {"y": op.Gemm(x, op.constant(w), op.constant(b))})


def data(k: int, scale: float = 1.0) -> list[Array]:
    return [(np.random.default_rng(0).standard_normal((8, k)) * scale).astype(np.float32)]


@pytest.mark.parametrize(
    ("op", "rank", "axis"),
    [
        (Conv(), 4, 0),
        (ConvTranspose(), 4, 1),
        (Gemm(), 2, 1),
        (Gemm(transB=1), 2, 0),
        (MatMul(), 2, 1),
        (MatMul(), 3, 2),
    ],
)
def test_channel_axes(op: Any, rank: int, axis: int) -> None:
    assert channel_axis(op, rank) == axis
    check_channel_axis(op, rank, axis)
    check_channel_axis(op, rank, axis - rank)
    check_channel_axis(op, rank, None)
    with pytest.raises(QuantizationError, match="would differ within one sum"):
        check_channel_axis(op, rank, 1 - axis if axis < 2 else 1)


def test_what_has_no_channels_is_refused() -> None:
    with pytest.raises(QuantizationError, match="Softmax has no weight"):
        channel_axis(Softmax(), 2)
    with pytest.raises(QuantizationError, match="no output channels"):
        channel_axis(MatMul(), 1)


def test_the_bias_has_the_product_of_the_scales() -> None:
    w, b = np.float32([[1, 2], [3, -4]]), np.float32([0.5, -0.25])
    model = quantize(gemm(w, b), data(2))
    (weight,) = model.job.weights.values()
    x_scale = float(next(iter(model.job.params.values())).scale)
    wanted = np.float32([x_scale * float(s) for s in weight.params.scale])
    assert weight.bias_params is not None
    assert weight.bias is not None
    np.testing.assert_array_equal(weight.bias_params.scale, wanted)
    np.testing.assert_array_equal(weight.bias, np.rint(b / wanted.astype(np.float64)))


def test_a_large_bias_makes_its_channel_wider() -> None:
    w = np.full((4, 3), 0.01, np.float32)
    w[:, 1] = 1e-7  # its bias of 0.15 would need 1e10 codes
    b = np.float32([0.1, 0.15, 0.1])
    model = quantize(gemm(w, b), data(4))
    (weight,) = model.job.weights.values()
    assert model.notes == ["Gemm 'gemm': wider weight scale for 1 channels, whose bias is large"]
    assert weight.bias is not None
    assert np.abs(weight.bias.astype(np.int64)).max() < 2**31 - 1
    assert weight.params.scale[0] == np.float32(0.01 / 127)
    assert weight.params.scale[1] > 1e-7 / 127
    y = model.compile("cpu").run({"x": data(4)[0]})["y"]
    np.testing.assert_allclose(y, data(4)[0] @ w + b, atol=2e-3)


def test_a_bias_that_would_cost_the_weight_too_much_stays_in_float() -> None:
    w = np.full((4, 3), 0.01, np.float32)
    w[:, 1] = 1e-9
    b = np.float32([0.1, 2e3, 0.1])
    model = quantize(gemm(w, b), data(4))
    assert model.notes == ["Gemm 'gemm': its bias does not fit in int32 and stays in floating point"]
    program = model.compile("cpu")
    assert model.coverage("cpu").share == 1
    np.testing.assert_allclose(program.run({"x": data(4)[0]})["y"], data(4)[0] @ w + b, rtol=1e-6, atol=2e-3)


def test_with_one_scale_a_large_bias_stays_in_float() -> None:
    w, b = np.full((4, 3), 1e-6, np.float32), np.float32([0, 5e3, 0])
    model = quantize(gemm(w, b), data(4), per_channel=False)
    assert "stays in floating point" in model.notes[0]


def test_a_channel_without_weights_has_any_scale() -> None:
    w, b = np.zeros((4, 2), np.float32), np.float32([1e-3, 7e4])
    w[:, 0] = 1
    model = quantize(gemm(w, b), data(4, 1e-6))
    y = model.compile("cpu").run({"x": data(4, 1e-6)[0]})["y"]
    np.testing.assert_allclose(y[:, 1], 7e4, rtol=1e-6)


def test_sums_that_may_not_fit_keep_the_node_in_float() -> None:
    k = 131_072
    model = quantize(gemm(np.full((k, 1), 0.01, np.float32), np.float32([0.0])), data(k))
    assert model.kept == {"gemm": f"sums {k} products; more than 131071 may not fit in 32 bits"}
    long = 70_000  # fewer than 131,071, but codes far from the zero point: 70,000 * 127 * 255 > 2^31
    x = [np.abs(data(long)[0])]
    model = quantize(gemm(np.full((long, 1), 0.01, np.float32), np.float32([0.0])), x)
    assert model.kept == {"gemm": f"sums of {long} products may reach {long * 127 * 255}, beyond 32 bits"}


def test_weights_that_are_not_finite_stay() -> None:
    model = quantize(gemm(np.float32([[1, np.inf]]), np.float32([0, 0])), data(1))
    assert model.kept == {"gemm": "its weight is not finite"}


def test_one_bias_behind_two_inputs_becomes_two() -> None:
    op = Builder()
    x = op.input("x", "float32", ("n", 4))
    w, b = op.constant(np.full((4, 4), 0.5, np.float32)), op.constant(np.float32([1, 2, 3, 4]))
    first = op.Gemm(x, w, b)
    graph = op.graph([x], {"y": op.Gemm(op.Relu(first), w, b)})
    model = quantize(graph, data(4))
    biases = [
        node for node in model.graph.nodes
        if isinstance(node.op, DequantizeLinear) and node.inputs[0] is not None and node.inputs[0].dtype == "int32"
    ]  # fmt: skip
    scales = [node.inputs[1].constant.array for node in biases]  # type: ignore[union-attr]
    assert len(scales) == 2
    assert (scales[0] != scales[1]).all()
    exact = aicore.compile(graph, "cpu").run({"x": data(4)[0]})["y"]
    np.testing.assert_allclose(model.compile("cpu").run({"x": data(4)[0]})["y"], exact, atol=0.2)
