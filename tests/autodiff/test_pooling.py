"""Gradients of pools: who gets it among equal elements, windows that overlap, norms of 0, and sizes that are open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import InferenceError, UnsupportedError
from aicore.ir import Builder, Graph, Op
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore.ops.unpooling import MaxUnpool

Array = np.ndarray[Any, Any]


def gradient_graph(op: Op, *shape: Any, dtype: str = "float64") -> Graph:
    """The gradient of sum(y * dy) by x, dy being an input of its own."""
    builder = Builder()
    x = builder.input("x", dtype, shape)
    result = builder.apply(op, x)
    y = result[0] if isinstance(result, tuple) else result
    dy = builder.input("dy", dtype, y.shape)
    loss = builder.ReduceSum(builder.Mul(y, dy), keepdims=0)
    return aicore.grad(builder.graph((x, dy), {"loss": loss}), "loss", ("x",))


def gradient(op: Op, x: Any, dy: Any, dtype: str = "float64") -> Array:
    arrays = [np.asarray(a, aicore.ir.numpy_dtype(dtype)) for a in (x, dy)]
    graph = gradient_graph(op, *arrays[0].shape, dtype=dtype)
    found: Array = aicore.compile(graph, "cpu").run({"x": arrays[0], "dy": arrays[1]})["grad.x"]
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_first_of_equal_elements_in_row_major_order(dtype: str) -> None:
    op = MaxPool(kernel_shape=(2, 2), strides=(2, 2))
    x = [[[[1, 3, 5, 5], [3, 3, 5, 5]]]]
    np.testing.assert_array_equal(gradient(op, x, [[[[7, 9]]]], dtype), [[[[0, 7, 9, 0], [0, 0, 0, 0]]]])


def test_nan_is_the_largest() -> None:
    op = MaxPool(kernel_shape=(3,), strides=(3,))
    x = [[[1, np.nan, np.nan, np.inf, 2, np.nan, -np.inf, -np.inf, -np.inf]]]
    np.testing.assert_array_equal(gradient(op, x, [[[1, 2, 3]]]), [[[0, 1, 0, 0, 0, 2, 3, 0, 0]]])


@pytest.mark.parametrize("indices", [False, True])
def test_where_windows_overlap_gradients_add_up(indices: bool) -> None:
    op = MaxPool(kernel_shape=(3,), pads=(1, 1), indices=indices)
    np.testing.assert_array_equal(gradient(op, [[[1, 9, 4, 2]]], [[[1, 10, 100, 1000]]]), [[[0, 111, 1000, 0]]])


def test_means_give_equal_shares() -> None:
    """Windows (x0), (x0, x1), (x2), of which padding counts as two of each if it counts."""
    op = {"kernel_shape": (2,), "strides": (2,), "pads": (1, 0)}
    x, dy = [[[1, 2, 3]]], [[[4, 6]]]
    np.testing.assert_array_equal(gradient(AveragePool(**op), x, dy), [[[4, 3, 3]]])  # type: ignore[arg-type]
    counted = AveragePool(**op, count_include_pad=1)  # type: ignore[arg-type]
    np.testing.assert_array_equal(gradient(counted, x, dy), [[[2, 3, 3]]])


def test_norms() -> None:
    """d|x|_2 = x / |x|, and 0 where the norm is 0; of the third power x |x| / |x|_3^2."""
    op = LpPool(kernel_shape=(2,), strides=(2,))
    np.testing.assert_allclose(gradient(op, [[[3, -4, 0, 0]]], [[[10, 7]]]), [[[6, -8, 0, 0]]], rtol=1e-15)
    np.testing.assert_allclose(gradient(GlobalLpPool(p=2), [[[3, -4]]], [[[10]]]), [[[6, -8]]], rtol=1e-15)
    norm = (1 + 8) ** (1 / 3)
    found = gradient(GlobalLpPool(p=3), [[[1, -2]]], [[[1]]])
    np.testing.assert_allclose(found, [[[1 / norm**2, -4 / norm**2]]], rtol=1e-14)
    np.testing.assert_array_equal(gradient(GlobalLpPool(p=1), [[[1, -2, 0]]], [[[5]]]), [[[5, -5, 0]]])


def test_global_pools() -> None:
    x = [[[[1, 8], [8, 2]]]]
    np.testing.assert_array_equal(gradient(GlobalMaxPool(), x, [[[[5]]]]), [[[[0, 5], [0, 0]]]])
    np.testing.assert_array_equal(gradient(GlobalAveragePool(), x, [[[[8]]]]), [[[[2, 2], [2, 2]]]])


def test_unpooling_takes_back_from_the_place() -> None:
    builder = Builder()
    x, indices = builder.input("x", "float64", (1, 1, 2)), builder.input("i", "int64", (1, 1, 2))
    y = builder.apply(MaxUnpool((2,), strides=(2,)), x, indices)
    dy = builder.input("dy", "float64", y.shape)
    loss = builder.ReduceSum(builder.Mul(y, dy), keepdims=0)
    graph = aicore.grad(builder.graph((x, indices, dy), {"loss": loss}), "loss", ("x",))
    feeds = {"x": np.ones((1, 1, 2)), "i": np.array([[[3, 0]]]), "dy": np.array([[[1.0, 2, 3, 4]]])}
    np.testing.assert_array_equal(aicore.compile(graph, "cpu").run(feeds)["grad.x"], [[[4, 1]]])


@pytest.mark.parametrize(
    "op",
    [
        MaxPool(kernel_shape=(2, 3), strides=(2, 1), pads=(1, 1, 0, 2)),
        MaxPool(kernel_shape=(2, 3), strides=(2, 2), auto_pad="SAME_UPPER"),
        AveragePool(kernel_shape=(2, 3), strides=(2, 1), pads=(1, 1, 0, 2)),
        AveragePool(kernel_shape=(2, 3), strides=(2, 2), ceil_mode=1),
        LpPool(kernel_shape=(2, 3), strides=(2, 1)),
        GlobalAveragePool(),
        GlobalMaxPool(),
        GlobalLpPool(),
    ],
    ids=repr,
)
def test_open_sizes(op: Op) -> None:
    """They give what known ones give, several times with one program."""
    program = aicore.compile(gradient_graph(op, "n", 3, "h", "w"), "cpu")
    rng = np.random.default_rng(0)
    for shape in ((2, 3, 6, 7), (1, 3, 5, 4)):
        graph = gradient_graph(op, *shape)
        feeds = {value.name: rng.standard_normal(value.type.static_shape) for value in graph.inputs}
        wanted = aicore.compile(graph, "cpu").run(feeds)["grad.x"]
        np.testing.assert_allclose(program.run(feeds)["grad.x"], wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (LpPool(kernel_shape=(2,), auto_pad="SAME_UPPER"), "SAME_UPPER needs sizes in numbers"),
        (LpPool(kernel_shape=(2,), ceil_mode=1, strides=(2,)), "ceil_mode needs sizes in numbers"),
    ],
)
def test_what_open_sizes_do_not_tell(op: Op, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        gradient_graph(op, 1, 1, "n")


@pytest.mark.parametrize(
    ("op", "shapes", "message"),
    [
        (MaxPoolGrad(kernel_shape=(2,)), ((1, 1, 5), (1, 1, 5)), "what was pooled (1, 1, 4)"),
        (MaxPoolGrad(), ((1, 1, 5), (1, 1, 4)), "kernel_shape is missing"),
        (AveragePoolGrad(kernel_shape=(2,)), ((1, 1, 4),), "the shape of the input is missing"),
        (AveragePoolGrad(kernel_shape=(2,), shape=(5,)), ((1, 1, 5),), "what was pooled (1, 1, 4)"),
        (AveragePoolGrad(kernel_shape=(2,), shape=(5, 5)), ((1, 1, 4),), "has not 1 entries"),
        (AveragePoolGrad(kernel_shape=(2,), shape=(5,)), ((1, 1, 4, 4),), "has rank 4"),
    ],
)
def test_refusals(op: Op, shapes: Any, message: str) -> None:
    builder = Builder()
    with pytest.raises(InferenceError) as caught:
        builder.apply(op, *(builder.input(f"x{i}", "float32", shape) for i, shape in enumerate(shapes)))
    assert message in str(caught.value)
