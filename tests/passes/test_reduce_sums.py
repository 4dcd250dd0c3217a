"""SumTo becomes a sum over axes as soon as sizes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore import compile  # noqa: A004  # aicore.compile
from aicore.errors import InferenceError
from aicore.ir import Builder, Graph
from aicore.ops.reduction import ReduceSum, SumTo
from aicore.passes import run_passes
from aicore.passes.reduce_sums import ReduceSums
from tests.passes.graphs import context, kinds


def after(graph: Graph) -> Graph:
    found, report = run_passes(graph, (ReduceSums(),), context())
    assert not report.errors
    return found


@pytest.mark.parametrize(
    ("shape", "axes", "found"),
    [
        ((2, 3, 4), None, []),
        ((3, 4), (0,), ["ReduceSum", "Reshape"]),
        ((1, 3, 1), (0, 2), ["ReduceSum"]),
        ((1, 1), (0, 1, 2), ["ReduceSum", "Reshape"]),
        ((), (0, 1, 2), ["ReduceSum", "Reshape"]),
    ],
)
def test_axes(shape: tuple[int, ...], axes: Any, found: list[str]) -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3, 4))
    graph = after(op.graph([x], {"y": op.SumTo(x, shape=shape)}))
    assert kinds(graph) == found
    assert [node.op.axes for node in graph.nodes if isinstance(node.op, ReduceSum)] == ([] if axes is None else [axes])
    assert graph.outputs[0][1].shape == shape


def test_a_dim_of_one_in_both_is_not_summed() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 3))
    assert kinds(after(op.graph([x], {"y": op.SumTo(x, shape=(1, 3))}))) == []
    assert kinds(after(op.graph([x], {"y": op.SumTo(x, shape=(3,))}))) == ["Reshape"]


def test_open_sizes_stay() -> None:
    op = Builder()
    x, like = op.input("x", "float32", ("n", 3)), op.input("like", "float32", ("m", 3))
    graph = after(op.graph([x, like], {"y": op.SumTo(x, op.Shape(like))}))
    assert "SumTo" in kinds(graph)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("rows", [1, 5])
def test_sizes_that_a_call_brings(optimize: bool, rows: int) -> None:
    op = Builder()
    x, like = op.input("x", "float32", ("n", 3)), op.input("like", "float32", ("m", 3))
    program = compile(op.graph([x, like], {"y": op.SumTo(x, op.Shape(like))}), "cpu", optimize=optimize)
    numbers = np.arange(15, dtype="float32").reshape(5, 3)
    got = program.run({"x": numbers, "like": np.zeros((rows, 3), "float32")})["y"]
    np.testing.assert_array_equal(got, numbers.sum(0, keepdims=True) if rows == 1 else numbers)
    assert "SumTo" not in str(program.explain())


@pytest.mark.parametrize("shape", [(2, 4), (1, 2, 3), (3, 1)])
def test_what_does_not_broadcast_is_refused(shape: tuple[int, ...]) -> None:
    op = Builder()
    with pytest.raises(InferenceError, match="does not broadcast to"):
        op.SumTo(op.input("x", "float32", (2, 3)), shape=shape)


def test_the_type_is_as_good_as_what_is_known() -> None:
    op = Builder()
    x, shape = op.input("x", "float32", ("n", 3)), op.input("shape", "int64", (1,))
    assert op.SumTo(x, shape).rank == 1
    assert op.SumTo(x, op.input("any", "int64", ("k",))).shape is None
    assert op.apply(SumTo((3,)), x).shape == (3,)


def test_a_target_without_that_sum_keeps_it() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    graph = op.graph([x], {"y": op.SumTo(x, shape=(3,))})
    found, report = run_passes(graph, (ReduceSums(),), context(supports=lambda *asked: "no kernel"))
    assert not report.errors
    assert kinds(found) == ["SumTo"]
