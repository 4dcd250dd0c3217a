"""Graphs that look like attention, or nearly: whatever the passes make of them computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Graph, Value, symbol
from aicore.ops.attention import is_factor
from aicore.passes.fuse_attention import FuseAttention
from tests.passes.graphs import assert_same, floats, kinds
from tests.passes.test_fuse_attention import after

SHAPE = (2, 3, 5, 4)


def attention(
    op: Builder, q: Value, k: Value, v: Value, mask: Any = None, factor: Any = None, over: bool = False
) -> Value:
    turned = op.Transpose(k, perm=(*range((k.rank or 0) - 2), (k.rank or 0) - 1, (k.rank or 0) - 2))
    scores = op.MatMul(q, turned)
    if factor is not None:
        scores = op.Div(scores, op.constant(factor)) if over else op.Mul(scores, op.constant(factor))
    if mask is not None:
        scores = op.Add(scores, mask)
    result: Value = op.MatMul(op.Softmax(scores, axis=-1), v)
    return result


def inputs(op: Builder, dtype: str = "float32", shape: Any = SHAPE) -> list[Value]:
    return [op.input(name, dtype, shape) for name in "qkv"]


MASKS = [(), (1,), (5,), (5, 1), (1, 5), (5, 5), (3, 1, 1), (2, 1, 5, 1), (2, 3, 1, 1), (2, 3, 5, 5), (7, 1, 1, 1, 5)]


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_masks_of_every_shape_that_broadcasts(shape: tuple[int, ...], turn: bool) -> None:
    op = Builder()
    q, k, v = inputs(op)
    mask = op.input("m", "float32", shape)
    y = attention(op, q, k, v, mask)
    if turn and len(shape) <= 4:
        y = op.Transpose(y, perm=(0, 2, 1, 3))
    graph = op.graph([q, k, v, mask], {"y": y})
    found, _ = after(graph)
    assert ("DotProductAttention" in kinds(found)) == (len(shape) <= 4)  # a fifth axis is none that attention has
    assert_same(graph, found, *(floats(*SHAPE) for _ in "qkv"), floats(*shape))


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("factor", [0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -0.25, 1e-30])
def test_factors(factor: float, over: bool) -> None:
    """A factor that float32 cannot have, or of which it loses digits, stays where it is."""
    op = Builder()
    q, k, v = inputs(op)
    graph = op.graph([q, k, v], {"y": attention(op, q, k, v, factor=np.float32(factor), over=over)})
    found, _ = after(graph)
    fits = {0.0: not over, -0.25: True, 1e-30: True}.get(factor, False)
    assert ("DotProductAttention" in kinds(found)) == fits
    with np.errstate(all="ignore"):
        assert_same(graph, found, *(floats(*SHAPE) for _ in "qkv"))


@pytest.mark.parametrize(("number", "fits"), [(0, True), (2.0**-126, True), (2.0**-127, False), (-(2.0**127), False)])
def test_what_float32_can_have(number: float, fits: bool) -> None:
    assert is_factor(number) == fits


def test_factors_of_operands_that_are_too_large_together_stay() -> None:
    op = Builder()
    q, k, v = inputs(op)
    large = op.constant(np.float32(1e30))
    turned = op.Mul(op.Transpose(k, perm=(0, 1, 3, 2)), large)
    y = op.MatMul(op.Softmax(op.MatMul(op.Mul(q, large), turned)), v)
    graph = op.graph([q, k, v], {"y": y})
    found, _ = after(graph)
    assert kinds(found).count("Mul") == 2
    assert_same(graph, found, *(1e-30 * floats(*SHAPE) for _ in "qk"), floats(*SHAPE))


def test_a_factor_with_more_axes_than_the_scores_adds_them() -> None:
    op = Builder()
    q, k, v = inputs(op, shape=SHAPE[2:])
    y = attention(op, q, k, v, factor=np.full((1, 1, 1), 0.5, np.float32))
    graph = op.graph([q, k, v], {"y": y})
    assert y.rank == 3
    found, ctx = after(graph)
    assert "DotProductAttention" not in kinds(found)
    assert "more axes" in ctx.why_not("attention-times-scale")
    assert_same(graph, found, *(floats(*SHAPE[2:]) for _ in "qkv"))


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -4])
def test_a_softmax_along_another_axis(axis: int) -> None:
    op = Builder()
    q, k, v = inputs(op)
    y = op.MatMul(op.Softmax(op.MatMul(q, op.Transpose(k, perm=(0, 1, 3, 2))), axis=axis), v)
    graph = op.graph([q, k, v], {"y": y})
    found, _ = after(graph)
    assert "DotProductAttention" not in kinds(found)
    assert_same(graph, found, *(floats(*SHAPE) for _ in "qkv"))


@pytest.mark.parametrize("which", ["scores", "scaled", "masked", "probabilities"])
@pytest.mark.parametrize("how", ["output", "reader"])
def test_inner_values_that_others_need_are_there(which: str, how: str) -> None:
    op = Builder()
    q, k, v = inputs(op)
    found: dict[str, Value] = {"scores": op.MatMul(q, op.Transpose(k, perm=(0, 1, 3, 2)))}
    found["scaled"] = op.Mul(found["scores"], op.constant(np.float32(0.5)))
    found["masked"] = op.Add(found["scaled"], op.constant(floats(5, 5)))
    found["probabilities"] = op.Softmax(found["masked"])
    other = found[which] if how == "output" else op.Relu(found[which])
    graph = op.graph([q, k, v], {"y": op.MatMul(found["probabilities"], v), "other": other})
    after_passes, _ = after(graph)
    # The scores are computed once only.
    assert "DotProductAttention" not in kinds(after_passes)
    assert_same(graph, after_passes, *(floats(*SHAPE) for _ in "qkv"))


def test_two_heads_of_networks_read_one_attention() -> None:
    op = Builder()
    q, k, v = inputs(op)
    y = attention(op, q, k, v)
    turned = op.Transpose(y, perm=(0, 2, 1, 3))
    graph = op.graph([q, k, v], {"y": y, "turned": turned, "again": op.Relu(turned)})
    found, _ = after(graph)
    assert kinds(found).count("DotProductAttention") == 1
    assert_same(graph, found, *(floats(*SHAPE) for _ in "qkv"))


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_element_types(dtype: str) -> None:
    op = Builder()
    q, k, v = inputs(op, dtype)
    graph = op.graph([q, k, v], {"y": attention(op, q, k, v, factor=np.array(0.5, dtype))})
    found, _ = after(graph)
    tolerance = {"float64": 1e-12, "float16": 1e-2}[dtype]
    assert_same(graph, found, *(floats(*SHAPE, dtype=dtype) for _ in "qkv"), tolerance=tolerance)


def test_open_sizes_are_read_where_they_were_made() -> None:
    op = Builder()
    n = symbol("n")
    q, k, v = inputs(op, shape=("n", 3, 5, 4))
    graph = op.graph([q, k, v], {"y": op.Transpose(attention(op, q, k, v), perm=(0, 2, 1, 3))})
    found, _ = after(graph)
    assert kinds(found).count("DotProductAttention") == 1
    shape = found.outputs[0][1].type.shape
    assert shape is not None
    assert shape[0] == n
    for size in (1, 2):
        assert_same(graph, found, *(floats(size, 3, 5, 4) for _ in "qkv"))


@pytest.mark.parametrize("broadcast", [(1, 3, 5, 4), (2, 1, 5, 4), (1, 1, 5, 4)], ids=str)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_heads_that_are_shared(broadcast: tuple[int, ...], which: int) -> None:
    op = Builder()
    shapes = [broadcast if i == which else SHAPE for i in range(3)]
    q, k, v = (op.input(name, "float32", shape) for name, shape in zip("qkv", shapes, strict=True))
    graph = op.graph([q, k, v], {"y": op.Transpose(attention(op, q, k, v), perm=(2, 0, 1, 3))})
    found, _ = after(graph)
    assert_same(graph, found, *(floats(*shape) for shape in shapes))


@pytest.mark.parametrize("seed", range(40))
def test_operands_from_random_moves(seed: int) -> None:
    """Operands that are any chain of Transpose, Reshape, Slice, Split and Gather are read right, or not at all."""
    random = np.random.default_rng(seed)
    op = Builder()
    x = op.input("x", "float32", (4, 6, 5, 2, 4))
    made = [_moved(op, x, random) for _ in "qkv"]
    graph = _graph(op, x, made)
    found, _ = after(graph)
    assert "DotProductAttention" in kinds(found)
    assert_same(graph, found, floats(4, 6, 5, 2, 4), tolerance=1e-4)


def _moved(op: Builder, x: Value, random: np.random.Generator) -> Value:
    """Some (4, 3, 5, 4) of x's elements."""
    x = op.Transpose(x, perm=tuple(map(int, random.permutation(5)))) if random.integers(2) else x
    axis = next(a for a, size in enumerate(x.type.static_shape) if size == 2)
    part = int(random.integers(2))
    match int(random.integers(3)):
        case 0:
            x = op.Gather(x, op.constant(np.int64(part - 2 * int(random.integers(2)))), axis=axis)
        case 1:
            pieces = op.Split(x, axis=axis, num_outputs=2)
            x = op.Squeeze(pieces[part], axes=(axis,))
        case _:
            x = op.Squeeze(op.Slice(x, starts=(part,), ends=(part + 1,), axes=(axis,)), axes=(axis,))
    axis = next(a for a, size in enumerate(x.type.static_shape) if size == 6)
    x = op.Slice(x, starts=(int(random.integers(4)) - (6 if random.integers(2) else 0),), ends=(99,), axes=(axis,))
    x = op.Slice(x, starts=(0,), ends=(3,), axes=(axis,))
    order = _order_of(x.type.static_shape, random)
    return op.Transpose(x, perm=order) if order else x


def _order_of(shape: tuple[int, ...], random: np.random.Generator) -> tuple[int, ...]:
    """Axes so that the sizes become (4, 3, 5, 4); which of the equal ones comes first is random."""
    fours = [axis for axis, size in enumerate(shape) if size == 4]
    random.shuffle(fours)
    return (fours[0], shape.index(3), shape.index(5), fours[1])


def _graph(op: Builder, x: Value, made: list[Value]) -> Graph:
    q, k, v = made
    return op.graph([x], {"y": attention(op, q, k, v, factor=np.float32(0.5))})


@pytest.mark.parametrize("fused", [True, False])
def test_the_pass_alone_and_with_the_others(fused: bool) -> None:
    op = Builder()
    q, k, v = inputs(op)
    graph = op.graph([q, k, v], {"y": attention(op, q, k, v, op.constant(floats(5)), np.float32(2))})
    found, _ = after(graph, *(() if fused else (FuseAttention(),)))
    assert_same(graph, found, *(floats(*SHAPE) for _ in "qkv"))


NORMS = ["other axis", "bias of rows", "shown", "twice", "broadcast", "float64", "same operand"]


@pytest.mark.parametrize("change", NORMS)
def test_sums_before_normalisations(change: str) -> None:
    op = Builder()
    dtype = "float64" if change == "float64" else "float32"
    x = op.input("x", dtype, (2, 3, 8))
    y = op.input("y", dtype, (3, 1) if change == "broadcast" else (2, 3, 8))
    total = op.Add(x, x if change == "same operand" else y)
    axis = 1 if change == "other axis" else -1
    scale = op.constant(floats(*((3, 8) if change == "other axis" else (8,)), dtype=dtype))
    bias = op.constant(floats(*((3, 8) if change in ("other axis", "bias of rows") else (8,)), dtype=dtype))
    outputs = {"z": op.LayerNormalization(total, scale, bias, axis=axis)}
    if change == "shown":
        outputs["total"] = total
    if change == "twice":
        outputs["again"] = op.RMSNormalization(total, scale, axis=axis)
    graph = op.graph([x, y], outputs)
    found, _ = after(graph)
    fused = "AddNormalizationSum" if change in ("shown", "twice") else "AddNormalization"
    assert [kind for kind in kinds(found) if kind.startswith("AddNormalization")] == [fused]
    arrays = [floats(*value.type.static_shape, dtype=dtype) for value in graph.inputs]
    assert_same(graph, found, *arrays, tolerance=1e-12 if dtype == "float64" else 1e-5)
