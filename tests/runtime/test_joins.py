"""Concats without a copy: where operands lie by hand, when one must copy and why, and the same bits in every mode."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aicore
import aicore.ops as ops
from aicore.ir import Builder, Graph, Value
from aicore.program import Program
from aicore.runtime import Plan, planner
from aicore.runtime.joins import JOINED
from tests.runtime.test_planner import claims

Array = np.ndarray[Any, Any]
ROWS, WIDTH = 3, 16
PITCH = 4 * WIDTH
"""Bytes of a row of the input, of float32."""


def compiled(graph: Graph, **options: Any) -> Program:
    return aicore.compile(graph, target="cpu", optimize=False, fallback="error", **options)


def graph_of(make: Callable[[Builder, Value], Any], shape: tuple[int, ...] = (ROWS, WIDTH)) -> Graph:
    """A graph of one input; `make` returns one value or several."""
    builder = Builder()
    x = builder.input("x", "float32", shape)
    made = make(builder, x)
    outputs = made if isinstance(made, tuple) else (made,)
    return builder.graph([x], {f"y{i}": value for i, value in enumerate(outputs)})


def run(graph: Graph, **options: Any) -> tuple[list[Array], Plan]:
    (value,) = graph.inputs
    x = np.linspace(-1, 1, int(np.prod(value.type.static_shape)), dtype=np.float32).reshape(value.type.static_shape)
    program = compiled(graph, **options)
    return list(program.run({"x": x}).values()), program.plan[0]


def places(plan: Plan) -> dict[str, tuple[int, int | None]]:
    """(offset within the root, pitch) by name of what lies in another buffer."""
    found = {}
    for number, buffer in enumerate(plan.buffers):
        if buffer.root != number and (buffer.pitch is not None or buffer.offset != plan.buffers[buffer.root].offset):
            found[buffer.name] = (buffer.offset - plan.buffers[buffer.root].offset, buffer.pitch)
    return found


def named(builder: Builder, op: ops.Op, *operands: Value, name: str) -> Any:
    return builder.apply(op, *operands, names=[name])


def notes(plan: Plan) -> dict[str, str]:
    return {node.outputs[0].name: note for node, note in plan.notes.items()}


def test_offsets_and_pitches_by_hand() -> None:
    def make(builder: Builder, x: Value) -> Value:
        a, b = named(builder, ops.Relu(), x, name="a"), named(builder, ops.Neg(), x, name="b")
        return named(builder, ops.Exp(), named(builder, ops.Concat(-1), a, b, name="c"), name="y")

    (result,), plan = run(graph_of(make))
    assert places(plan) == {"b": (PITCH, 2 * PITCH)} | {"a": (0, 2 * PITCH)}
    assert [type(step.node.op).__name__ for step in plan.steps] == ["Relu", "Neg", "Exp"]
    x = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(result, np.exp(np.concatenate([np.maximum(wide, 0), -wide], 1)), rtol=1e-6)


def test_a_chain_is_one_buffer_that_grows() -> None:
    def make(builder: Builder, x: Value) -> Value:
        grown = named(builder, ops.Relu(), x, name="n0")
        for i in range(1, 4):
            new = named(builder, ops.Exp(), x, name=f"n{i}")
            grown = named(builder, ops.Concat(1), grown, new, name=f"c{i}")
            read = builder.apply(ops.Neg(), grown)
        return builder.apply(ops.ReduceMax((0, 1)), read)

    _, plan = run(graph_of(make))
    parts = {f"n{i}": (i * PITCH, 4 * PITCH) for i in range(4)}
    assert places(plan) == {**parts, "c1": (0, 4 * PITCH), "c2": (0, 4 * PITCH)}
    assert set(notes(plan).values()) == {"its operands are computed where it has them"}
    roots = {buffer.root for buffer in plan.buffers if buffer.name in {*parts, "c1", "c2", "c3"}}
    assert [plan.buffers[root].name for root in roots] == ["c3"]


def test_operands_along_the_first_axis_are_dense() -> None:
    def make(builder: Builder, x: Value) -> Value:
        a, b = named(builder, ops.Relu(), x, name="a"), named(builder, ops.Neg(), x, name="b")
        return builder.apply(ops.Exp(), named(builder, ops.Concat(0), a, b, name="c"))

    _, plan = run(graph_of(make))
    assert places(plan) == {"b": (ROWS * PITCH, None)}


def test_rows_of_the_last_axis_only() -> None:
    def make(builder: Builder, x: Value) -> Value:
        a, b = builder.apply(ops.Relu(), x), builder.apply(ops.Neg(), x)
        return builder.apply(ops.Exp(), named(builder, ops.Concat(1), a, b, name="c"))

    _, plan = run(graph_of(make, (2, ROWS, WIDTH)))
    assert notes(plan) == {"c": "copies: its operands are neither dense parts of it nor parts of its rows"}


def two(builder: Builder, x: Value, *others: Value) -> Value:
    """A Concat of a part that may lie in it, and others."""
    joined: Value = named(builder, ops.Concat(1), named(builder, ops.Relu(), x, name="a"), *others, name="c")
    return joined


def _of_input(builder: Builder, x: Value) -> Value:
    return builder.apply(ops.Exp(), two(builder, x, x))


def _of_constant(builder: Builder, x: Value) -> Value:
    return builder.apply(ops.Exp(), two(builder, x, builder.constant(np.ones((ROWS, WIDTH), np.float32), "k")))


def _as_output(builder: Builder, x: Value) -> Value:
    return two(builder, x, builder.apply(ops.Neg(), x))


def _of_output(builder: Builder, x: Value) -> tuple[Value, Value]:
    b = named(builder, ops.Neg(), x, name="b")
    return builder.apply(ops.Exp(), two(builder, x, b)), b


def _twice(builder: Builder, x: Value) -> Value:
    b = builder.apply(ops.Neg(), x)
    return builder.apply(ops.Exp(), two(builder, x, b, b))


def _narrow(builder: Builder, x: Value) -> Value:
    b = builder.apply(ops.ReduceMax((1,)), x)
    return builder.apply(ops.Exp(), two(builder, x, b))


def _made_densely(builder: Builder, x: Value) -> Value:
    return builder.apply(
        ops.Exp(), two(builder, x, named(builder, ops.CumSum(), x, builder.constant(np.int64(1)), name="b"))
    )


def _read_densely(builder: Builder, x: Value) -> tuple[Value, Value]:
    b = named(builder, ops.Neg(), x, name="b")
    read = builder.apply(ops.CumSum(), b, builder.constant(np.int64(1)))
    return builder.apply(ops.Exp(), two(builder, x, b)), builder.apply(ops.Exp(), read)


def _renamed(builder: Builder, x: Value) -> tuple[Value, Value]:
    b = named(builder, ops.Neg(), x, name="b")
    return builder.apply(ops.Exp(), two(builder, x, b)), builder.apply(
        ops.Exp(), builder.apply(ops.Reshape((WIDTH, ROWS)), b)
    )


def _made_by_a_reshape(builder: Builder, x: Value) -> Value:
    b = named(builder, ops.Reshape((ROWS, WIDTH)), builder.apply(ops.Neg(), x), name="b")
    return builder.apply(ops.Exp(), two(builder, x, b))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_of_input, "copies: %x is not computed here"),
        (_of_constant, "copies: %k is not computed here"),
        (_as_output, "copies: its result is an output"),
        (_of_output, "copies: %b is an output"),
        (_twice, "copies: an operand occurs twice"),
        (_narrow, "copies: rows of fewer than 16 elements are not worth it"),
        (_made_densely, "copies: %b is made by cumsum_ufunc, which takes dense arrays only"),
        (_read_densely, "copies: %b is read by cumsum_ufunc, which takes dense arrays only"),
        (_renamed, "copies: %b is read by Reshape, which needs no kernel"),
        (_made_by_a_reshape, "copies: %b is made by Reshape, which needs no kernel"),
    ],
)
def test_reasons_to_copy(make: Callable[[Builder, Value], Any], reason: str) -> None:
    graph = graph_of(make)
    _, plan = run(graph)
    assert notes(plan) == {"c": reason}
    assert places(plan) == {}
    assert reason in str(explained(graph))


def explained(graph: Graph) -> Any:
    program = compiled(graph)
    program.run({"x": np.zeros(graph.inputs[0].type.static_shape, np.float32)})
    return program.explain()


def _plain(builder: Builder, x: Value) -> Value:
    result: Value = builder.apply(ops.Exp(), two(builder, x, builder.apply(ops.Neg(), x)))
    return result


def test_explains_what_needs_no_copy() -> None:
    choices = {choice.note: choice.kernel for choice in explained(graph_of(_plain)).kernels if choice.note}
    assert choices == {"its operands are computed where it has them": "alias"}


def test_the_first_of_two_concats_has_the_operand() -> None:
    def make(builder: Builder, x: Value) -> tuple[Value, Value]:
        a, b = named(builder, ops.Relu(), x, name="a"), named(builder, ops.Neg(), x, name="b")
        first, second = named(builder, ops.Concat(1), a, b, name="c"), named(builder, ops.Concat(1), b, a, name="d")
        return builder.apply(ops.Exp(), first), builder.apply(ops.Exp(), second)

    _, plan = run(graph_of(make))
    assert notes(plan) == {"c": "its operands are computed where it has them", "d": "copies: %b lies in %c"}


def test_a_part_of_another_axis_is_copied() -> None:
    def make(builder: Builder, x: Value) -> Value:
        a, b = named(builder, ops.Relu(), x, name="a"), named(builder, ops.Neg(), x, name="b")
        c = named(builder, ops.Concat(1), a, b, name="c")
        d = named(builder, ops.Concat(0), c, builder.apply(ops.Abs(), c), name="d")
        return builder.apply(ops.Exp(), d)

    _, plan = run(graph_of(make))
    assert notes(plan)["d"] == "copies: %c is itself joined along another axis"


def test_a_device_that_says_nothing_has_dense_buffers() -> None:
    """Its kernels are those of the CPU, marks included."""
    program = aicore.compile(graph_of(_plain), target="fake", optimize=False)
    program.run({"x": np.zeros((ROWS, WIDTH), np.float32)})
    assert {buffer.pitch for plan in program.plan for buffer in plan.buffers} == {None}
    assert program.plan[0].notes == {}


def _late_part(builder: Builder, x: Value) -> Value:
    """Parts that come early keep room for one that comes late, behind tensors that are larger than all of them."""
    a = named(builder, ops.Relu(), x, name="a")
    big = builder.apply(ops.Expand((600, 800)), builder.apply(ops.ReduceMax((0, 1)), x))
    small = builder.apply(ops.ReduceMax((0, 1)), builder.apply(ops.Neg(), big))
    b = named(builder, ops.Expand((ROWS, 40_000)), small, name="b0")
    c = named(builder, ops.Concat(1), a, builder.apply(ops.Neg(), b), name="c")
    return builder.apply(ops.ReduceMax((0, 1)), c)


def test_not_at_the_price_of_a_larger_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_SMALL", 0)
    _, plan = run(graph_of(_late_part))
    assert notes(plan)["c"].startswith("copies: else a run would need at least ")
    assert places(plan) == {}


def test_a_small_arena_may_be_larger() -> None:
    _, plan = run(graph_of(_late_part))
    assert notes(plan)["c"] == JOINED
    width = (WIDTH + 40_000) * 4
    assert places(plan) == {"a": (0, width), "neg": (WIDTH * 4, width)}


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Pointwise ops and Concats of what there is, along both axes."""
    builder = Builder()
    x = builder.input("x", "float32", (ROWS, WIDTH))
    known = [x]
    for _ in range(draw(st.integers(2, 14))):
        kind = draw(st.sampled_from(("relu", "neg", "add", "concat", "concat", "split")))
        value = draw(st.sampled_from(known))
        alike = [v for v in known if v.type == value.type]
        axis = draw(st.integers(0, 1))
        same = [v for v in known if v.type.static_shape[1 - axis] == value.type.static_shape[1 - axis]]
        if kind == "concat" and value.type.static_shape[axis] < 200:
            known.append(
                builder.apply(ops.Concat(axis), *draw(st.lists(st.sampled_from(same), min_size=1, max_size=3)))
            )
        elif kind == "split" and value.type.static_shape[axis] % 2 == 0:
            known += builder.apply(ops.Split(axis=axis, num_outputs=2), value)
        elif kind == "add":
            known.append(builder.apply(ops.Add(), value, draw(st.sampled_from(alike))))
        else:
            known.append(builder.apply(ops.Neg() if kind == "neg" else ops.Relu(), value))
    outputs = draw(st.lists(st.sampled_from(known[1:]), min_size=1, max_size=3, unique=True))
    return builder.graph([x], {f"y{i}": value for i, value in enumerate(outputs)})


@given(networks())
@settings(max_examples=60, deadline=None)
def test_every_way_of_planning_gives_the_same_bits(graph: Graph) -> None:
    plain, _ = run(graph, reuse_memory=False)
    for options in ({}, {"poison": True}, {"threads": 1}):
        results, plan = run(graph, **options)
        for expected, got in zip(plain, results, strict=True):
            np.testing.assert_array_equal(expected, got)
        for held in claims(plan):
            ordered = sorted(held)
            for (_, end, _), (start, _, _) in itertools.pairwise(ordered):
                assert end <= start, "two live buffers share bytes"


@given(networks())
@settings(max_examples=60, deadline=None)
def test_parts_of_one_root_share_no_byte(graph: Graph) -> None:
    _, plan = run(graph)
    made = [plan.buffers[i] for step in plan.steps for i in step.outputs]
    written: dict[int, Array] = {}
    for buffer in made:
        if buffer.pitch is None:
            continue
        root = plan.buffers[buffer.root]
        count = written.setdefault(buffer.root, np.zeros(root.nbytes, np.int64))
        rows, width = buffer.type.static_shape
        for row in range(rows):
            start = buffer.offset - root.offset + row * buffer.pitch
            assert start + 4 * width <= root.nbytes
            count[start : start + 4 * width] += 1
    assert all(count.max() <= 1 for count in written.values())
