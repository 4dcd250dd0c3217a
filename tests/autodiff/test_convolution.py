"""Gradients of convolutions: numbers by hand, shapes that no window reaches, and sizes that are open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import UnsupportedError
from aicore.ir import Builder, Graph, Op
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.convolution_grad import ConvWeightGrad

Array = np.ndarray[Any, Any]


def gradient_graph(op: Op, *shapes: Sequence[Any], wrt: Sequence[str] = ("x0", "x1"), dtype: str = "float64") -> Graph:
    """Gradients of sum(y * dy) by the operands, dy being an input of its own."""
    builder = Builder()
    operands = [builder.input(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]
    y = builder.apply(op, *operands)
    dy = builder.input("dy", dtype, y.shape)
    loss = builder.ReduceSum(builder.Mul(y, dy), keepdims=0)
    return aicore.grad(builder.graph((*operands, dy), {"loss": loss}), "loss", wrt)


def run(graph: Graph, *arrays: Array, dy: Array) -> dict[str, Array]:
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    return aicore.compile(graph, "cpu").run({**feeds, "dy": dy})


def test_conv_by_hand() -> None:
    """y = (2 x0 - x1, 2 x1 - x2) + b; dy = (10, 100)."""
    graph = gradient_graph(Conv(), (1, 1, 3), (1, 1, 2), (1,), wrt=("x0", "x1", "x2"))
    x, w, b = np.array([[[1.0, 2, 3]]]), np.array([[[2.0, -1]]]), np.zeros(1)
    found = run(graph, x, w, b, dy=np.array([[[10.0, 100]]]))
    np.testing.assert_array_equal(found["grad.x0"], [[[20, -10 + 200, -100]]])
    np.testing.assert_array_equal(found["grad.x1"], [[[10 + 200, 20 + 300]]])
    np.testing.assert_array_equal(found["grad.x2"], [110])


def test_what_no_window_reaches_gets_nothing() -> None:
    """A stride of 2 over 4 elements with a kernel of 1 leaves out the last one, and that of 3 more."""
    graph = gradient_graph(Conv(strides=(2,)), (1, 1, 4), (1, 1, 1), wrt=("x0",))
    found = run(graph, np.ones((1, 1, 4)), np.full((1, 1, 1), 5.0), dy=np.array([[[1.0, 2]]]))
    np.testing.assert_array_equal(found["grad.x0"], [[[5, 0, 10, 0]]])


def test_conv_transpose_by_hand() -> None:
    """y = (w0 x0, w1 x0 + w0 x1, w1 x1, 0), the last by output_padding; a bias reaches all of them."""
    op = ConvTranspose(output_padding=(1,), dilations=(1,), strides=(2,), kernel_shape=(2,))
    graph = gradient_graph(op, (1, 1, 2), (1, 1, 2), (1,), wrt=("x0", "x1", "x2"))
    x, w = np.array([[[1.0, 3]]]), np.array([[[2.0, 5]]])
    found = run(graph, x, w, np.zeros(1), dy=np.array([[[1.0, 10, 100, 1000, 10000]]]))
    np.testing.assert_array_equal(found["grad.x0"], [[[2 + 50, 200 + 5000]]])
    np.testing.assert_array_equal(found["grad.x1"], [[[1 + 300, 10 + 3000]]])
    np.testing.assert_array_equal(found["grad.x2"], [11111])


def test_output_beyond_the_reach_of_any_kernel() -> None:
    """With output_shape 7, kernels of 2 at places 0 and 1 reach 3 elements; what lies behind depends on nothing."""
    op = ConvTranspose(output_shape=(7,))
    graph = gradient_graph(op, (1, 1, 2), (1, 1, 2))
    dy = np.array([[[1.0, 10, 100, 7, 7, 7, 7]]])
    found = run(graph, np.array([[[1.0, 3]]]), np.array([[[2.0, 5]]]), dy=dy)
    np.testing.assert_array_equal(found["grad.x0"], [[[2 + 50, 20 + 500]]])
    np.testing.assert_array_equal(found["grad.x1"], [[[1 + 30, 10 + 300]]])


def test_the_gradient_of_an_input_that_nobody_asked_for_is_left_out() -> None:
    kinds = {type(node.op).__name__ for node in gradient_graph(Conv(), (1, 2, 5, 5), (3, 2, 3, 3), wrt=("x1",)).nodes}
    assert "ConvWeightGrad" in kinds
    assert "ConvTranspose" not in kinds


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Conv(strides=(2, 3), pads=(1, 0, 2, 1)), (("n", 4, 9, 8), (6, 4, 3, 2))),
        (Conv(strides=(2, 3), pads=(1, 0, 2, 1), group=2), (("n", 4, "h", "w"), (6, 2, 3, 2))),
        (Conv(auto_pad="SAME_UPPER"), (("n", 2, "h", "w"), (3, 2, 4, 3))),
        (ConvTranspose(strides=(2, 3), pads=(1, 0, 0, 1), output_padding=(1, 2)), (("n", 4, "h", "w"), (4, 2, 3, 2))),
        (ConvTranspose(strides=(3, 3), auto_pad="SAME_UPPER"), (("n", 4, "h", "w"), (4, 2, 2, 3))),
    ],
)
def test_open_sizes(op: Op, shapes: tuple[Any, ...]) -> None:
    """They give what known ones give, several times with one program."""
    program = aicore.compile(gradient_graph(op, *shapes), "cpu")
    rng = np.random.default_rng(0)
    for sizes in ({"n": 2, "h": 9, "w": 8}, {"n": 1, "h": 6, "w": 7}):
        known = [tuple(sizes.get(d, d) for d in shape) for shape in shapes]
        graph = gradient_graph(op, *known)
        feeds = {value.name: rng.standard_normal(value.type.static_shape) for value in graph.inputs}
        wanted = aicore.compile(graph, "cpu").run(feeds)
        for name, array in program.run(feeds).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (Conv(auto_pad="SAME_LOWER", strides=(2,)), ((1, 1, "n"), (1, 1, 2)), "SAME_LOWER with strides"),
        (Conv(), ((1, 1, 5), (1, 1, "k")), "the kernel's dims in numbers"),
        (ConvTranspose(output_shape=(9,)), ((1, 1, "n"), (1, 1, 2)), "in numbers"),
    ],
)
def test_what_open_sizes_do_not_tell(op: Op, shapes: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        gradient_graph(op, *shapes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_types(dtype: str) -> None:
    """Numbers that every type holds, so that all of them give the same."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, shape).astype(np.float64) for shape in ((2, 3, 5, 5), (4, 3, 3, 3))]
    dy = rng.integers(-1, 2, (2, 4, 3, 3)).astype(np.float64)
    wanted = run(gradient_graph(Conv(), (2, 3, 5, 5), (4, 3, 3, 3)), *arrays, dy=dy)
    kind = aicore.ir.numpy_dtype(dtype)
    graph = gradient_graph(Conv(), (2, 3, 5, 5), (4, 3, 3, 3), dtype=dtype)
    found = run(graph, *(a.astype(kind) for a in arrays), dy=dy.astype(kind))
    for name in ("grad.x0", "grad.x1"):
        np.testing.assert_array_equal(found[name].astype(np.float64), wanted[name])


@pytest.mark.parametrize(
    ("op", "x", "dy", "message"),
    [
        (ConvWeightGrad(), (1, 2, 5), (1, 3, 4), "kernel_shape is missing"),
        (ConvWeightGrad(kernel_shape=(2,)), (1, 2, 5), (1, 3, 5), "the output of the convolution (1, 3, 4)"),
        (ConvWeightGrad(kernel_shape=(2,), group=2), (1, 2, 5), (1, 3, 4), "3 channels do not divide into 2 groups"),
        (ConvWeightGrad(kernel_shape=(2,), group=0), (1, 2, 5), (1, 3, 4), "group 0 is below 1"),
        (ConvWeightGrad(kernel_shape=(2,)), (1, 2, 5, 5), (1, 3, 4), "has rank 4"),
    ],
)
def test_refusals(op: Op, x: tuple[int, ...], dy: tuple[int, ...], message: str) -> None:
    builder = Builder()
    with pytest.raises(aicore.errors.InferenceError) as caught:
        builder.apply(op, builder.input("x", "float32", x), builder.input("dy", "float32", dy))
    assert message in str(caught.value)
