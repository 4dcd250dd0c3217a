"""If, Loop and Scan, on the CPU and on a device with memory of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aicore
import aicore.ops as ops
from aicore.errors import ExecutionError, InferenceError
from aicore.ir import Builder, Graph, Value, as_tuple
from aicore.plugins import PluginRegistry
from aicore.runtime.control_flow import control_flow

TARGETS = ["cpu", "fake"]
Array = np.ndarray[Any, Any]


def program(registry: PluginRegistry, target: str, graph: Graph) -> aicore.Program:
    return aicore.compile(graph, target=target, registry=registry, fallback="quiet")


def whole(op: Any, *operands: Value | Array | None) -> Graph:
    """A graph of this op alone; arrays are constants."""
    b = Builder()
    values = [b.constant(v) if isinstance(v, np.ndarray) else v for v in operands]
    results = as_tuple(b.apply(op, *values))
    inputs = [v for v in operands if isinstance(v, Value)]
    return b.graph(inputs, {f"y{i}": value for i, value in enumerate(results)})


def scalar(name: str, dtype: str, shape: tuple[int, ...] = ()) -> Value:
    return Builder().input(name, dtype, shape)


def branches() -> tuple[Graph, Graph]:
    """x + 1, and the two first elements of x alone: results of different shapes."""
    first, second = Builder(), Builder()
    x, y = first.input("x", "float32", ("N",)), second.input("x", "float32", ("N",))
    one = first.constant(np.float32(1))
    sliced = second.Slice(y, *(second.constant(np.array([n])) for n in (0, 2, 0)))
    return first.graph((x,), {"y": first.Add(x, one)}), second.graph((y,), {"y": sliced})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_if_runs_the_branch_that_the_condition_says(
    registry: PluginRegistry, target: str, shape: tuple[int, ...]
) -> None:
    graph = whole(ops.If(*branches()), scalar("c", "bool", shape), Builder().input("x", "float32", ("N",)))
    run = program(registry, target, graph)
    x = np.arange(4, dtype=np.float32)
    assert run(c=np.full(shape, True), x=x)["y0"].tolist() == [1, 2, 3, 4]
    assert run(c=np.full(shape, False), x=x)["y0"].tolist() == [0, 1]
    assert run(c=np.full(shape, True), x=x[:3])["y0"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("target", TARGETS)
def test_a_captured_value_returned_as_it_is_gets_memory_of_its_own(registry: PluginRegistry, target: str) -> None:
    inner = Builder()
    x = inner.input("x", "float32", (2,))
    same = inner.graph((x,), {"y": x})
    graph = whole(ops.If(same, same), scalar("c", "bool"), Builder().input("x", "float32", (2,)))
    data = np.ones(2, np.float32)
    result = program(registry, target, graph)(c=True, x=data)["y0"]
    assert not np.shares_memory(result, data)
    assert result.tolist() == [1, 1]


@pytest.mark.parametrize("target", TARGETS)
def test_a_branch_that_cannot_run_on_the_sizes_is_an_error_only_when_it_is_taken(
    registry: PluginRegistry, target: str
) -> None:
    first, second = Builder(), Builder()
    x, y = (b.input("x", "float32", ("N", "M")) for b in (first, second))
    squeezed = first.graph((x,), {"y": first.Squeeze(x, first.constant(np.array([1])))})
    op = ops.If(squeezed, second.graph((y,), {"y": second.Neg(y)}))
    run = program(registry, target, whole(op, scalar("c", "bool"), Builder().input("x", "float32", ("N", "M"))))
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert run(c=False, x=x)["y0"].tolist() == [[0, -1], [-2, -3]]
    with pytest.raises(InferenceError, match=r"Squeeze .*axis 1 of \(2, 2\) is 2, not 1"):
        run(c=True, x=x)
    assert run(c=True, x=x[:, :1])["y0"].tolist() == [0, 2]
    assert run(c=False, x=x)["y0"].tolist() == [[0, -1], [-2, -3]]


def growing() -> Graph:
    """Doubles the length of its carried value, and gives the iteration as a scan output."""
    b = Builder()
    i, go_on, x = b.input("i", "int64", ()), b.input("go_on", "bool", ()), b.input("x", "float32", ("L",))
    return b.graph((i, go_on, x), {"go_on": b.Identity(go_on), "x": b.Concat(x, x, axis=0), "i": b.Identity(i)})


@pytest.mark.parametrize("target", TARGETS)
def test_a_carried_value_may_grow(registry: PluginRegistry, target: str) -> None:
    graph = whole(ops.Loop(growing(), 1), np.array(3), None, Builder().input("x", "float32", (2,)))
    result = program(registry, target, graph)(x=np.array([1, 2], np.float32))
    assert result["y0"].tolist() == [1, 2] * 8
    assert result["y1"].tolist() == [0, 1, 2]


def counting() -> Graph:
    """Goes on while the sum is below the limit, which is captured."""
    b = Builder()
    i, go_on = b.input("i", "int64", ()), b.input("go_on", "bool", ())
    total, limit = b.input("total", "float32", ()), b.input("limit", "float32", ())
    new = b.Add(total, b.constant(np.float32(1)))
    return b.graph((i, go_on, total, limit), {"go_on": b.Less(new, limit), "total": new, "each": b.Neg(new)})


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_stops_when_the_body_says_so(registry: PluginRegistry, target: str) -> None:
    total, limit = scalar("total", "float32"), scalar("limit", "float32")
    run = program(registry, target, whole(ops.Loop(counting(), 1), None, None, total, limit))
    result = run(total=0.0, limit=3.0)
    assert result["y0"] == 3
    assert result["y1"].tolist() == [-1, -2, -3]


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_that_never_runs_gives_copies_and_empty_stacks(registry: PluginRegistry, target: str) -> None:
    trips, condition, x = scalar("trips", "int64"), scalar("condition", "bool"), Builder().input("x", "float32", (2,))
    run = program(registry, target, whole(ops.Loop(growing(), 1), trips, condition, x))
    data = np.ones(2, np.float32)
    for trips_, condition_ in ((0, True), (-1, True), (5, False)):
        result = run(trips=trips_, condition=condition_, x=data)
        assert result["y0"].tolist() == [1, 1]
        assert not np.shares_memory(result["y0"], data)
        assert result["y1"].shape == (0,)
        assert result["y1"].dtype == np.int64


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_in_a_loop(registry: PluginRegistry, target: str) -> None:
    inner = Builder()
    i, go_on, x = inner.input("i", "int64", ()), inner.input("go_on", "bool", ()), inner.input("x", "float32", ())
    body = inner.graph((i, go_on, x), {"go_on": go_on, "x": inner.Add(x, inner.constant(np.float32(1)))})
    outer = Builder()
    i, go_on, x = outer.input("i", "int64", ()), outer.input("go_on", "bool", ()), outer.input("x", "float32", ())
    twice = outer.Mul(
        outer.Loop(outer.constant(np.array(2)), None, x, body=body, carried=1), outer.constant(np.float32(2))
    )
    graph = whole(
        ops.Loop(outer.graph((i, go_on, x), {"go_on": go_on, "x": twice}), 1), np.array(3), None, scalar("x", "float32")
    )
    # x -> 2 * (x + 2), three times: 0, 4, 12, 28
    assert program(registry, target, graph)(x=0.0)["y0"] == 28


def running_sum() -> Graph:
    b = Builder()
    total, x = b.input("total", "float32", (2,)), b.input("x", "float32", (2,))
    result = b.Add(total, x)
    return b.graph((total, x), {"total": result, "each": b.Identity(result)})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("backwards", [0, 1])
def test_scan_along_any_axis_and_in_both_directions(registry: PluginRegistry, target: str, backwards: int) -> None:
    op = ops.Scan(running_sum(), 1, 1, (1,), (backwards,), (-1,), (backwards,))
    b = Builder()
    total, x = b.input("total", "float32", (2,)), b.input("x", "float32", (2, "L"))
    run = program(registry, target, whole(op, total, x))
    for length in (3, 1, 0):
        data = np.arange(2 * length, dtype=np.float32).reshape(2, length)
        result = run(total=np.zeros(2, np.float32), x=data)
        ordered = data[:, ::-1] if backwards else data
        sums = np.cumsum(ordered, axis=1)
        np.testing.assert_array_equal(result["y0"], data.sum(axis=1))
        np.testing.assert_array_equal(result["y1"], sums[:, ::-1] if backwards else sums)


def test_scan_inputs_must_be_of_one_length(registry: PluginRegistry) -> None:
    b = Builder()
    a, c = b.input("a", "float32", ()), b.input("c", "float32", ())
    op = ops.Scan(b.graph((a, c), {"y": b.Add(a, c)}), 2)
    left, right = Builder().input("a", "float32", ("L",)), Builder().input("c", "float32", ("M",))
    (node,) = whole(op, left, right).nodes
    run = control_flow(node, registry.device("cpu"), lambda graph: lambda arrays: list(arrays))
    with pytest.raises(ExecutionError, match=r"numbers of slices: \[2, 3\]"):
        run([np.ones(2, np.float32), np.ones(3, np.float32)])


def test_only_control_flow_is_walked(registry: PluginRegistry) -> None:
    b = Builder()
    x = b.input("x", "float32", ())
    (node,) = b.graph((x,), {"y": b.Neg(x)}).nodes
    with pytest.raises(ExecutionError, match="Neg 'neg' is no control flow"):
        control_flow(node, registry.device("cpu"), lambda graph: lambda arrays: list(arrays))


@pytest.mark.parametrize("target", TARGETS)
def test_bodies_are_compiled_once_for_each_size(registry: PluginRegistry, target: str) -> None:
    graph = whole(ops.Loop(counting(), 1), None, None, scalar("total", "float32"), scalar("limit", "float32"))
    run = program(registry, target, graph)
    run(total=0.0, limit=20.0)
    (specialised,) = run._specialiser.kept()
    (body,) = specialised._bodies
    assert (body.statistics.misses, body.statistics.hits) == (1, 19)
    run.release()
    assert run(total=0.0, limit=2.0)["y0"] == 2
