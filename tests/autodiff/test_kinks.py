"""Derivatives where functions bend, jump or end: what the ops document, which is PyTorch's choice where it has one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import compile, grad  # noqa: A004  # aicore.compile
from aicore.errors import UnsupportedError
from aicore.ir import Builder, Op
from aicore.ops import activation as act
from aicore.ops import arithmetic, elementwise, reduction, scatter
from aicore.ops.cast import Cast
from aicore.ops.gather import Gather
from aicore.ops.ordering import TopK
from aicore.ops.resize import Resize
from aicore.ops.slicing import Pad
from aicore.ops.softmax import Hardmax, Softmax

NAN, INF = np.nan, np.inf


def gradients(op: Op, *operands: Any, weights: Any = None) -> list[np.ndarray[Any, Any]]:
    """Of the weighted sum of the first result, by each operand of floating point; float64 where it is not an array."""
    builder = Builder()
    arrays = [np.asarray(a, np.float64) if isinstance(a, list | float) else np.asarray(a) for a in operands]
    values = [builder.input(f"x{i}", a.dtype.name, a.shape) for i, a in enumerate(arrays)]
    result = builder.apply(op, *values)
    result = result[0] if isinstance(result, tuple) else result
    if weights is not None:
        result = builder.Mul(result, builder.constant(np.asarray(weights, arrays[0].dtype)))
    wrt = [v.name for v in values if v.dtype.startswith("float")]
    graph = grad(builder.graph(values, {"loss": builder.ReduceSum(result, keepdims=0)}), "loss", wrt)
    found = compile(graph, "cpu").run(dict(zip((v.name for v in values), arrays, strict=True)))
    return [found[f"grad.{name}"] for name in wrt]


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        (act.Relu(), [-1.0, 0.0, -0.0, 2.0, INF, -INF], [0, 0, 0, 1, 1, 0]),
        (act.LeakyRelu(0.1), [-1.0, 0.0, 2.0], [0.1, 0.1, 1]),
        (act.LeakyRelu(-0.1), [-1.0, 0.0, 2.0], [-0.1, -0.1, 1]),
        (act.Clip(-1.0, 1.0), [-2.0, -1.0, 0.0, 1.0, 2.0], [0, 1, 1, 1, 0]),
        (act.Clip(1.0, -1.0), [-2.0, 0.0, 2.0], [0, 0, 0]),
        (act.Elu(0.5), [-INF, 0.0, 1.0], [0, 0.5, 1]),
        (act.Selu(2.0, 3.0), [-INF, 0.0, 1.0], [0, 6, 3]),
        (act.Celu(2.0), [-INF, 0.0, 1.0], [0, 1, 1]),
        (act.HardSigmoid(), [-2.5, 0.0, 2.5], [0, 0.2, 0]),
        (act.HardSwish(), [-3.0, 0.0, 3.0], [0, 0.5, 1]),
        (act.ThresholdedRelu(1.0), [0.5, 1.0, 1.5], [0, 0, 1]),
        (act.Shrink(0.5, 0.1), [-0.6, -0.5, 0.0, 0.5, 0.6], [1, 0, 0, 0, 1]),
        (act.Softplus(), [-INF, 0.0, INF], [0, 0.5, 1]),
        (act.Softsign(), [-INF, 0.0], [0, 1]),
        (act.Gelu(), [0.0], [0.5]),
        (act.Gelu("tanh"), [0.0], [0.5]),
        (elementwise.Abs(), [-2.0, 0.0, 3.0], [-1, 0, 1]),
        (elementwise.Sign(), [-2.0, 0.0, 3.0], [0, 0, 0]),
        (elementwise.Round(), [0.5, 1.5], [0, 0]),
        (elementwise.Sqrt(), [0.0, 4.0], [INF, 0.25]),
        (elementwise.Log(), [0.0, 2.0], [INF, 0.5]),
        (elementwise.Asin(), [1.0, 0.0], [INF, 1]),
        (elementwise.Reciprocal(), [0.0, 2.0], [-INF, -0.25]),
        (reduction.ReduceMax(), [2.0, 5.0, 5.0, 1.0], [0, 0.5, 0.5, 0]),
        (reduction.ReduceMin(), [2.0, 1.0, 1.0, 1.0], [0, 1 / 3, 1 / 3, 1 / 3]),
        (reduction.ReduceL1(), [-2.0, 0.0, 3.0], [-1, 0, 1]),
        (reduction.ReduceL2(), [0.0, 0.0], [0, 0]),
        (reduction.ReduceL2(), [3.0, -4.0], [0.6, -0.8]),
        (reduction.ReduceProd(), [2.0, 3.0, 4.0], [12, 8, 6]),
        (reduction.ReduceProd(), [2.0, 0.0, 4.0], [0, 8, 0]),
        (reduction.ReduceProd(), [0.0, 0.0, 4.0], [0, 0, 0]),
        (reduction.ReduceLogSum(), [1.0, 3.0], [0.25, 0.25]),
        (Hardmax(), [1.0, 3.0], [0, 0]),
    ],
)
def test_of_one_operand(op: Op, x: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(gradients(op, x)[0], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (arithmetic.Max(), ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]), ([0, 0.5, 1], [1, 0.5, 0])),
        (arithmetic.Min(), ([2.0], [2.0], [2.0]), ([1 / 3], [1 / 3], [1 / 3])),
        (arithmetic.Max(), ([[1.0], [2.0]], [1.0, 2.0]), ([[0.5], [1.5]], [0.5, 1.5])),
        (arithmetic.Pow(), ([2.0, 3.0], [3.0, 2.0]), ([12, 6], [8 * np.log(2), 9 * np.log(3)])),
        (arithmetic.Pow(), ([0.0, 0.0, 5.0], [2.0, 0.0, 0.0]), ([0, 0, 0], [0, 0, np.log(5)])),
        (arithmetic.Pow(), ([0.0], [1.0]), ([1], [0])),
        (arithmetic.Pow(), ([0.0], [-1.0]), ([-INF], [-INF])),
        (arithmetic.Pow(), ([-2.0], [3.0]), ([12], [NAN])),
        (arithmetic.Pow(), ([-2.0, 3.0], np.array([3, 0])), ([12, 0],)),
        (arithmetic.Mod(), ([7.0, -7.0], [3.0, 3.0]), ([1, 1], [-2, 3])),
        (arithmetic.Mod(fmod=1), ([7.0, -7.0], [3.0, 3.0]), ([1, 1], [-2, 2])),
        (arithmetic.Div(), ([1.0], [0.0]), ([INF], [-INF])),
        (act.PRelu(), ([-2.0, 0.0, 3.0], [0.5]), ([0.5, 0.5, 1], [-2])),
        (act.Clip(), ([-2.0, -1.0, 0.0, 2.0], np.float64(-1), np.float64(1)), ([0, 1, 1, 0], 1, 1)),
        (act.Clip(), ([-2.0, 0.0, 2.0], np.float64(1), np.float64(-1)), ([0, 0, 0], 0, 3)),
        (act.Clip(), ([-2.0, -1.0], np.float64(-1)), ([0, 1], 1)),
        (TopK(k=2), ([3.0, 3.0, 3.0],), ([1, 1, 0],)),
        (Gather(), ([1.0, 2.0, 3.0], np.array([1, 1, -1])), ([0, 2, 1],)),
        (Pad("edge", (2, 1)), ([1.0, 2.0, 3.0],), ([3, 1, 2],)),
        (Pad("reflect", (1, 1)), ([1.0, 2.0, 3.0],), ([1, 3, 1],)),
        (Pad("wrap", (1, 1)), ([1.0, 2.0, 3.0],), ([2, 1, 2],)),
        (Pad("constant", (1, -1)), ([1.0, 2.0, 3.0],), ([1, 1, 0],)),
        (scatter.ScatterElements(), ([1.0, 2.0], np.array([0, 0]), [3.0, 4.0]), ([0, 1], [0, 1])),
        (scatter.ScatterElements(0, "add"), ([1.0, 2.0], np.array([0, 0]), [3.0, 4.0]), ([1, 1], [1, 1])),
    ],
)
def test_of_several(op: Op, operands: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    found = gradients(op, *operands)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_an_infinite_gradient_stays_out_of_the_other_piece() -> None:
    (found,) = gradients(act.Relu(), [-1.0, 1.0], weights=[INF, INF])
    np.testing.assert_array_equal(found, [0, INF])


def test_nan_propagates() -> None:
    for op in (act.Relu(), act.Tanh(), act.Sigmoid(), act.Gelu(), elementwise.Exp(), reduction.ReduceMax(), Softmax()):
        x, weights = [NAN, 1.0], [NAN, 1.0] if not isinstance(op, reduction.ReduceMax) else [NAN]
        assert np.isnan(gradients(op, x, weights=weights)[0][0])


def test_the_mean_of_more_elements_than_float16_counts() -> None:
    (found,) = gradients(reduction.ReduceMean(), np.ones((300, 300), np.float16), weights=np.full((1, 1), 900))
    np.testing.assert_array_equal(found, np.full((300, 300), np.float16(0.01)))


def test_a_cast_leads_back_to_the_type_that_was() -> None:
    (found,) = gradients(Cast("float32"), np.ones(3, np.float16), weights=None)
    assert found.dtype == np.float16


@pytest.mark.parametrize("reduction_", ["mul", "max", "min"])
def test_scattering_with_other_reductions_is_refused(reduction_: str) -> None:
    indices = np.array([[0]])
    for op, at in ((scatter.ScatterElements(0, reduction_), np.array([0])), (scatter.ScatterND(reduction_), indices)):
        with pytest.raises(UnsupportedError, match=f"none and add, not for '{reduction_}'"):
            gradients(op, [1.0, 2.0], at, [3.0])


def test_a_resize_that_keeps_the_aspect_ratio_is_refused() -> None:
    op = Resize(keep_aspect_ratio_policy="not_larger", sizes=(4, 6))
    with pytest.raises(UnsupportedError, match="keep_aspect_ratio_policy not_larger"):
        gradients(op, [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda b, x: b.MatMul(x, x), "MatMul needs to know ranks"),
        (lambda b, x: b.Tile(x, b.constant(np.array([2]))), "Tile needs to know the rank"),
        (lambda b, x: b.Concat(x, x, axis=0), "Concat needs to know the rank"),
        (lambda b, x: b.Gather(x, b.constant(np.array([0]))), "Gather needs to know ranks"),
        (lambda b, x: b.CenterCropPad(x, b.constant(np.array([2]))), "CenterCropPad needs to know the rank"),
        (lambda b, x: b.Resize(x, None, None, b.constant(np.array([2]))), "Resize needs to know the rank"),
        (lambda b, x: b.Einsum(x, equation="...i->..."), "Einsum needs to know the rank"),
    ],
)
def test_unknown_ranks_are_refused_where_the_gradient_depends_on_them(build: Any, what: str) -> None:
    builder = Builder()
    x = builder.input("x", "float64", None)
    loss = builder.ReduceSum(builder.Reshape(build(builder, x), shape=(-1,)), keepdims=0)
    with pytest.raises(UnsupportedError, match=what):
        grad(builder.graph([x], {"loss": loss}), "loss", ["x"])


def test_an_ellipsis_in_the_middle_is_refused() -> None:
    builder = Builder()
    x = builder.input("x", "float64", (2, 3, 4))
    loss = builder.ReduceSum(builder.Einsum(x, equation="i...j->...ij"), keepdims=0)
    with pytest.raises(UnsupportedError, match="wants the ellipsis"):
        grad(builder.graph([x], {"loss": loss}), "loss", ["x"])


def test_unknown_ranks_do_elsewhere() -> None:
    builder = Builder()
    x = builder.input("x", "float64", None)
    y = builder.Transpose(builder.Relu(builder.Mul(x, x)))
    loss = builder.ReduceMean(builder.Reshape(y, shape=(-1,)), keepdims=0)
    program = compile(grad(builder.graph([x], {"loss": loss}), "loss", ["x"]), "cpu")
    for shape in ((), (3,), (2, 3)):
        numbers = np.arange(1.0, 1 + int(np.prod(shape))).reshape(shape)
        np.testing.assert_allclose(program.run({"x": numbers})["grad.x"], 2 * numbers / numbers.size)
