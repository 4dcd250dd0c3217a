"""If, Loop and Scan type their closed sub-graphs by the operands, and claim only what holds after any round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aicore.errors import InferenceError
from aicore.ir import Builder, Graph, TensorType, Value, as_tuple, is_unknown, symbol, verify
from aicore.ops.control import If, Loop, Scan
from aicore.ops.movement import Concat
from aicore.ops.selection import NonZero

B = symbol("B")
TRUE = np.array(True)


def graph(make: Callable[..., Any], *inputs: tuple[str, Any]) -> Graph:
    """A closed graph of `make(op, *inputs)`; each input is (dtype, shape)."""
    op = Builder()
    values = [op.input(f"x{i}", dtype, shape) for i, (dtype, shape) in enumerate(inputs)]
    return op.graph(values, {f"y{i}": y for i, y in enumerate(as_tuple(make(op, *values)))})


def apply(op: Any, *operands: Any) -> tuple[Value, ...]:
    """The op on inputs ((dtype, shape)), constants (arrays), and None; the graph is verified."""
    builder = Builder()
    values = [
        builder.input(f"x{i}", *o) if isinstance(o, tuple) else None if o is None else builder.constant(o)
        for i, o in enumerate(operands)
    ]
    results = as_tuple(builder.apply(op, *values))
    inputs = [v for v in values if v is not None and v.constant is None]
    verify(builder.graph(inputs, {f"y{i}": y for i, y in enumerate(results)}))
    return results


BOOL, COUNT = ("bool", ()), ("int64", ())


def f32(*shape: Any) -> tuple[str, Any]:
    return "float32", shape


def body(make: Callable[..., Any], *inputs: tuple[str, Any]) -> Graph:
    """A loop body of `make(op, *carried and captured)`, which hands its condition on."""
    return graph(lambda op, i, cond, *xs: (op.Identity(cond), *as_tuple(make(op, *xs))), COUNT, BOOL, *inputs)


def test_branches_are_typed_by_what_they_capture() -> None:
    branches = [graph(make, f32("?", 3)) for make in (lambda op, x: op.Neg(x), lambda op, x: op.Transpose(x))]
    (y,) = apply(If(*branches), ("bool", ()), f32(3, 3))
    assert y.shape == (3, 3)
    (y,) = apply(If(*branches), ("bool", ()), f32("B", 3))
    assert all(is_unknown(d) for d in y.shape or ())


def test_branches_of_different_rank_leave_it_open() -> None:
    branches = [graph(make, f32(2, 3)) for make in (lambda op, x: op.Neg(x), lambda op, x: op.Flatten(op.Flatten(x)))]
    assert apply(If(*branches), ("bool", ()), f32(2, 3))[0].rank == 2
    other = graph(lambda op, x: op.Squeeze(x, op.constant(np.array([0]))), f32(1, 3))
    assert apply(If(branches[0], other), ("bool", (1,)), f32(1, 3))[0].shape is None


def squeezing() -> tuple[Graph, Graph]:
    """Without the last axis, which has to be 1, and as it is."""
    squeezed = graph(lambda op, x: op.Squeeze(x, op.constant(np.array([1]))), f32("N", "M"))
    return squeezed, graph(lambda op, x: op.Neg(x), f32("N", "M"))


def test_a_branch_that_contradicts_the_sizes_leaves_the_type_to_the_other() -> None:
    first, second = squeezing()
    for branches in ((first, second), (second, first)):
        assert apply(If(*branches), BOOL, f32(3, 2))[0].shape == (3, 2)
        assert apply(If(*branches), BOOL, f32(3, 1))[0].rank is None
    builder = Builder()
    builder.apply(If(first, second), builder.input("c", *BOOL), builder.input("x", *f32(3, 2)))
    (node,) = builder.nodes
    assert node.op.then_branch is first
    assert node.op.cost(*node.inputs)[0] == 6
    with pytest.raises(InferenceError, match=r"Squeeze .*axis 1 of \(3, 2\) is 2, not 1"):
        apply(If(first, first), BOOL, f32(3, 2))


def test_an_unknown_inside_a_branch_is_another_one_outside() -> None:
    branch = graph(lambda op, x: op.NonZero(x), f32(4))
    first, second = (apply(If(branch, branch), ("bool", ()), f32(4))[0] for _ in range(2))
    assert first.shape is not None
    assert second.shape is not None
    assert first.shape[1] != second.shape[1]


def test_carried_values_keep_the_dims_that_no_iteration_changes() -> None:
    add = body(lambda op, x, step: op.Add(x, step), f32("?"), f32("?"))
    (y,) = apply(Loop(add, 1), COUNT, None, f32("B"), f32("B"))
    assert y.shape == (B,)


def test_a_growing_value_becomes_unknown_and_the_body_knows() -> None:
    grow = body(lambda op, x: (op.apply(Concat(0), x, x), op.Neg(x)), f32(1, 2))
    builder = Builder()
    y, rows = builder.apply(Loop(grow, 1), builder.input("n", *COUNT), None, builder.input("x", *f32(1, 2)))
    assert y.shape is not None
    assert is_unknown(y.shape[0])
    assert y.shape[1] == 2
    assert rows.rank == 3
    held = builder.nodes[0].op.body.inputs[2].shape
    assert is_unknown(held[0])
    assert held[1] == 2


def test_a_growing_rank_becomes_unknown() -> None:
    grow = body(lambda op, x: op.Unsqueeze(x, op.constant(np.array([0]))), f32(2))
    assert apply(Loop(grow, 1), COUNT, None, f32(2))[0].shape is None


def test_dims_that_swap_are_both_given_up() -> None:
    swap = body(lambda op, x: op.Transpose(x), f32(2, 3))
    (y,) = apply(Loop(swap, 1), COUNT, None, f32(2, 3))
    assert all(is_unknown(d) for d in y.shape or ())
    assert apply(Loop(swap, 1), COUNT, None, f32(3, 3))[0].shape == (3, 3)


def test_a_change_travels_through_other_carried_values() -> None:
    """a takes b, b takes c, and c grows: all three are given up, one round after the other."""
    chain = body(lambda op, a, b, c: (op.Neg(b), op.Neg(c), op.apply(Concat(0), c, c)), f32(1), f32(1), f32(1))
    for y in apply(Loop(chain, 3), COUNT, None, f32(1), f32(1), f32(1)):
        assert y.shape is not None
        assert is_unknown(y.shape[0])


def test_the_number_of_rows_is_known_where_nothing_stops_the_loop() -> None:
    rows = body(lambda op, x: (op.Neg(x), op.Neg(x)), f32(2))
    three = np.array(3, np.int64)
    assert apply(Loop(rows, 1), three, None, f32(2))[1].shape == (3, 2)
    assert apply(Loop(rows, 1), three, TRUE, f32(2))[1].shape == (3, 2)
    assert is_unknown(apply(Loop(rows, 1), three, BOOL, f32(2))[1].shape[0])  # type: ignore[index]
    stops = graph(lambda op, i, cond, x: (op.Not(cond), op.Neg(x), op.Neg(x)), COUNT, BOOL, f32(2))
    assert is_unknown(apply(Loop(stops, 1), three, None, f32(2))[1].shape[0])  # type: ignore[index]
    assert apply(Loop(rows, 1), np.array(-5, np.int64), None, f32(2))[1].shape == (0, 2)


def test_resolving_again_changes_nothing() -> None:
    grow = body(lambda op, x: op.apply(Concat(0), x, x), f32(1, 2))
    builder = Builder()
    n, x = builder.input("n", *COUNT), builder.input("x", *f32(1, 2))
    builder.apply(Loop(grow, 1), n, None, x)
    op = builder.nodes[0].op
    assert op.resolve(n, None, x) is op
    smaller = builder.input("z", *f32(3, 2))
    assert op.resolve(n, None, smaller) is op, "the first dim is unknown in the body anyway"
    assert op.resolve(n, None, builder.input("w", *f32(3, 5))) is not op


def test_a_body_may_take_its_counters_as_vectors_of_one() -> None:
    make = graph(lambda op, i, cond, x: (cond, op.apply(Concat(0), x, i)), ("int64", (1,)), BOOL, ("int64", (2,)))
    builder = Builder()
    builder.apply(Loop(make, 1), builder.input("n", *COUNT), None, builder.input("x", "int64", (2,)))
    assert builder.nodes[0].op.body.inputs[0].shape == (1,)


def test_scan() -> None:
    step = graph(lambda op, s, x, w: (op.Add(s, x), op.Mul(x, w)), f32("?"), f32("?"), f32("?"))
    state, rows = apply(Scan(step, 1, 1), f32("H"), f32(5, "H"), f32("H"))
    assert state.shape == (symbol("H"),)
    assert rows.shape == (5, symbol("H"))
    state, rows = apply(Scan(step, 1, 1, (-1,), (1,), (-1,)), f32(4), f32(4, "T"), f32(4))
    assert state.shape == (4,)
    assert rows.shape == (4, symbol("T"))


def test_scan_fills_in_axes_and_directions() -> None:
    step = graph(lambda op, x: op.Neg(x), f32(3))
    builder = Builder()
    builder.apply(Scan(step, 1), builder.input("x", *f32(5, 3)))
    op = builder.nodes[0].op
    assert (op.scan_input_axes, op.scan_input_directions) == ((0,), (0,))
    assert (op.scan_output_axes, op.scan_output_directions) == ((0,), (0,))


def test_operations_are_counted() -> None:
    builder = Builder()
    add = body(lambda op, x: op.Add(x, x), f32(6))
    n = builder.constant(np.array(5, np.int64))
    builder.apply(Loop(add, 1), n, None, builder.input("x", *f32(6)))
    assert builder.nodes[0].op.cost(*builder.nodes[0].inputs)[0] == 5 * 6
    branches = [graph(make, f32(6)) for make in (lambda op, x: op.Neg(x), lambda op, x: op.Neg(op.Neg(x)))]
    cond, x = builder.input("cond", "bool", ()), builder.input("x", *f32(6))
    builder.apply(If(*branches), cond, x)
    assert builder.nodes[1].op.cost(cond, x)[0] == 12
    builder.apply(Scan(graph(lambda op, x: op.Neg(x), f32(3)), 1), builder.input("z", *f32(5, 3)))
    assert builder.nodes[2].op.cost(*builder.nodes[2].inputs)[0] == 15


NEG = graph(lambda op, x: op.Neg(x), f32(3))
ROUND = body(lambda op, x: op.Neg(x), f32(3))


@pytest.mark.parametrize(
    ("op", "operands", "message"),
    [
        (If(NEG, NEG), (("int64", ()), f32(3)), "wants one bool"),
        (If(NEG, NEG), (("bool", (2,)), f32(3)), "wants one bool"),
        (If(NEG, NEG), (BOOL,), "takes 1 inputs, and 0 values are captured"),
        (If(NEG, graph(lambda op, x: (x, x), f32(3))), (BOOL, f32(3)), "different numbers of outputs"),
        (If(NEG, graph(lambda op, x: op.NonZero(x), f32(3))), (BOOL, f32(3)), "float32 in one branch and int64"),
        (Loop(ROUND, 1), (("int32", ()), None, f32(3)), "wants one int64"),
        (Loop(ROUND, 1), (("int64", (2,)), None, f32(3)), "wants one int64"),
        (Loop(ROUND, 1), (None, ("int64", ()), f32(3)), "wants one bool"),
        (Loop(ROUND, 1), (COUNT, None), "1 carried values, and 0 operands"),
        (Loop(ROUND, 1), (COUNT, None, f32(3), f32(3)), "takes 3 inputs, wants 4"),
        (Loop(ROUND, 2), (COUNT, None, f32(3)), "2 carried values, and 1 operands"),
        (Loop(graph(lambda op, i, c, x: c, COUNT, BOOL, f32(3)), 1), (COUNT, None, f32(3)), "at least 2"),
        (Loop(graph(lambda op, i, c, x: (i, x), COUNT, BOOL, f32(3)), 1), (COUNT, None, f32(3)), "is not bool"),
        (
            Loop(graph(lambda op, i, c, x: (c, op.NonZero(x)), COUNT, BOOL, f32(3)), 1),
            (COUNT, None, f32(3)),
            "float32 at first and int64 afterwards",
        ),
        (Scan(NEG, 0), (f32(5, 3),), "num_scan_inputs is 0"),
        (Scan(NEG, 2), (f32(5, 3),), "1 operands are not enough"),
        (Scan(NEG, 1, 0, (0, 0)), (f32(5, 3),), "2 numbers for 1 scan inputs"),
        (Scan(NEG, 1, 0, (2,)), (f32(5, 3),), "axis 2 is out of range"),
        (Scan(NEG, 1, 0, None, None, (3,)), (f32(5, 3),), "axis 3 is out of range"),
        (Scan(NEG, 1, 0, None, (2,)), (f32(5, 3),), "wants 0 or 1"),
        (Scan(graph(lambda op, x, y: op.Add(x, y), f32(), f32()), 2), (f32(5), f32(4)), "different numbers of slices"),
    ],
)
def test_refused(op: Any, operands: Any, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        apply(op, *operands)


def test_a_body_that_does_not_fit_names_its_node() -> None:
    wants_vectors = body(lambda op, x: op.Reshape(x, op.constant(np.array([3]))), f32(3))
    with pytest.raises(InferenceError, match=r"Reshape .*number of elements differs"):
        apply(Loop(wants_vectors, 1), COUNT, None, f32(4))


def test_content_of_unknown_type() -> None:
    x = Value("x", TensorType("float32"))
    step = graph(lambda op, s: op.apply(NonZero(), s), f32(3))
    builder = Builder()
    assert builder.apply(Scan(step, 1), x).rank == 3
