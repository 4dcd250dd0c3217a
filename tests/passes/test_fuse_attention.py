"""Attention is recognised, and reads and writes in the order of axes that its neighbours have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aicore.ir import Builder, Graph, Value
from aicore.ops.attention import DotProductAttention
from aicore.ops.fused_normalization import AddNormalization, AddNormalizationSum
from aicore.passes import run_passes
from aicore.passes.cancel_transposes import CancelTransposes
from aicore.passes.fuse_attention import FuseAttention
from aicore.passes.fuse_linear import FuseLinear
from aicore.passes.fuse_normalization import FuseNormalization
from aicore.passes.read_views import ReadViews
from aicore.passes.remove_dead import RemoveDead
from aicore.rewrite import Context
from tests.passes.graphs import assert_same, context, floats, kinds, lacking

PASSES = (FuseAttention(), FuseLinear(), ReadViews(), FuseNormalization(), RemoveDead())
SHAPE = (2, 3, 5, 4)


def after(graph: Graph, *passes: Any, **options: Any) -> tuple[Graph, Context]:
    ctx = context(**options)
    found, report = run_passes(graph, passes or PASSES, ctx)
    assert not report.errors
    return found, ctx


def operands(op: Builder, rank: int = 4) -> tuple[Value, Value, Value]:
    """q and v, and k with its last axes exchanged."""
    shape = SHAPE[4 - rank :]
    q, k, v = (op.input(name, "float32", shape) for name in "qkv")
    perm = (*range(rank - 2), rank - 1, rank - 2)
    return q, op.Transpose(k, perm=perm), v


def feeds(rank: int = 4) -> list[np.ndarray[Any, Any]]:
    return [floats(*SHAPE[4 - rank :]) for _ in "qkv"]


def scaled(op: Builder, scores: Value, form: str) -> Value:
    if form == "plain":
        return scores
    factor = op.constant(np.float32(4.0 if form == "over" else 0.25))
    return op.Div(scores, factor) if form == "over" else op.Mul(factor, scores)


@pytest.mark.parametrize("form", ["plain", "times", "over"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_forms(form: str, masked: bool, rank: int) -> None:
    op = Builder()
    q, k, v = operands(op, rank)
    scores = scaled(op, op.MatMul(q, k), form)
    if masked:
        scores = op.Add(scores, op.constant(floats(5, 5)))
    y = op.MatMul(op.Softmax(scores, axis=-1), v)
    graph = op.graph(op_inputs(op), {"y": y})
    found, _ = after(graph)
    assert kinds(found) == ["DotProductAttention"]
    attention = found.nodes[0].op
    assert isinstance(attention, DotProductAttention)
    assert attention.scale == (1.0 if form == "plain" else 0.25)
    assert attention.k_layout == "bhld"[4 - rank :]
    assert_same(graph, found, *feeds(rank), tolerance=1e-5)


def op_inputs(op: Builder) -> list[Value]:
    """Operands without a producer, in the order of use."""
    made = {value for node in op.nodes for value in node.outputs}
    used = [v for node in op.nodes for v in node.inputs if v is not None and v not in made and v.constant is None]
    return sorted(dict.fromkeys(used), key=lambda value: "qkvmx".index(value.name))


def core(op: Builder, **options: Any) -> Graph:
    q, k, v = operands(op)
    scores = op.MatMul(q, k)
    probabilities = op.Softmax(scores, axis=options.get("axis", -1))
    outputs = {"y": op.MatMul(probabilities, v)}
    if "shown" in options:
        outputs["probabilities"] = probabilities
    return op.graph(op_inputs(op), outputs)


def test_probabilities_that_are_shown_stay() -> None:
    found, _ = after(core(Builder(), shown=True), FuseAttention())
    assert "DotProductAttention" not in kinds(found)


def test_a_softmax_along_queries_is_none() -> None:
    found, ctx = after(core(Builder(), axis=2), FuseAttention())
    assert "DotProductAttention" not in kinds(found)
    assert "the Softmax is along axis 2" in ctx.why_not("attention-unscaled")


def test_a_factor_that_is_computed_is_none() -> None:
    op = Builder()
    q, k, v = operands(op)
    factor = op.input("m", "float32", (1,))
    graph = op.graph([*op_inputs(op), factor, v], {"y": op.MatMul(op.Softmax(op.Mul(op.MatMul(q, k), factor)), v)})
    found, ctx = after(graph, FuseAttention())
    assert "DotProductAttention" not in kinds(found)
    assert "not a constant number" in ctx.why_not("attention-times-scale")


def test_a_division_by_zero_stays() -> None:
    op = Builder()
    q, k, v = operands(op)
    graph = op.graph(
        [*op_inputs(op), v], {"y": op.MatMul(op.Softmax(op.Div(op.MatMul(q, k), op.constant(np.float32(0)))), v)}
    )
    found, ctx = after(graph, FuseAttention())
    assert "DotProductAttention" not in kinds(found)
    assert "divides by 0" in ctx.why_not("attention-over-scale")


def test_operands_of_different_ranks_stay() -> None:
    op = Builder()
    q, k = op.input("q", "float32", (2, 3, 5, 4)), op.input("k", "float32", (4, 5))
    v = op.input("v", "float32", (5, 4))
    graph = op.graph([q, k, v], {"y": op.MatMul(op.Softmax(op.MatMul(q, k)), v)})
    found, ctx = after(graph, FuseAttention())
    assert "DotProductAttention" not in kinds(found)
    assert "ranks (4, 2, 2)" in ctx.why_not("attention-unscaled")


def test_a_target_without_the_kernel_keeps_the_parts() -> None:
    found, ctx = after(core(Builder()), FuseAttention(), supports=lacking(DotProductAttention))
    assert kinds(found) == ["Transpose", "MatMul", "Softmax", "MatMul"]
    assert "no kernel for DotProductAttention" in ctx.why_not("attention-unscaled")


def encoder_layer(batch: int, length: int, first: bool, packed: str) -> tuple[Graph, list[np.ndarray[Any, Any]]]:
    """Self-attention with its products, as exporters write it; `first`: positions are axis 0 inside, as in PyTorch."""
    heads, size = 2, 4
    width = heads * size
    op = Builder()
    x = op.input("x", "float32", (batch, length, width))
    rows = op.Transpose(x, perm=(1, 0, 2)) if first else x
    outer = (length, batch) if first else (batch, length)
    w, bias = op.constant(floats(width, 3 * width)), op.constant(floats(3 * width))
    parts = op.Add(op.MatMul(rows, w), bias)
    if packed == "split":
        made = list(op.Split(parts, axis=2, num_outputs=3))
    elif packed == "slice":
        made = [op.Slice(parts, starts=(i * width,), ends=((i + 1) * width,), axes=(2,)) for i in range(3)]
    else:
        five = op.Unsqueeze(op.Reshape(parts, shape=(*outer, 3, width)), axes=(0,))
        stacked = op.Squeeze(op.Transpose(five, perm=(3, 1, 2, 0, 4)), axes=(3,))
        made = [op.Gather(stacked, op.constant(np.int64(i)), axis=0) for i in range(3)]
    if first:
        turned = [op.Transpose(op.Reshape(m, shape=(length, batch * heads, size)), perm=(1, 0, 2)) for m in made]
        q, k, v = (op.Reshape(m, shape=(batch, heads, length, size)) for m in turned)
    else:
        q, k, v = (op.Transpose(op.Reshape(m, shape=(*outer, heads, size)), perm=(0, 2, 1, 3)) for m in made)
    root = op.constant(np.float32([size**-0.25]))
    scores = op.MatMul(op.Mul(q, root), op.Mul(op.Transpose(k, perm=(0, 1, 3, 2)), root))
    y = op.MatMul(op.Softmax(scores), v)
    y = op.Transpose(y, perm=(2, 0, 1, 3) if first else (0, 2, 1, 3))
    flat = op.Reshape(y, shape=(batch * length, width))
    out = op.Gemm(flat, op.constant(floats(width, width)), op.constant(floats(width)), transB=1)
    out = op.Reshape(out, shape=(*outer, width))
    out = op.Transpose(out, perm=(1, 0, 2)) if first else out
    scale = op.constant(floats(width))
    y = op.LayerNormalization(op.Add(x, out), scale, scale, axis=-1)
    return op.graph([x], {"y": y}), [floats(batch, length, width)]


@pytest.mark.parametrize("packed", ["split", "slice", "gather"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_an_encoder_layer_moves_nothing(batch: int, first: bool, packed: str) -> None:
    graph, arrays = encoder_layer(batch, 5, first, packed)
    found, _ = after(graph)
    assert [kind for kind in kinds(found) if kind != "Reshape"] == [
        "MatMulAdd",
        "DotProductAttention",
        "Gemm",
        "AddNormalization",
    ]
    attention = next(node.op for node in found.nodes if isinstance(node.op, DotProductAttention))
    assert attention.parts == (0, 1, 2)
    assert attention.q_layout == attention.k_layout == attention.v_layout == "blphd"
    assert attention.y_layout == "blhd"
    assert attention.scale == pytest.approx(0.5)
    assert_same(graph, found, *arrays, tolerance=1e-4)


def test_products_that_others_use_are_not_made_twice() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 5, 8))
    rows = op.MatMul(op.Transpose(x, perm=(1, 0, 2)), op.constant(floats(8, 8)))
    q = op.Transpose(op.Reshape(rows, shape=(5, 2, 2, 4)), perm=(1, 2, 0, 3))
    y = op.MatMul(op.Softmax(op.MatMul(q, op.Transpose(q, perm=(0, 1, 3, 2)))), q)
    graph = op.graph([x], {"y": y, "rows": rows})
    found, _ = after(graph)
    assert [kind for kind in kinds(found) if kind != "Reshape"] == ["Transpose", "MatMul", "DotProductAttention"]
    assert_same(graph, found, floats(2, 5, 8), tolerance=1e-4)


def test_heads_that_are_flattened_across_axes_are_copied() -> None:
    """A view whose head axis spans two axes of the source cannot be said by strides."""
    op = Builder()
    x = op.input("x", "float32", (4, 3, 5, 2))
    q = op.Reshape(op.Transpose(x, perm=(1, 0, 2, 3)), shape=(2, 6, 5, 2))
    y = op.MatMul(op.Softmax(op.MatMul(q, op.Transpose(q, perm=(0, 1, 3, 2)))), q)
    graph = op.graph([x], {"y": y})
    found, _ = after(graph)
    assert kinds(found) == ["Transpose", "Reshape", "DotProductAttention"]
    assert_same(graph, found, floats(4, 3, 5, 2), tolerance=1e-4)


def test_values_keep_their_factor() -> None:
    op = Builder()
    q, k, v = (op.input(name, "float32", SHAPE) for name in "qkv")
    two = op.constant(np.float32(2))
    y = op.MatMul(op.Softmax(op.MatMul(op.Div(q, two), op.Transpose(k, perm=(0, 1, 3, 2)))), op.Mul(v, two))
    graph = op.graph([q, k, v], {"y": y})
    found, _ = after(graph)
    assert kinds(found) == ["Mul", "DotProductAttention"]
    assert_same(graph, found, *feeds(), tolerance=1e-5)


@pytest.mark.parametrize("change", ["none", "open", "perm", "each", "outer"])
def test_rows_in_another_order(change: str) -> None:
    """The order of rows goes through a product of rows, and through nothing else."""
    op = Builder()
    q, k, v = (op.input(name, "float32", SHAPE) for name in "qkv")
    y = op.MatMul(op.Softmax(op.MatMul(q, op.Transpose(k, perm=(0, 1, 3, 2)))), v)
    flat = op.Reshape(op.Transpose(y, perm=(2, 0, 1, 3)), shape=(-1 if change == "open" else 10, 12))
    bias = floats(10, 6) if change == "each" else floats(6)
    rows = op.Reshape(
        op.Gemm(flat, op.constant(floats(12, 6)), op.constant(bias)),
        shape=(10, 2, 3) if change == "outer" else (5, 2, 6),
    )
    result = op.Transpose(rows, perm=(1, 2, 0) if change == "perm" else (1, 0, 2))
    graph = op.graph([q, k, v], {"y": result})
    found, ctx = after(graph)
    assert ("Transpose" in kinds(found)) == (change not in ("none", "open"))
    if "Transpose" in kinds(found):
        reason = {"perm": "exchange the first two", "each": "something else for each row", "outer": "are not the rows"}
        assert reason[change] in ctx.why_not("order-rows-of-attention")
    assert_same(graph, found, *feeds(), tolerance=1e-4)


def test_sums_join_normalisations() -> None:
    op = Builder()
    x, y = op.input("x", "float32", (2, 3, 8)), op.input("y", "float32", (2, 3, 8))
    scale, bias = op.constant(floats(8)), op.constant(floats(8))
    layer = op.LayerNormalization(op.Add(x, y), scale, bias, axis=-1)
    root = op.RMSNormalization(op.Add(x, layer), scale, axis=-1)
    graph = op.graph([x, y], {"layer": layer, "root": root})
    found, _ = after(graph)
    assert kinds(found) == ["AddNormalization", "AddNormalization"]
    assert_same(graph, found, floats(2, 3, 8), floats(2, 3, 8), tolerance=1e-5)


def test_sums_that_others_use_are_results_too() -> None:
    op = Builder()
    x, y = op.input("x", "float32", (2, 8)), op.input("y", "float32", (2, 8))
    both = op.Add(x, y)
    graph = op.graph([x, y], {"sum": both, "y": op.LayerNormalization(both, op.constant(floats(8)))})
    found, _ = after(graph)
    assert kinds(found) == ["AddNormalizationSum"]
    assert_same(graph, found, floats(2, 8), floats(2, 8), tolerance=1e-5)


def test_residuals_that_are_read_again() -> None:
    """As in a transformer that normalises before each part: every sum goes on beside its normalisation."""
    op = Builder()
    x = op.input("x", "float32", (2, 3, 8))
    scale, bias, w = op.constant(floats(8)), op.constant(floats(8)), op.constant(floats(8, 8))
    total = x
    for _ in range(3):
        product = op.MatMul(op.LayerNormalization(total, scale, bias, axis=-1), w)
        total = op.Add(total, op.Add(product, bias))
    graph = op.graph([x], {"y": op.RMSNormalization(total, scale, axis=-1)})
    found, _ = after(graph)
    fused = [kind for kind in kinds(found) if kind.startswith("AddNormalization")]
    assert fused == ["AddNormalizationSum", "AddNormalizationSum", "AddNormalization"]
    assert "Add" not in kinds(found)
    assert_same(graph, found, floats(2, 3, 8), tolerance=1e-4)


def test_a_sum_that_is_read_before_it_is_normalised() -> None:
    op = Builder()
    x, y = op.input("x", "float32", (2, 8)), op.input("y", "float32", (2, 8))
    both = op.Add(x, y)
    early = op.Exp(both)
    layer = op.LayerNormalization(both, op.constant(floats(8)))
    graph = op.graph([x, y], {"y": op.Mul(early, layer)})
    found, _ = after(graph)
    assert kinds(found)[0] == "AddNormalizationSum"
    assert_same(graph, found, floats(2, 8), floats(2, 8), tolerance=1e-5)


def test_sums_before_normalisations_with_statistics_stay() -> None:
    op = Builder()
    x, y = op.input("x", "float32", (2, 8)), op.input("y", "float32", (2, 8))
    outputs = op.LayerNormalization(op.Add(x, y), op.constant(floats(8)), statistics=True)
    graph = op.graph([x, y], dict(zip(("y", "mean", "inverse"), outputs, strict=True)))
    found, _ = after(graph)
    assert kinds(found) == ["Add", "LayerNormalization"]


def test_fused_sums_need_a_kernel() -> None:
    op = Builder()
    x, y = op.input("x", "float32", (2, 8)), op.input("y", "float32", (2, 8))
    graph = op.graph([x, y], {"y": op.LayerNormalization(op.Add(x, y), op.constant(floats(8)))})
    found, ctx = after(graph, supports=lacking(AddNormalization, AddNormalizationSum))
    assert kinds(found) == ["Add", "LayerNormalization"]
    assert "no kernel for AddNormalization" in ctx.why_not("fuse-AddNormalization")
    assert "no kernel for AddNormalizationSum" in ctx.why_not("fuse-AddNormalizationSum")


def test_transposes_that_meet_are_read_through() -> None:
    """Simplified graphs have one Transpose where exporters wrote two."""
    graph, arrays = encoder_layer(2, 5, True, "gather")
    found, _ = after(graph, CancelTransposes(), *PASSES)
    assert kinds(found).count("Transpose") == 0
    assert_same(graph, found, *arrays, tolerance=1e-4)
