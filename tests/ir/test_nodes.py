"""Nodes in a row: those that are needed, and a fused op's parts bound to its outputs."""

from __future__ import annotations

from typing import Any

from aicore.autodiff.forward import ready_for_gradient
from aicore.ir import Builder, Node, Op, Origin, Value, decomposed, needed_nodes
from aicore.ir.attributes import op_class
from aicore.passes.decompose_unsupported import DecomposeUnsupported
from aicore.rewrite import Context


@op_class
class Split(Op):
    """x -> (x, exp(x), exp(x)): an operand handed on, and one result twice."""

    def n_outputs(self) -> int:
        return 3

    def infer(self, x: Value) -> Any:
        return (x.type,) * 3

    def decompose(self, op: Any, x: Any) -> Any:
        y = op.Exp(op.Neg(op.Neg(x)))
        return x, y, y


def split() -> tuple[Builder, Value, tuple[Value, ...]]:
    op = Builder()
    x = op.input("x", "float32", (2,))
    return op, x, op.apply(Split(), x)


def test_parts_have_the_outputs_of_the_op_and_the_others_are_told() -> None:
    op, x, (same, first, second) = split()
    origin = Origin(rule="apart")
    parts, equal = decomposed(op.nodes[0], origin)
    assert [type(part.op).__name__ for part in parts] == ["Neg", "Neg", "Exp"]
    assert parts[0].inputs == (x,)
    assert parts[2].inputs == parts[1].outputs
    assert parts[2].outputs == (first,)
    assert equal == {same: x, second: first}
    assert {part.origin for part in parts} == {origin}


def test_the_gradient_has_a_node_for_each_output() -> None:
    op, _, outputs = split()
    nodes = ready_for_gradient(op.nodes, op.nodes)
    assert [type(node.op).__name__ for node in nodes] == ["Neg", "Neg", "Exp", "Identity", "Identity"]
    assert [node.outputs[0] for node in nodes[2:]] == [outputs[1], outputs[0], outputs[2]]


def test_the_pass_puts_equal_values_in_their_place() -> None:
    op, x, (same, first, second) = split()
    graph = op.graph([x], {"a": same, "b": first, "c": second})
    ctx = Context(supports=lambda op, *types: "no kernel" if isinstance(op, Split) else None)
    found = DecomposeUnsupported().apply(graph, ctx)
    assert [value for _, value in found.outputs] == [x, first, first]


def chain() -> tuple[list[Node], list[Value]]:
    """a -> b -> c, and d, e of a that nobody reads."""
    op = Builder()
    a = op.input("a", "float32", (2,))
    b = op.Neg(a)
    c = op.Exp(b)
    d = op.Abs(a)
    e = op.Sqrt(d)
    return op.nodes, [b, c, d, e]


def test_needed_nodes_are_those_that_results_depend_on_in_their_order() -> None:
    nodes, (b, c, d, _) = chain()
    assert needed_nodes(nodes, [c]) == tuple(nodes[:2])
    assert needed_nodes(nodes, [b, d]) == (nodes[0], nodes[2])
    assert needed_nodes(nodes, []) == ()


def test_what_may_not_be_dropped_keeps_what_it_reads() -> None:
    nodes, (_, c, *_) = chain()
    asked = iter([False])
    assert needed_nodes(nodes, [c], lambda: next(asked)) == tuple(nodes)  # Sqrt is kept, so nobody asks about Abs
    asked = iter([True, False])
    assert needed_nodes(nodes, [c], lambda: next(asked)) == tuple(nodes[:3])
