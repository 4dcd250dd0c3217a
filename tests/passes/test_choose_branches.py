"""An If that constants or sizes decide becomes the nodes of its branch; one that the run decides stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Graph, Value, verify
from aicore.kernels import KernelTable
from aicore.ops import If
from aicore.passes import run_passes
from aicore.passes.choose_branches import ChooseBranches
from aicore.plugins import plugin_registry
from aicore.rewrite import Context
from aicore.runtime import ReferenceEvaluator

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def context() -> Context:
    return Context(evaluate=ReferenceEvaluator(KernelTable(plugin_registry().kernels)))


def branch(name: str, *shape: Any) -> Graph:
    """`name` of one captured value."""
    op = Builder()
    x = op.input("x", "float32", shape)
    return op.graph([x], {"y": getattr(op, name)(x)})


def choose(graph: Graph, ctx: Context | None = None) -> Graph:
    new, report = run_passes(graph, [ChooseBranches()], ctx or context())
    assert report.errors == []
    verify(new, graph)
    return new


def ops_of(graph: Graph) -> list[str]:
    return [type(node.op).__name__ for node in graph.nodes]


@pytest.mark.parametrize(("condition", "taken"), [(True, "Neg"), (False, "Abs")])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_constant_condition(condition: bool, taken: str, shape: tuple[int, ...]) -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    y = op.apply(If(branch("Neg", 2, 3), branch("Abs", 2, 3)), op.constant(np.full(shape, condition)), x)
    graph = choose(op.graph([x], {"y": op.Relu(y)}))
    assert ops_of(graph) == [taken, "Relu"]
    assert graph.nodes[1].inputs == graph.nodes[0].outputs


def squeezed_if_one(op: Builder, x: Value) -> Value:
    """What exporters write for a squeeze of axis 1."""
    first, second = Builder(), Builder()
    a, b = (inner.input("x", "float32", ("N", "M")) for inner in (first, second))
    branches = (first.graph([a], {"y": first.Squeeze(a, first.constant(np.array([1])))}), second.graph([b], {"y": b}))
    size = op.Gather(op.Shape(x), op.constant(np.array(1)))
    y: Value = op.apply(If(*branches), op.Equal(size, op.constant(np.array(1))), x)
    return y


def test_sizes_decide_and_what_they_make_known_decides_the_next() -> None:
    for columns, shape in ((1, (5,)), (3, (5, 3))):
        op = Builder()
        x = op.input("x", "float32", (5, columns))
        once = squeezed_if_one(op, x)
        rank = op.Size(op.Shape(once))
        outer = op.apply(If(branch("Neg"), branch("Abs")), op.Equal(rank, op.constant(np.array(1))), once)
        graph = choose(op.graph([x], {"y": outer}))
        assert "If" not in ops_of(graph)
        assert ("Neg" in ops_of(graph)) == (columns == 1)
        assert graph.outputs[0][1].shape == shape


def test_symbolic_sizes_and_inputs_decide_nothing() -> None:
    op = Builder()
    x, c = op.input("x", "float32", (5, "M")), op.input("c", "bool", ())
    y = op.apply(If(branch("Neg", 5, "M"), branch("Abs", 5, "M")), c, x)
    graph = op.graph([x, c], {"y": y, "z": squeezed_if_one(op, x)})
    assert ops_of(choose(graph)).count("If") == 2


def test_a_branch_inside_a_branch_and_one_graph_taken_twice() -> None:
    inner = Builder()
    v = inner.input("x", "float32", (2, 3))
    nested = inner.apply(If(branch("Neg", 2, 3), branch("Abs", 2, 3)), inner.constant(np.array(False)), v)
    twice = If(inner.graph([v], {"y": nested}), branch("Neg", 2, 3))
    op = Builder()
    x, c = op.input("x", "float32", (2, 3)), op.constant(np.array(True))
    graph = choose(op.graph([x], {"y": op.apply(twice, c, op.apply(twice, c, x))}))
    assert ops_of(graph) == ["Abs", "Abs"]
    assert graph.nodes[0].outputs != graph.nodes[1].outputs


def test_a_branch_may_give_back_what_it_captures_or_a_constant() -> None:
    first, second = Builder(), Builder()
    a, b = (inner.input("x", "float32", (2, 3)) for inner in (first, second))
    same, fixed = first.graph([a], {"y": a}), second.graph([b], {"y": second.constant(X)})
    for condition in (True, False):
        op = Builder()
        x = op.input("x", "float32", (2, 3))
        y = op.apply(If(same, fixed), op.constant(np.array(condition)), x)
        graph = choose(op.graph([x], {"y": op.Add(x, y)}))
        assert ops_of(graph) == ["Add"]
        operand = graph.nodes[0].inputs[1]
        assert operand is x if condition else operand is not None and operand.constant is not None


def test_a_branch_that_cannot_run_is_left_to_the_run() -> None:
    first = Builder()
    a = first.input("x", "float32", ("N", "M"))
    squeezed = first.graph([a], {"y": first.Squeeze(a, first.constant(np.array([1])))})
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    y = op.apply(If(squeezed, branch("Neg", "N", "M")), op.constant(np.array(True)), x)
    assert ops_of(choose(op.graph([x], {"y": y}))) == ["If"]


def test_bisect_can_stop_it() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    y = op.apply(If(branch("Neg", 2, 3), branch("Abs", 2, 3)), op.constant(np.array(True)), x)
    ctx = context()
    ctx.budget = 0
    assert ops_of(choose(op.graph([x], {"y": y}), ctx)) == ["If"]
    assert ctx.refused == 1
