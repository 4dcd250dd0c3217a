"""The passes that make a graph smaller: folding, identities, common nodes, transposes, dead nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from aicore.ir import Builder, Graph, Op, TensorType, Value, retype, symbol, verify
from aicore.ops.random import Dropout
from aicore.ops.shape import Reshape
from aicore.passes import Pass, run_passes, specialise_passes
from aicore.passes.cancel_transposes import CancelTransposes
from aicore.passes.fold_constants import FoldConstants, FoldKnown
from aicore.passes.fold_shapes import FoldShapes
from aicore.passes.merge_common import MergeCommon
from aicore.passes.remove_dead import RemoveDead
from aicore.passes.remove_identities import RemoveIdentities
from aicore.passes.simplify_arithmetic import SimplifyArithmetic
from tests.passes.graphs import assert_same, context, floats, kinds, refuse

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32)


def after(graph: Graph, one: Pass, **options: Any) -> Graph:
    found, report = run_passes(graph, (one,), context(**options))
    assert not report.errors
    return found


@dataclass(frozen=True)
class Noise(Op):
    """Random, and says so."""

    pure: ClassVar[bool] = False

    def infer(self, x: Value) -> TensorType:
        return x.type


# ---- folding


def test_constants_fold() -> None:
    op = Builder()
    x, c = op.input("x", "float32", (3,)), op.constant(floats(3))
    graph = op.graph([x], {"y": op.Add(x, op.Exp(op.Mul(c, c))), "z": op.Neg(c)})
    found = after(graph, FoldConstants())
    assert kinds(found) == ["Add"]
    assert found.outputs[1][1].constant is not None
    assert_same(graph, found, floats(3), tolerance=0)


def test_folding_without_an_evaluator_is_said() -> None:
    op = Builder()
    graph = op.graph([], {"y": op.Neg(op.constant(floats(3)))})
    found, report = run_passes(graph, (FoldConstants(),), context(evaluate=None))
    assert found is graph
    assert report.rows[0].notes == ("no constants are folded: no launcher gives an evaluator",)


def test_ops_without_a_kernel_are_left_and_said() -> None:
    op = Builder()
    graph = op.graph([], {"y": op.Neg(op.constant(floats(3)))})
    found, report = run_passes(graph, (FoldConstants(),), context(evaluate=refuse))
    assert kinds(found) == ["Neg"]
    assert report.rows[0].notes == ("Neg is not folded: no kernel for Neg",)


def test_large_results_are_left_unless_they_replace_as_much() -> None:
    op = Builder()
    c = op.constant(floats(100))
    graph = op.graph([], {"a": op.Expand(c, op.constant([50, 100])), "b": op.Neg(c)})
    assert kinds(after(graph, FoldConstants(max_bytes=16))) == ["Expand"]


def test_random_ops_are_not_folded() -> None:
    op = Builder()
    c, key = op.constant(floats(4)), op.constant(np.array([1, 2], np.uint32))
    dropped = op.apply(Dropout(0.5, True), c, None, None, key)
    graph = op.graph([], {"a": op.apply(Noise(), c), "b": dropped})
    assert kinds(after(graph, FoldConstants())) == ["Dropout", "Noise"]


def test_control_flow_is_not_folded() -> None:
    op = Builder()
    branches = []
    for name in ("Neg", "Abs"):
        inner = Builder()
        x = inner.input("x", "float32", (2,))
        branches.append(inner.graph([x], {"y": getattr(inner, name)(x)}))
    y = op.If(op.constant(np.array(True)), op.constant(floats(2)), then_branch=branches[0], else_branch=branches[1])
    graph = op.graph([], {"y": y})
    assert kinds(after(graph, FoldConstants())) == ["If"]


def test_evaluation_of_another_type_is_rolled_back() -> None:
    op = Builder()
    graph = op.graph([], {"y": op.Neg(op.constant(floats(3)))})
    found, report = run_passes(graph, (FoldConstants(),), context(evaluate=lambda op, x: x.astype("float64")))
    assert found is graph
    assert "evaluation gives float64[3] for %neg, which is float32[3]" in report.errors[0]


def shape_graph() -> Graph:
    """(N, 4, 6) -> (N, 24), as exporters write it."""
    op = Builder()
    x = op.input("x", "float32", ("N", 4, 6))
    y = op.Relu(x)
    shape = op.Shape(y)
    rows = op.Unsqueeze(op.Gather(shape, op.constant(np.int64(0))), op.constant([0]))
    columns = op.Mul(op.Gather(shape, op.constant(np.int64(1))), op.Gather(shape, op.constant(np.int64(2))))
    wanted = op.Concat(rows, op.Unsqueeze(columns, op.constant([0])), axis=0)
    return op.graph([x], {"y": op.Reshape(y, wanted)})


def test_symbolic_shapes_fold_as_far_as_they_are_known() -> None:
    graph = shape_graph()
    found = after(graph, FoldShapes())
    assert found.outputs[0][1].shape == (symbol("N"), 24)
    assert kinds(found) == ["Relu", "Shape", "Gather", "Unsqueeze", "Concat", "Reshape"]
    assert_same(graph, found, floats(2, 4, 6), tolerance=0)


def test_concrete_shapes_fold_away() -> None:
    graph = retype(shape_graph(), [TensorType("float32", (5, 4, 6))])
    found = after(graph, FoldShapes())
    assert kinds(found) == ["Relu", "Reshape"]
    assert found.nodes[1].op == Reshape(shape=(5, 24))
    assert found.uses[found.nodes[0].outputs[0]] == 1
    assert_same(graph, found, floats(5, 4, 6), tolerance=0)


def test_operands_that_became_constant_move_into_fields_and_refine_types() -> None:
    op = Builder()
    x = op.input("x", "float32", (4, 6))
    wanted = op.Cast(op.constant(np.array([8, 3], np.float32)), to="int64")  # inference does not read through floats
    y = op.Relu(op.Reshape(x, wanted))
    assert y.shape is not None
    assert not y.type.is_static
    graph = op.graph([x], {"y": y})
    folded = after(graph, FoldConstants())
    assert len(folded.nodes[0].inputs) == 2
    found = after(folded, FoldShapes())
    assert found.nodes[0].op == Reshape(shape=(8, 3))
    assert len(found.nodes[0].inputs) == 1
    assert found.outputs[0][1].shape == (8, 3)
    verify(found)


def shares(count: int | str) -> Graph:
    """x / count in float32, one number at a time: as the gradient of a mean over a batch has it."""
    op = Builder()
    x = op.input("x", "float32", (count,))
    share = op.Div(op.constant(np.float32(1)), op.Cast(op.Size(x), to="float32"))
    return op.graph([x], {"y": op.Mul(x, op.Expand(op.Unsqueeze(share, axes=(0,)), op.Shape(x)))})


def sized(graph: Graph) -> Graph:
    return run_passes(graph, specialise_passes(), context())[0]


def test_what_sizes_make_known_folds() -> None:
    graph = shares("N")
    assert kinds(sized(graph)) == ["Size", "Cast", "Div", "Unsqueeze", "Shape", "Expand", "Mul"]
    known = retype(graph, [TensorType("float32", (4,))])
    found = sized(known)
    assert kinds(found) == ["Mul"]
    assert_same(known, found, floats(4), tolerance=0)


def test_what_sizes_make_known_stays_where_it_is_large() -> None:
    many = (FoldKnown().max_bytes + 4) // 4
    found = sized(retype(shares("N"), [TensorType("float32", (many,))]))
    assert kinds(found) == ["Expand", "Mul"]
    assert found.nodes[0].inputs[0].constant is not None
    assert found.nodes[0].inputs[0].constant.array.tolist() == [np.float32(1) / np.float32(many)]


def test_a_graph_without_constant_parts_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {"y": op.Relu(op.Mul(x, op.constant(floats(3))))})
    monkeypatch.setattr(FoldConstants, "_added_bytes", lambda *given: pytest.fail("a node was looked at"))
    found, _ = run_passes(graph, (FoldKnown(),), context())
    assert found is graph


def test_constants_of_other_integer_types_keep_them() -> None:
    op = Builder()
    x = op.input("x", "float32", (4, 6))
    graph = op.graph([x], {"y": op.Cast(op.Shape(x), to="int32"), "n": op.Size(x)})
    found = after(graph, FoldShapes())
    assert found.nodes == ()
    assert [str(v.type) for _, v in found.outputs] == ["int32[2]", "int64[]"]
    assert_same(graph, found, floats(4, 6), tolerance=0)


def test_nothing_to_fold_gives_the_same_graph() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N",))
    graph = op.graph([x], {"y": op.Relu(x)})
    for one in (FoldConstants(), FoldShapes(), RemoveIdentities(), MergeCommon(), CancelTransposes(), RemoveDead()):
        assert after(graph, one) is graph


# ---- identities


def removed(build: Any, *shape: Any, dtype: str = "float32") -> bool:
    """Whether the node between an input and a Relu is removed; what is left gives the same bits."""
    op = Builder()
    x = op.input("x", dtype, shape)
    graph = op.graph([x], {"y": op.Relu(build(op, x))})
    found = after(graph, RemoveIdentities())
    static = [d if isinstance(d, int) else 3 for d in shape]
    numbers = np.resize(SPECIAL, static).astype(dtype) if dtype.startswith("f") else np.resize([0, -1, 5], static)
    assert_same(graph, found, numbers.astype(dtype), tolerance=0)
    return kinds(found) == ["Relu"]


def test_identities_are_removed() -> None:
    assert removed(lambda op, x: op.Identity(x), "N", 4)
    assert removed(lambda op, x: op.Cast(x, to="float32"), "N", 4)
    assert removed(lambda op, x: op.CastLike(x, op.scalar(0, x)), "N", 4)
    assert removed(lambda op, x: op.Dropout(x), "N", 4)
    assert removed(lambda op, x: op.Reshape(x, shape=(-1, 4)), "N", 4)
    assert removed(lambda op, x: op.Reshape(x, shape=(3, 4)), 3, 4)
    assert removed(lambda op, x: op.Flatten(x), "N", 4)
    assert removed(lambda op, x: op.Squeeze(x), 3, 4)
    assert removed(lambda op, x: op.Unsqueeze(x, axes=()), 3, 4)
    assert removed(lambda op, x: op.Expand(x, shape=(1, 4)), "N", 4)
    assert removed(lambda op, x: op.Tile(x, repeats=(1, 1)), "N", 4)
    assert removed(lambda op, x: op.Transpose(x, perm=(0, 1)), "N", 4)
    assert removed(lambda op, x: op.Slice(x, starts=(0,), ends=(2**31,), axes=(1,)), "N", 4)
    assert removed(lambda op, x: op.Pad(x, pads=(0, 0, 0, 0)), "N", 4)
    assert removed(lambda op, x: op.Concat(x, axis=0), "N", 4)
    assert removed(lambda op, x: op.Split(x, axis=0, num_outputs=1), "N", 4)
    for name in ("Sum", "Max", "Min", "Mean"):
        assert removed(lambda op, x, name=name: getattr(op, name)(x), "N", 4)


def test_what_looks_like_an_identity_stays() -> None:
    assert not removed(lambda op, x: op.Reshape(x, shape=(4, -1)), "N", 4)
    assert not removed(lambda op, x: op.Expand(x, shape=(1, 1, 4)), "N", 4)
    assert not removed(lambda op, x: op.Transpose(x, perm=(1, 0)), 4, 4)
    assert not removed(lambda op, x: op.Slice(x, starts=(-1,), ends=(-99,), axes=(1,), steps=(-1,)), 3, 4)
    assert not removed(lambda op, x: op.Pad(x, pads=(0, 1, 0, -1)), 3, 4)
    assert not removed(lambda op, x: op.Cast(op.Cast(x, to="int32"), to="float32"), 4)
    assert not removed(lambda op, x: op.Sum(x, x), 4)


def one(x: Value, *shape: int, number: float = 1.0) -> Any:
    return np.full(shape, number, x.dtype)


def test_neutral_operands() -> None:
    assert removed(lambda op, x: op.Mul(x, op.constant(one(x))), "N", 4)
    assert removed(lambda op, x: op.Mul(op.constant(one(x, 4)), x), "N", 4)
    assert removed(lambda op, x: op.Div(x, op.constant(one(x, 1, 4))), "N", 4)
    assert removed(lambda op, x: op.Sub(x, op.constant(one(x, number=0.0))), "N", 4)
    assert removed(lambda op, x: op.Add(x, op.constant(one(x, number=-0.0))), "N", 4)
    assert removed(lambda op, x: op.Add(op.constant(one(x, number=0)), x), "N", 4, dtype="int32")


def test_operands_that_are_not_quite_neutral() -> None:
    assert not removed(lambda op, x: op.Mul(x, op.constant(one(x, 1, 1, 1))), "N", 4)  # another rank
    assert not removed(lambda op, x: op.Mul(x, op.constant(one(x, 3, 1))), 1, 4)  # broadcasts x
    assert not removed(lambda op, x: op.Mul(x, op.constant(np.array([1, 1, 1, 2], np.float32))), "N", 4)
    assert not removed(lambda op, x: op.Div(op.constant(one(x)), x), "N", 4)
    assert not removed(lambda op, x: op.Add(x, op.constant(one(x, number=0.0))), "N", 4)  # turns -0.0 into 0.0
    assert not removed(lambda op, x: op.Sub(x, op.constant(one(x, number=-0.0))), "N", 4)
    assert not removed(lambda op, x: op.Sub(op.constant(one(x, number=0.0)), x), "N", 4)


def test_an_input_beside_an_unknown_dim_keeps_its_reshape() -> None:
    op = Builder()
    x, n = op.input("x", "float32", ("N", 4)), op.input("n", "int64", (2,))
    graph = op.graph([x, n], {"y": op.Relu(op.Reshape(x, n))})
    assert after(graph, RemoveIdentities()) is graph


def test_dropout_that_trains_or_whose_mask_is_read_stays() -> None:
    op = Builder()
    x, key = op.input("x", "float32", (4,)), op.input("key", "uint32", (2,))
    trained = op.apply(Dropout(0.5, True), x, None, None, key)
    y, mask = op.apply(Dropout(0.5, mask=True), x)
    graph = op.graph([x, key], {"a": trained, "b": y, "m": mask})
    assert after(graph, RemoveIdentities()) is graph


def test_an_output_that_is_an_identity_of_an_input() -> None:
    op = Builder()
    x = op.input("x", "float32", (2,))
    graph = op.graph([x], {"y": op.Identity(op.Identity(x))})
    found = after(graph, RemoveIdentities())
    assert found.nodes == ()
    assert found.outputs == (("y", x),)


# ---- common nodes


def test_equal_nodes_are_merged() -> None:
    op = Builder()
    x = op.input("x", "float32", (2,))
    a = op.Exp(op.Mul(x, op.constant(np.float32(2))))
    b = op.Exp(op.Mul(x, op.constant(np.float32(2))))
    graph = op.graph([x], {"y": op.Add(a, b), "a": a, "b": b})
    found = after(graph, MergeCommon())
    assert kinds(found) == ["Mul", "Exp", "Add"]
    assert_same(graph, found, floats(2), tolerance=0)


def test_defaults_are_filled_in_before_nodes_are_compared() -> None:
    op = Builder()
    x, w = op.input("x", "float32", (1, 3, 8, 8)), op.constant(floats(4, 3, 3, 3))
    explicit = op.Conv(x, w, strides=(1, 1), pads=(0, 0, 0, 0), kernel_shape=(3, 3), dilations=(1, 1))
    graph = op.graph([x], {"a": op.Conv(x, w), "b": explicit})
    assert kinds(after(graph, MergeCommon())) == ["Conv"]


def test_what_equality_does_not_see_is_seen() -> None:
    op = Builder()
    x = op.input("x", "float32", (2,))
    outputs = {str(low): op.Clip(x, min=low) for low in (0.0, -0.0)}
    outputs["c"] = op.Mul(x, op.constant(np.float32(0.0)))
    outputs["d"] = op.Mul(x, op.constant(np.float32(-0.0)))
    graph = op.graph([x], outputs)
    assert after(graph, MergeCommon()) is graph


def test_large_constants_are_compared_by_identity() -> None:
    op = Builder()
    x, big = op.input("x", "float32", (1000,)), floats(1000)
    shared = op.constant(big)
    outputs = {"a": op.Mul(x, shared), "b": op.Mul(x, shared), "c": op.Mul(x, op.constant(big))}
    assert kinds(after(op.graph([x], outputs), MergeCommon())) == ["Mul", "Mul"]
    assert kinds(after(op.graph([x], outputs), MergeCommon(max_bytes=1 << 20))) == ["Mul"]


def test_random_ops_are_never_merged() -> None:
    op = Builder()
    x, key = op.input("x", "float32", (4,)), op.input("key", "uint32", (2,))
    noise = [op.apply(Noise(), x) for _ in range(2)]
    dropped = [op.apply(Dropout(0.5, True), x, None, None, key) for _ in range(2)]
    graph = op.graph([x, key], {str(i): v for i, v in enumerate(noise + dropped)})
    assert after(graph, MergeCommon()) is graph


def branch(op_name: str, noisy: bool = False) -> Graph:
    op = Builder()
    x = op.input("x", "float32", (4,))
    return op.graph([x], {"y": getattr(op, op_name)(op.apply(Noise(), x) if noisy else x)})


@pytest.mark.parametrize(("noisy", "left"), [(False, 1), (True, 2)])
def test_equal_control_flow_is_merged_unless_it_draws_numbers(noisy: bool, left: int) -> None:
    op = Builder()
    x, cond = op.input("x", "float32", (4,)), op.input("c", "bool", ())
    found = [op.If(cond, x, then_branch=branch("Relu", noisy), else_branch=branch("Tanh")) for _ in range(2)]
    graph = op.graph([x, cond], {"a": found[0], "b": found[1]})
    assert kinds(after(graph, MergeCommon())) == ["If"] * left


# ---- transposes and the rest


def test_transposes_that_undo_each_other_vanish() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3, 4, 5))
    y = op.Relu(op.Transpose(op.Transpose(x, perm=(0, 2, 3, 1)), perm=(0, 3, 1, 2)))
    graph = op.graph([x], {"y": y})
    found = after(graph, CancelTransposes())
    assert kinds(found) == ["Relu"]
    assert_same(graph, found, floats(2, 3, 4, 5), tolerance=0)


def test_transposes_compose_also_where_the_first_has_other_users() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3, 4))
    first = op.Transpose(x, perm=(2, 0, 1))
    graph = op.graph([x], {"a": op.Transpose(first, perm=(2, 0, 1)), "b": first})
    found = after(graph, CancelTransposes())
    assert [n.op.perm for n in found.nodes] == [(2, 0, 1), (1, 2, 0)]  # type: ignore[attr-defined]
    assert found.nodes[1].inputs == (x,)
    assert_same(graph, found, floats(2, 3, 4), tolerance=0)


def test_transposes_around_functions_of_single_elements() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3, 4))
    inner = op.Clip(op.Relu(op.Transpose(x, perm=(0, 2, 1))), min=0.0, max=1.0)
    graph = op.graph([x], {"y": op.Transpose(inner, perm=(0, 2, 1))})
    found = after(graph, CancelTransposes())
    assert kinds(found) == ["Relu", "Clip"]
    assert_same(graph, found, floats(2, 3, 4), tolerance=0)


def test_transposes_of_unknown_rank_stay() -> None:
    op = Builder()
    x = op.input("x", "float32", None)
    graph = op.graph([x], {"y": op.Transpose(op.Transpose(x))})
    found, report = run_passes(graph, (CancelTransposes(),), context())
    assert found is graph
    assert not report.errors


def test_a_sum_of_two_is_an_add() -> None:
    op = Builder()
    a, b = op.input("a", "float32", (2, 3)), op.input("b", "float32", (3,))
    graph = op.graph([a, b], {"y": op.Sum(a, b), "z": op.Sum(a, b, a)})
    found = after(graph, SimplifyArithmetic())
    assert kinds(found) == ["Add", "Sum"]
    assert_same(graph, found, floats(2, 3), floats(3), tolerance=0)


def test_dead_nodes_go() -> None:
    op = Builder()
    x = op.input("x", "float32", (2,))
    op.Tanh(op.Exp(x))
    graph = op.graph([x], {"y": op.Relu(x)})
    assert kinds(after(graph, RemoveDead())) == ["Relu"]
    kept, _ = run_passes(graph, (RemoveDead(),), context(budget=1))
    assert kinds(kept) == ["Exp", "Relu"]
