"""Graphs: structure, verification, retyping, equality of sub-graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from aicore import ops
from aicore.errors import GraphError, InferenceError
from aicore.ir import (
    Builder,
    Graph,
    Node,
    Op,
    Origin,
    TensorType,
    Value,
    constants,
    diff,
    is_unknown,
    retype,
    sort_nodes,
    symbol,
    verify,
    walk_graphs,
)

FLOAT2 = TensorType("float32", (2,))
RELU: Any = ops.CORE["Relu"]


def chain(*names: str) -> Graph:
    op = Builder()
    x = value = op.input("x", "float32", (2,))
    for name in names:
        value = op.apply(ops.CORE[name](), value, names=(name.lower(),))
    return op.graph([x], {"y": value})


def test_good_graph_verifies() -> None:
    verify(chain("Relu", "Tanh"))


def test_operand_before_its_definition() -> None:
    graph = chain("Relu", "Tanh")
    with pytest.raises(GraphError, match="Tanh 'tanh': operand %relu is used before it is defined"):
        verify(replace(graph, nodes=graph.nodes[::-1]))


def test_value_defined_twice() -> None:
    graph = chain("Relu")
    with pytest.raises(GraphError, match="%relu is defined twice"):
        verify(replace(graph, nodes=graph.nodes * 2))


def test_wrong_recorded_type_names_the_rule() -> None:
    x = Value("x", FLOAT2)
    y = Value("y", TensorType("float64", (2,)))
    node = Node(RELU(), (x,), (y,), Origin(rule="bad-rule", match=7))
    with pytest.raises(GraphError, match=r"made by bad-rule#7: %y is recorded as float64\[2\]"):
        verify(Graph((x,), (("y", y),), (node,)))


def test_wrong_number_of_outputs() -> None:
    x, y, z = Value("x", FLOAT2), Value("y", FLOAT2), Value("z", FLOAT2)
    with pytest.raises(GraphError, match="has 2 outputs, inference gives 1"):
        verify(Graph((x,), (("y", y),), (Node(RELU(), (x,), (y, z)),)))


def test_operands_that_contradict_the_op() -> None:
    x = Value("x", FLOAT2)
    with pytest.raises(GraphError, match="does not fit its operands"):
        verify(Graph((x,), (("y", x),), (Node(RELU(), (), (Value("y", FLOAT2),)),)))


def test_attribute_that_cannot_be_hashed() -> None:
    @dataclass(frozen=True)
    class Listing(Op):
        items: Any

        def infer(self, x: Value) -> TensorType:
            return x.type

    x = Value("x", FLOAT2)
    with pytest.raises(GraphError, match="unhashable"):
        verify(Graph((x,), (("x", x),), (Node(Listing([1]), (x,), (Value("y", FLOAT2),)),)))


def test_ends() -> None:
    x, other = Value("x", FLOAT2), Value("x", FLOAT2)
    with pytest.raises(GraphError, match="two inputs have the same name"):
        verify(Graph((x, other), (), ()))
    with pytest.raises(GraphError, match="two outputs have the same name"):
        verify(Graph((x,), (("y", x), ("y", x)), ()))
    with pytest.raises(GraphError, match=r"output 'y' .* is computed by no node"):
        verify(Graph((x,), (("y", other),), ()))


def test_state_must_fit() -> None:
    x, w = Value("x", FLOAT2), Value("w", TensorType("float32", (3,)))
    with pytest.raises(GraphError, match="names no output and input"):
        verify(Graph((x, w), (("y", x),), (), (("z", "x"),)))
    with pytest.raises(GraphError, match=r"float32\[3\] would become float32\[2\]"):
        verify(Graph((x, w), (("y", x),), (), (("y", "w"),)))


def test_subgraphs_are_verified() -> None:
    op = Builder()
    cond, x = op.input("c", "bool", ()), op.input("x", "float32", (2,))
    good = chain("Relu")
    middle, end = Value("middle", TensorType("float64", (2,))), Value("end", FLOAT2)
    (inner,) = good.inputs
    nodes = (Node(RELU(), (inner,), (middle,)), Node(ops.CORE["Cast"](to="float32"), (middle,), (end,)))
    bad = Graph((inner,), (("y", end),), nodes)
    y = op.If(cond, x, then_branch=good, else_branch=good)
    graph = op.graph([cond, x], {"y": y})
    verify(graph)
    node = graph.nodes[0]
    broken = replace(graph, nodes=(replace(node, op=replace(node.op, else_branch=bad)),))  # type: ignore[type-var]
    with pytest.raises(GraphError, match=r"%middle is recorded as float64\[2\]"):
        verify(broken)


def test_nodes_that_were_there_before_are_trusted() -> None:
    x, y = Value("x", FLOAT2), Value("y", TensorType("float64", (2,)))
    graph = Graph((x,), (("y", y),), (Node(RELU(), (x,), (y,)),))
    verify(graph, graph)
    with pytest.raises(GraphError):
        verify(graph)


def test_diff_is_by_identity() -> None:
    old = chain("Relu", "Tanh")
    new = replace(old, nodes=(old.nodes[0], replace(old.nodes[1], op=ops.CORE["Exp"]())))
    removed, added = diff(old, new)
    assert removed == [old.nodes[1]]
    assert added == [new.nodes[1]]


def test_sort_is_stable_and_finds_cycles() -> None:
    graph = chain("Relu", "Tanh", "Exp")
    assert sort_nodes(list(graph.nodes)) == list(graph.nodes)
    assert sort_nodes(list(graph.nodes[::-1])) == list(graph.nodes)
    a, b = Value("a", FLOAT2), Value("b", FLOAT2)
    with pytest.raises(GraphError, match="the graph has a cycle through it"):
        sort_nodes([Node(RELU(), (a,), (b,)), Node(RELU(), (b,), (a,))])


def test_sort_of_a_long_chain_does_not_recurse() -> None:
    graph = chain(*["Relu"] * 5000)
    assert sort_nodes(list(graph.nodes[::-1])) == list(graph.nodes)


def test_subgraphs_compare_by_structure() -> None:
    assert chain("Relu", "Neg") == chain("Relu", "Neg")
    assert hash(chain("Relu", "Neg")) == hash(chain("Relu", "Neg"))
    assert chain("Relu", "Neg") != chain("Neg", "Relu")
    assert chain("Relu") != "Relu"


def test_walk_and_constants_reach_into_subgraphs() -> None:
    def branch(number: float) -> Graph:
        op = Builder()
        x = op.input("x", "float32", (2,))
        return op.graph([x], {"y": op.Mul(x, op.scalar(number, x))})

    op = Builder()
    cond, x = op.input("c", "bool", ()), op.input("x", "float32", (2,))
    graph = op.graph([cond, x], {"y": op.If(cond, x, then_branch=branch(2), else_branch=branch(3))})
    assert len(list(walk_graphs(graph))) == 3
    assert sorted(float(v.constant.array) for v in constants(graph) if v.constant) == [2.0, 3.0]


def test_uses_and_producer() -> None:
    op = Builder()
    x = op.input("x", "float32", (2,))
    y = op.Mul(x, x)
    graph = op.graph([x], {"y": y, "z": y})
    assert graph.uses[x] == 2
    assert graph.uses[y] == 2
    assert graph.producer[y] is graph.nodes[0]


def test_retype_shares_what_learns_nothing() -> None:
    op = Builder()
    x, n = op.input("x", "float32", ("N", 4)), op.input("n", "int64", (2,))
    kept = op.Relu(x)
    graph = op.graph([x, n], {"y": op.Relu(op.Reshape(kept, n))})
    same = retype(graph, [v.type for v in graph.inputs])
    assert same.nodes == graph.nodes
    assert is_unknown(graph.outputs[0][1].shape[0])  # type: ignore[index]


def test_retype_specialises_and_absorbs() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4))
    rows = op.Gather(op.Shape(x), op.constant([0]))
    graph = op.graph([x], {"y": op.Reshape(x, op.Concat(rows, op.constant([2, -1]), axis=0))})
    assert graph.outputs[0][1].shape == (symbol("N"), 2, 2)
    assert len(graph.nodes[-1].inputs) == 2
    special = retype(graph, [TensorType("float32", (6, 4))])
    assert special.outputs[0][1].shape == (6, 2, 2)
    assert special.nodes[-1].op == ops.CORE["Reshape"](shape=(6, 2, -1))
    assert len(special.nodes[-1].inputs) == 1
    verify(special)


def test_retype_to_a_contradiction() -> None:
    op = Builder()
    x, w = op.input("x", "float32", ("N", "K")), op.input("w", "float32", (4, 2))
    graph = op.graph([x, w], {"y": op.MatMul(x, w)})
    with pytest.raises(InferenceError, match="MatMul 'matmul': inner dimensions differ"):
        retype(graph, [TensorType("float32", (3, 5)), w.type])


def test_builder_names_the_node_in_errors() -> None:
    op = Builder(Origin("/encoder/fc"))
    x, w = op.input("x", "float32", (4, 8)), op.constant(np.zeros((6, 8), np.float32))
    with pytest.raises(InferenceError, match=r"MatMul 'matmul' \(from /encoder/fc\): inner dimensions differ"):
        op.MatMul(x, w)


def test_unknown_op_of_a_namespace() -> None:
    with pytest.raises(AttributeError, match="no core op is called 'Quadratic'"):
        Builder().Quadratic()
