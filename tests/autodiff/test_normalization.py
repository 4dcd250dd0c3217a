"""Gradients of normalisations: formulas in float64, running statistics, parameters of odd shapes, and open sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import InferenceError
from aicore.ir import Builder, Graph, Op, as_tuple, numpy_dtype
from aicore.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from aicore.ops.normalization_grad import BatchNormalizationGrad, LayerNormalizationGrad, RMSNormalizationGrad

Array = np.ndarray[Any, Any]


def gradient_graph(
    op: Op, *shapes: Sequence[Any], wrt: int = 1, output: int = 0, dtypes: Sequence[str] | str = "float64"
) -> Graph:
    """Gradients of sum(output * dy) by the first operands, dy being an input of its own."""
    builder = Builder()
    kinds = [dtypes] * len(shapes) if isinstance(dtypes, str) else dtypes
    operands = [builder.input(f"x{i}", kind, shape) for i, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))]
    y = as_tuple(builder.apply(op, *operands))[output]
    dy = builder.input("dy", y.dtype, y.shape)
    loss = builder.ReduceSum(builder.Mul(y, dy), keepdims=0)
    return aicore.grad(builder.graph((*operands, dy), {"loss": loss}), "loss", [f"x{i}" for i in range(wrt)])


def run(graph: Graph, *arrays: Array) -> list[Array]:
    """Gradients in the order of the operands; the last array is dy."""
    feeds = {value.name: array for value, array in zip(graph.inputs, arrays, strict=True)}
    found = aicore.compile(graph, "cpu").run(feeds)
    return [found[name] for name, _ in graph.outputs if name != "loss"]


def numbers(*shapes: Sequence[int]) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape) for shape in shapes]


def through_statistics(h: Array, g: Array, deviation: Array, axes: Any) -> Array:
    """The gradient of x where h = (x - mean) / deviation over these axes, given that of h."""
    means = [a.mean(axes, keepdims=True) for a in (g, g * h)]
    found: Array = (g - means[0] - h * means[1]) / deviation
    return found


def test_batch_normalization_in_training() -> None:
    x, scale, bias, mean, dy = numbers((4, 3, 5), (3,), (3,), (3,), (4, 3, 5))
    graph = gradient_graph(BatchNormalization(training_mode=1, epsilon=0.01), x.shape, *((3,),) * 4, wrt=5)
    found = run(graph, x, scale, bias, mean, np.ones(3), dy)
    deviation = np.sqrt(x.var((0, 2), keepdims=True) + 0.01)
    h = (x - x.mean((0, 2), keepdims=True)) / deviation
    dx = through_statistics(h, dy * scale[:, None], deviation, (0, 2))
    for got, want in zip(found, (dx, (dy * h).sum((0, 2)), dy.sum((0, 2)), 0 * mean, 0 * mean), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_running_statistics_have_gradients() -> None:
    """The moved mean is 0.9 of the old one and 0.1 of the batch's; the variance likewise."""
    x, dy = numbers((4, 2), (2,))
    op = BatchNormalization(training_mode=1)
    shapes = (x.shape, *((2,),) * 4)
    operands = (x, *(np.ones(2),) * 4)
    dx, *_, dmean, dvariance = run(gradient_graph(op, *shapes, wrt=5, output=1), *operands, dy)
    np.testing.assert_allclose(dx, np.broadcast_to(0.1 * dy / 4, x.shape), rtol=1e-14)
    np.testing.assert_allclose(dmean, 0.9 * dy, rtol=1e-14)
    np.testing.assert_array_equal(dvariance, 0)
    dx, *_, dmean, dvariance = run(gradient_graph(op, *shapes, wrt=5, output=2), *operands, dy)
    np.testing.assert_allclose(dx, 0.1 * dy * 2 * (x - x.mean(0)) / 4, rtol=1e-12)
    np.testing.assert_array_equal(dmean, 0)
    np.testing.assert_allclose(dvariance, 0.9 * dy, rtol=1e-14)


def test_batch_normalization_by_given_statistics() -> None:
    x, scale, bias, mean, dy = numbers((4, 3, 5), (3,), (3,), (3,), (4, 3, 5))
    variance = np.array([0.5, 1.0, 2.0])
    found = run(
        gradient_graph(BatchNormalization(epsilon=0.01), x.shape, *((3,),) * 4, wrt=5),
        x,
        scale,
        bias,
        mean,
        variance,
        dy,
    )
    inverse = 1 / np.sqrt(variance + 0.01)
    total, weighted = dy.sum((0, 2)), (dy * (x - mean[:, None])).sum((0, 2))
    wanted = (
        dy * (scale * inverse)[:, None],
        weighted * inverse,
        total,
        -total * scale * inverse,
        -0.5 * weighted * scale * inverse**3,
    )
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("shape", [(5,), (1,), (3, 1), (3, 5), (2, 3, 5), (2, 1, 1)])
def test_scale_and_bias_of_any_shape_that_broadcasts(shape: tuple[int, ...]) -> None:
    x, scale, bias, dy = numbers((2, 3, 5), shape, shape, (2, 3, 5))
    found = run(gradient_graph(LayerNormalization(epsilon=0.01), x.shape, shape, shape, wrt=3), x, scale, bias, dy)
    deviation = np.sqrt(x.var(-1, keepdims=True) + 0.01)
    h = (x - x.mean(-1, keepdims=True)) / deviation
    dx = through_statistics(h, dy * scale, deviation, -1)
    for got, want in zip(found, (dx, summed_to(dy * h, shape), summed_to(dy, shape)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)
    dx, dscale = run(gradient_graph(RMSNormalization(epsilon=0.01), x.shape, shape, wrt=2), x, scale, dy)
    root = np.sqrt((x * x).mean(-1, keepdims=True) + 0.01)
    h, g = x / root, dy * scale
    np.testing.assert_allclose(dx, (g - h * (g * h).mean(-1, keepdims=True)) / root, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(dscale, summed_to(dy * h, shape), rtol=1e-12)


def summed_to(array: Array, shape: tuple[int, ...]) -> Array:
    padded = (1,) * (array.ndim - len(shape)) + shape
    axes = tuple(i for i, (d, n) in enumerate(zip(padded, array.shape, strict=True)) if d != n)
    return array.sum(axes, keepdims=True).reshape(shape)


@pytest.mark.parametrize(("op", "groups"), [(InstanceNormalization(0.01), 4), (GroupNormalization(2, 0.01), 2)])
def test_groups(op: Op, groups: int) -> None:
    x, scale, bias, dy = numbers((2, 4, 3, 2), (4,), (4,), (2, 4, 3, 2))
    found = run(gradient_graph(op, x.shape, (4,), (4,), wrt=3), x, scale, bias, dy)
    parts, g = x.reshape(2, groups, -1), (dy * scale[:, None, None]).reshape(2, groups, -1)
    deviation = np.sqrt(parts.var(2, keepdims=True) + 0.01)
    h = (parts - parts.mean(2, keepdims=True)) / deviation
    dx = through_statistics(h, g, deviation, 2).reshape(x.shape)
    wanted = (dx, (dy * h.reshape(x.shape)).sum((0, 2, 3)), dy.sum((0, 2, 3)))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)


def test_a_norm_of_zero_gives_nothing() -> None:
    """y = x / 5 for (3, -4), whose gradient is (dy - y (dy y)) / 5."""
    x, dy = np.array([[0.0, 0], [3, -4]]), np.array([[1.0, 2], [5, 0]])
    (dx,) = run(gradient_graph(LpNormalization(), x.shape), x, dy)
    np.testing.assert_allclose(dx, [[0, 0], [(5 - 0.6 * 3) / 5, 0.8 * 3 / 5]], rtol=1e-14)
    (dx,) = run(gradient_graph(LpNormalization(p=1), x.shape), x, dy)
    np.testing.assert_allclose(dx, [[0, 0], [(5 - 15 / 7) / 7, 15 / 49]], rtol=1e-14)


def test_a_deviation_of_zero() -> None:
    """(dy - mean(dy)) / 1e-9: the slope there, and no NaN."""
    x, dy = np.full((1, 2), 7.0), np.array([[1.0, 3]])
    (dx,) = run(gradient_graph(MeanVarianceNormalization((1,)), x.shape), x, dy)
    np.testing.assert_allclose(dx, [[-1e9, 1e9]], rtol=1e-14)


def test_local_response_of_an_even_size() -> None:
    """Windows of two reach forward: s = (2 + x0^2 + x1^2, 2 + x1^2) and y = x / s."""
    (x,) = numbers((1, 2))
    (dx,) = run(gradient_graph(LRN(size=2, alpha=2.0, beta=1.0, bias=2.0), x.shape), x, np.array([[1.0, 10]]))
    (a, b), (s, t) = x[0], (2 + (x * x).sum(), 2 + x[0, 1] ** 2)
    wanted = [[1 / s - 2 * a * a / s**2, -2 * a * b / s**2 + 10 / t - 20 * b * b / t**2]]
    np.testing.assert_allclose(dx, wanted, rtol=1e-13)


OPS: list[tuple[Op, int]] = [
    (BatchNormalization(training_mode=1), 4),
    (BatchNormalization(), 4),
    (InstanceNormalization(), 2),
    (GroupNormalization(2), 2),
    (LpNormalization(axis=1), 0),
    (LRN(3), 0),
    (MeanVarianceNormalization(), 0),
]


@pytest.mark.parametrize(("op", "parameters"), OPS, ids=lambda found: type(found).__name__)
def test_open_sizes(op: Op, parameters: int) -> None:
    """They give what known ones give, several times with one program."""
    wrt = 1 + min(parameters, 2)
    program = aicore.compile(gradient_graph(op, ("n", 4, "h", "w"), *((4,),) * parameters, wrt=wrt), "cpu")
    rng = np.random.default_rng(0)
    for shape in ((2, 4, 3, 5), (3, 4, 2, 2)):
        graph = gradient_graph(op, shape, *((4,),) * parameters, wrt=wrt)
        feeds = {value.name: rng.uniform(0.5, 1.5, value.type.static_shape) for value in graph.inputs}
        wanted = aicore.compile(graph, "cpu").run(feeds)
        for name, array in program.run(feeds).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("op", "parameters"), [*OPS, (LayerNormalization(), 2)], ids=lambda found: type(found).__name__
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types_are_computed_in_float32(op: Op, parameters: int, dtype: str) -> None:
    """Only what goes in, and what comes out, is rounded."""
    kind = numpy_dtype(dtype)
    rng = np.random.default_rng(0)
    shapes = ((2, 4, 3, 4), *((4,),) * parameters)
    arrays = [rng.uniform(0.5, 1.5, shape).astype(kind) for shape in (*shapes, shapes[0])]
    wrt = 1 + min(parameters, 2)
    wanted = run(gradient_graph(op, *shapes, wrt=wrt), *(a.astype(np.float64) for a in arrays))
    found = run(gradient_graph(op, *shapes, wrt=wrt, dtypes=dtype), *arrays)
    digits = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    for got, want in zip(found, wanted, strict=True):
        largest = float(np.abs(want).max())
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=4 * digits, atol=4 * digits * largest)


def test_mixed_types() -> None:
    """x in float16 with parameters and statistics in float32: gradients come in the types of the operands."""
    shapes = ((2, 3, 4), *((3,),) * 4)
    dtypes = ("float16", *("float32",) * 4)
    arrays = [np.ones(shape, kind) for shape, kind in zip(shapes, dtypes, strict=True)]
    for op in (BatchNormalization(training_mode=1), BatchNormalization()):
        found = run(gradient_graph(op, *shapes, wrt=5, dtypes=dtypes), *arrays, np.ones((2, 3, 4), np.float16))
        assert [a.dtype.name for a in found] == list(dtypes)
        np.testing.assert_array_equal(found[2], [8, 8, 8])


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (BatchNormalization(statistics=True), [(2, 3), *[(3,)] * 4], "in training only"),
        (BatchNormalizationGrad(), [(2, 3), (3,), (3,), (3,), (2, 4)], "has shape (2, 4), x has (2, 3)"),
        (BatchNormalizationGrad(), [(2, 3), (2,), (3,), (3,), (2, 3)], "x has 3 channels"),
        (BatchNormalizationGrad(), [(), (1,), (1,), (1,), ()], "rank 0"),
        (LayerNormalizationGrad(), [(2, 3), (1,), (2, 1), (2, 1), (2, 3)], "wants that of the axes, (3,)"),
        (LayerNormalizationGrad(), [(2, 3), (3,), (2,), (2, 1), (2, 3)], "wants the rank of x, 2"),
        (RMSNormalizationGrad(axis=0), [(2, 3), (3,), (2, 3)], "wants that of the axes, (2, 3)"),
    ],
)
def test_refusals(op: Op, operands: Sequence[tuple[int, ...]], message: str) -> None:
    builder = Builder()
    with pytest.raises(InferenceError) as caught:
        builder.apply(op, *(builder.input(f"x{i}", "float32", shape) for i, shape in enumerate(operands)))
    assert message in str(caught.value)


def test_statistics_in_the_type_of_a_narrow_x_are_refused() -> None:
    builder = Builder()
    x, mean = builder.input("x", "float16", (2, 3)), builder.input("mean", "float16", (3,))
    with pytest.raises(InferenceError, match="wants one of float32"):
        builder.apply(BatchNormalizationGrad(), x, mean, mean, mean, x)
    with pytest.raises(InferenceError, match="stash_type is float64"):
        builder.apply(LayerNormalization(stash_type="float64"), x, mean)
