"""Rules: what they match, what stops them, and what they report."""

from __future__ import annotations

import itertools
import math
import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from aicore import ops
from aicore.errors import AicoreError, RuleError
from aicore.ir import Builder, Graph, Namespace, Op, Origin, TensorType, Value, print_graph, symbol, unknown, verify
from aicore.ops.activation import Activation, Clip, LeakyRelu, Relu, Tanh
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.matmul import Gemm
from aicore.ops.movement import Concat
from aicore.ops.pooling import MaxPool
from aicore.ops.reduction import ReduceMean
from aicore.rewrite import Rule, explain, fuse, require, rewrite, rule
from aicore.rewrite import matcher as matcher_module
from tests.passes.graphs import assert_same, context, floats, kinds, lacking, run

RELU, MEAN = Relu(), ReduceMean()


def apply(graph: Graph, *rules: Rule, **options: Any) -> tuple[Graph, Any]:
    """Sweep until nothing changes."""
    ctx = context(**options)
    for one in rules:
        before = None
        while before is not graph:
            before, graph = graph, rewrite(graph, (one,), ctx)
    verify(graph)
    return graph, ctx


def conv_act(act: Op = RELU, bias: bool = True, tap: bool = False) -> Graph:
    op = Builder()
    x, w = op.input("x", "float32", (1, 3, 8, 8)), op.constant(floats(4, 3, 3, 3), "w")
    conv = op.Conv(x, w, op.constant(floats(4), "b") if bias else None, strides=(2, 2))
    y = op.apply(act, conv)
    return op.graph([x], {"y": y, "c": conv} if tap else {"y": y})


# ---- fused ops


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("act", [Relu(), LeakyRelu(0.3), Clip(0.0, 6.0)], ids=str)
def test_fused_op_from_its_decomposition(act: Op, bias: bool) -> None:
    graph = conv_act(act, bias)
    fused, _ = apply(graph, fuse(ConvAct))
    assert kinds(fused) == ["ConvAct"]
    node = fused.nodes[0]
    assert node.op == ConvAct(graph.nodes[0].op, act)  # type: ignore[arg-type]
    assert fused.outputs[0][1] is graph.outputs[0][1]
    assert node.op.infer(*node.inputs) == graph.outputs[0][1].type
    assert_same(graph, fused, floats(1, 3, 8, 8))


def test_fused_op_costs_less_than_its_parts() -> None:
    graph = conv_act()
    node = apply(graph, fuse(ConvAct))[0].nodes[0]
    flops, moved = node.op.cost(*node.inputs)
    parts = [part.op.cost(*part.inputs) for part in graph.nodes]
    assert flops == sum(f for f, _ in parts)  # type: ignore[misc]
    assert moved < sum(b for _, b in parts)  # type: ignore[misc,operator]


def test_supports_stops_a_fusion_with_its_reason() -> None:
    graph = conv_act()
    found, ctx = apply(graph, fuse(ConvAct), supports=lacking(ConvAct))
    assert found is graph
    assert "no kernel for ConvAct: there is none for ConvAct" in ctx.why_not("fuse-ConvAct")


def test_an_activation_of_a_plugin_fuses_and_prints() -> None:
    @dataclass(frozen=True)
    class Quadratic(Activation):
        k: float = 2.0

    fused, _ = apply(conv_act(Quadratic(7.0)), fuse(ConvAct))
    assert fused.nodes[0].op.activation == Quadratic(7.0)  # type: ignore[attr-defined]
    assert "activation=Quadratic{k=7.0}" in print_graph(fused)


def test_large_fusion_first() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 3, 6, 6))
    graph = op.graph([x], {"y": op.Relu(op.Add(op.Conv(x, op.constant(floats(3, 3, 1, 1))), x))})
    large, small = fuse(ConvAddAct), fuse(ConvAdd)
    assert kinds(apply(graph, large, small)[0]) == ["ConvAddAct"]
    assert kinds(rewrite(graph, (large, small), context())) == ["ConvAdd", "Relu"]  # together, the earlier root wins


def test_residual_with_symbolic_dims() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4, "H", "W"))
    main = op.Conv(x, op.constant(floats(4, 4, 3, 3)), pads=(1, 1, 1, 1), strides=(2, 2))
    side = op.Conv(x, op.constant(floats(4, 4, 1, 1)), strides=(2, 2))
    assert main.shape == side.shape
    graph = op.graph([x], {"y": op.Relu(op.Add(main, side))})
    fused, _ = apply(graph, fuse(ConvAddAct))
    assert kinds(fused) == ["Conv", "ConvAddAct"]
    assert_same(graph, fused, floats(2, 4, 7, 9))


# ---- what stops a match


def test_interior_that_is_an_output() -> None:
    graph = conv_act(tap=True)
    found, ctx = apply(graph, fuse(ConvAct))
    assert found is graph
    assert "an interior value has other users or is a graph output (%conv" in ctx.why_not("fuse-ConvAct")


def test_interior_with_another_user() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    inner = op.Neg(x)
    graph = op.graph([x], {"a": op.Relu(inner), "b": op.Tanh(inner)})
    plain = rule(lambda op, x: op.Relu(op.Neg(x)))(_exp)
    assert apply(graph, plain)[0] is graph


def test_shared_interior_stays_for_its_other_users() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    inner = op.Neg(x)
    graph = op.graph([x], {"a": op.Relu(inner), "b": op.Tanh(inner)})
    first = rule(lambda op, x: op.Relu(op.Neg(x)), shared=True)(_exp)
    second = rule(lambda op, x: op.Tanh(op.Neg(x)), shared=True)(_exp)
    assert kinds(apply(graph, first)[0]) == ["Neg", "Exp", "Tanh"]
    assert kinds(apply(graph, first, second)[0]) == ["Exp", "Exp"]


def _exp(op: Any, x: Value) -> Any:
    return op.Exp(x)


def test_other_output_of_the_root_in_use() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 1, 4, 4))
    y, where = op.MaxPool(op.Relu(x), kernel_shape=(2, 2), indices=True)
    graph = op.graph([x], {"y": y, "i": where})

    @rule(lambda op, x, pool: op.apply(pool, op.Relu(x)))
    def drop(op: Any, pool: MaxPool, x: Value) -> Any:
        return op.apply(replace(pool, indices=False), x)

    found, ctx = apply(graph, drop)
    assert found is graph
    assert "other users" in ctx.why_not("drop")


def test_attribute_that_is_not_written_has_its_default() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {"a": op.LeakyRelu(x), "b": op.LeakyRelu(x, alpha=0.5)})
    found, ctx = apply(graph, rule(lambda op, x: op.LeakyRelu(x))(_exp))
    assert kinds(found) == ["Exp", "LeakyRelu"]
    assert "alpha is 0.5, the pattern wants 0.01" in ctx.why_not("exp")


def test_default_is_what_resolve_makes_of_it() -> None:
    op = Builder()
    x, w = op.input("x", "float32", (1, 3, 8, 8)), op.constant(floats(4, 3, 3, 3))
    plain = op.Conv(x, w, strides=(1, 1), dilations=(1, 1))
    graph = op.graph([x], {"y": plain, "z": op.Conv(x, w, strides=(2, 2))})

    @rule(lambda op, x, w: op.Conv(x, w))
    def negate(op: Any, x: Value, w: Value) -> Any:
        return op.Neg(op.Conv(x, w))

    found, _ = apply(graph, negate, budget=1)
    assert kinds(found) == ["Conv", "Neg", "Conv"]


def test_attributes_are_compared_like_numbers_of_a_file() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {"y": op.HardSigmoid(x, alpha=float(np.float32(1 / 6)), beta=0.5)})
    found, _ = apply(graph, rule(lambda op, x: op.HardSigmoid(x, alpha=1 / 6, beta=0.5))(_exp))
    assert kinds(found) == ["Exp"]


def test_attributes_that_do_not_fit_the_rank() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {"y": op.Softmax(x, axis=0)})
    found, ctx = apply(graph, rule(lambda op, x: op.Softmax(x, axis=3))(_exp))
    assert found is graph
    assert "the pattern's attributes do not fit: axis 3 is out of range" in ctx.why_not("exp")


def test_require_names_reason_and_values() -> None:
    @rule(lambda op, x: op.Relu(x))
    def never(op: Any, x: Value) -> Any:
        require(x.rank == 3, "the operand is no cube", x, 42)
        return x

    graph = conv_act()
    found, ctx = apply(graph, never)
    assert found is graph
    assert ctx.why_not("never").endswith("the operand is no cube (%conv: float32[1,4,3,3]) (42)")


def test_result_of_another_type() -> None:
    graph = conv_act()

    @rule(lambda op, x: op.Relu(x))
    def wrong(op: Any, x: Value) -> Any:
        return op.Cast(x, to="float64")

    found, ctx = apply(graph, wrong)
    assert found is graph
    assert "the result has another type (%relu: float32[1,4,3,3]) (%cast: float64[1,4,3,3])" in ctx.why_not("wrong")


def test_result_keeps_the_recorded_type() -> None:
    op = Builder()
    n, x = op.input("n", "int64", (2,)), op.input("x", "float32", ("N", 4))
    graph = op.graph([x, n], {"y": op.Relu(op.Reshape(x, n))})
    drop = rule(lambda op, x, n: op.Relu(op.Reshape(x, n)))(lambda op, x, n: op.Relu(x))
    found, _ = apply(graph, drop)
    assert kinds(found) == ["Relu"]
    assert found.outputs[0][1] is graph.outputs[0][1]


# ---- constants, attributes and rests


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_constants_match_in_any_dtype(dtype: str) -> None:
    op = Builder()
    x = op.input("x", dtype, ("N", 4))
    graph = op.graph([x], {"y": op.Div(x, op.constant(np.asarray(math.sqrt(2), dtype)))})
    found, _ = apply(graph, rule(lambda op, x: op.Div(x, op.scalar(math.sqrt(2), x)))(_exp))
    assert kinds(found) == ["Exp"]


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (np.float32(1.5), "is not 1.4142135"),
        (np.array([1.4142135] * 4, np.float32), "is not 1.4142135"),
    ],
)
def test_constants_that_do_not_match(number: Any, why: str) -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", 4))
    graph = op.graph([x], {"y": op.Div(x, op.constant(number))})
    found, ctx = apply(graph, rule(lambda op, x: op.Div(x, op.scalar(math.sqrt(2), x)))(_exp))
    assert found is graph
    assert why in ctx.why_not("exp")


def test_a_fraction_is_not_an_integer_constant() -> None:
    op = Builder()
    x = op.input("x", "int64", (4,))
    graph = op.graph([x], {"y": op.Mul(x, op.constant(np.int64(1)))})
    half = rule(lambda op, x: op.Mul(x, op.scalar(1.5, x)))(lambda op, x: op.Neg(x))
    assert apply(graph, half)[0] is graph


def test_operand_that_is_no_constant() -> None:
    op = Builder()
    x, y = op.input("x", "float32", (4,)), op.input("y", "float32", (4,))
    graph = op.graph([x, y], {"y": op.Div(x, y)})
    _, ctx = apply(graph, rule(lambda op, x: op.Div(x, op.scalar(2.0, x)))(_exp))
    assert "%y is not a constant" in ctx.why_not("exp")


@dataclass(frozen=True)
class Shifted(Op):
    """mean(x + epsilon), with an attribute that is a constant operand of its parts."""

    epsilon: float = 1e-5
    mean: ReduceMean = MEAN

    def decompose(self, op: Namespace, x: Any) -> Any:
        return op.apply(self.mean, op.Add(x, op.scalar(self.epsilon, x)))


def test_attribute_from_a_constant_operand() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    graph = op.graph([x], {"y": op.ReduceMean(op.Add(x, op.constant(np.float32(1e-6))), axes=(-1,))})
    found, _ = apply(graph, fuse(Shifted))
    assert found.nodes[0].op == Shifted(1e-6, ReduceMean(axes=(1,)))
    assert_same(graph, found, floats(2, 3))


def test_parameter_as_an_attribute_binds_it() -> None:
    seen = []

    @rule(lambda op, x, axes: op.Sub(x, op.ReduceMean(x, axes=axes)))
    def centre(op: Any, x: Value, axes: tuple[int, ...]) -> Any:
        seen.append(axes)
        return op.Neg(x)

    op = Builder()
    x = op.input("x", "float32", (2, 3))
    graph = op.graph([x], {"y": op.Sub(x, op.ReduceMean(x, op.constant([-1])))})
    assert kinds(apply(graph, centre)[0]) == ["Neg"]
    assert seen == [(1,)]


def test_one_attribute_parameter_twice_must_agree() -> None:
    pattern = rule(lambda op, x, a: op.LeakyRelu(op.LeakyRelu(x, alpha=a), alpha=a))(_exp)
    for second, expected in ((0.5, ["Exp"]), (0.25, ["LeakyRelu", "LeakyRelu"])):
        op = Builder()
        x = op.input("x", "float32", (3,))
        graph = op.graph([x], {"y": op.LeakyRelu(op.LeakyRelu(x, alpha=0.5), alpha=second)})
        assert kinds(apply(graph, pattern)[0]) == expected


def test_constants_in_patterns_move_into_fields() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    graph = op.graph([x], {"y": op.ReduceMean(x, op.constant([1]))})
    mean = rule(lambda op, x: op.ReduceMean(x, op.constant((1,))))(lambda op, x: op.ReduceMax(x, axes=(1,)))
    assert kinds(apply(graph, mean)[0]) == ["ReduceMax"]


def test_near_miss_hints_at_the_field() -> None:
    op = Builder()
    x = op.input("x", "float32", (2, 3))
    graph = op.graph([x], {"y": op.ReduceMean(x, op.constant([1]))})
    computed = rule(lambda op, x, a, mean: op.apply(mean, x, a))(_with_mean)
    _, ctx = apply(graph, computed)
    assert "has 1 operands, the pattern wants 2; a constant one is a field: axes" in ctx.why_not("with-mean")


def _with_mean(op: Any, mean: ReduceMean, x: Value, a: Value) -> Any:
    return op.apply(mean, op.Neg(x), a)


def test_rest_binds_all_other_operands() -> None:
    op = Builder()
    values = [op.input(name, "float32", (2,)) for name in "abc"]
    graph = op.graph(values, {"y": op.Relu(op.Concat(*values, axis=0))})

    @rule(lambda op, first, join, *rest: op.Relu(op.apply(join, first, *rest)))
    def relu_before(op: Any, join: Concat, first: Value, rest: tuple[Value, ...]) -> Any:
        return op.apply(join, *(op.Relu(v) for v in (first, *rest)))

    found, _ = apply(graph, relu_before)
    assert kinds(found) == ["Relu", "Relu", "Relu", "Concat"]
    assert_same(graph, found, *(floats(2) for _ in "abc"))


def test_absent_operand() -> None:
    op = Builder()
    x, high = op.input("x", "float32", (2,)), op.input("high", "float32", ())
    graph = op.graph([x, high], {"y": op.Clip(x, None, high)})
    absent = rule(lambda op, x, high: op.Clip(x, None, high))(lambda op, x, high: op.Min(x, high))
    present = rule(lambda op, x, low, high: op.Clip(x, low, high))(_clip)
    assert kinds(apply(graph, absent)[0]) == ["Min"]
    found, ctx = apply(graph, present)
    assert found is graph
    assert "operand low is absent" in ctx.why_not("clip")


def test_operand_that_should_be_absent() -> None:
    op = Builder()
    x, low, high = op.input("x", "float32", (2,)), op.input("low", "float32", ()), op.input("high", "float32", ())
    graph = op.graph([x, low, high], {"y": op.Clip(x, low, high)})
    found, ctx = apply(graph, rule(lambda op, x, high: op.Clip(x, None, high))(_clip))
    assert found is graph
    assert "operand %low should be absent" in ctx.why_not("clip")


def _clip(op: Any, x: Value, high: Value) -> Any:
    return op.Min(x, high)


# ---- order of operands


def test_require_tries_the_other_order() -> None:
    @rule(lambda op, a, w, b: op.Add(op.MatMul(a, w), b))
    def left_only(op: Any, a: Value, w: Value, b: Value) -> Any:
        require(b.name == "left", "the addend is not the left one", b)
        return op.Gemm(a, w, b)

    op = Builder()
    x, y = op.input("x", "float32", (2, 4)), op.input("y", "float32", (2, 4))
    w, v = op.constant(floats(4, 4)), op.constant(floats(4, 4))
    matmul = ops.CORE["MatMul"]()
    left, right = op.apply(matmul, x, w, names=("left",)), op.apply(matmul, y, v, names=("right",))
    graph = op.graph([x, y], {"y": op.Add(left, right)})
    found, _ = apply(graph, left_only)
    assert kinds(found) == ["MatMul", "Gemm"]
    assert_same(graph, found, floats(2, 4), floats(2, 4))


def test_backtracks_into_an_earlier_choice() -> None:
    op = Builder()
    x, y = op.input("x", "float32", (2,)), op.input("y", "float32", (2,))
    graph = op.graph([x, y], {"y": op.Sub(op.Add(y, x), x)})
    cancel = rule(lambda op, a, b: op.Sub(op.Add(a, b), a))(lambda op, a, b: op.Identity(b))
    assert kinds(apply(graph, cancel)[0]) == ["Identity"]


def test_variable_twice_for_different_values() -> None:
    op = Builder()
    x, y = op.input("x", "float32", (2,)), op.input("y", "float32", (2,))
    graph = op.graph([x, y], {"y": op.Sub(x, y)})
    found, ctx = apply(graph, rule(lambda op, x: op.Sub(x, x))(_exp))
    assert found is graph
    assert "x stands twice in the pattern, for different values here" in ctx.why_not("exp")


def test_equal_constants_count_as_the_same_value() -> None:
    op = Builder()
    x = op.input("x", "float32", (2,))
    two, other_two = op.constant(np.float32(2)), op.constant(np.float32(2))
    graph = op.graph([x], {"y": op.Add(op.Mul(x, two), other_two)})
    found, _ = apply(graph, rule(lambda op, x, c: op.Add(op.Mul(x, c), c))(lambda op, x, c: op.Neg(x)))
    assert kinds(found) == ["Neg"]


def test_too_many_orders_are_given_up_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher_module, "STEP_LIMIT", 50)
    op = Builder()
    values = [op.input(f"x{i}", "float32", (2,)) for i in range(8)]

    def tree(op: Any, leaves: Any) -> Any:
        while len(leaves) > 1:
            leaves = [op.Add(a, b) for a, b in itertools.pairwise(leaves)][::2]
        return leaves[0]

    def pattern(op: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
        return tree(op, [a, b, c, d, e, f, g, h])

    @rule(pattern)
    def reversed_only(op: Any, a: Value) -> Any:
        require(a.name == "x8", "every order fails")

    graph = op.graph(values, {"y": tree(op, values)})
    found, ctx = apply(graph, reversed_only)
    assert found is graph
    assert any("gave up after 50 steps" in note for note in ctx.notes)


# ---- several outputs


def qkv_graph() -> Graph:
    op = Builder()
    x = op.input("x", "float32", ("B", "S", 8))
    q, k, v = (op.MatMul(x, op.constant(floats(8, 8), name)) for name in "qkv")
    return op.graph([x], {"a": op.Relu(q), "b": op.Tanh(k), "c": op.Neg(v)})


@rule(lambda op, x, a, b, c: (op.MatMul(x, a), op.MatMul(x, b), op.MatMul(x, c)))
def join_products(op: Any, x: Value, a: Value, b: Value, c: Value) -> Any:
    """x @ a, x @ b, x @ c -> split(x @ concat(a, b, c))"""
    require(a.shape == b.shape == c.shape and a.fixed and b.fixed and c.fixed, "the weights differ in shape", a)
    return op.Split(op.MatMul(x, op.Concat(a, b, c, axis=1)), axis=2, num_outputs=3)


def test_siblings_are_joined() -> None:
    graph = qkv_graph()
    found, ctx = apply(graph, join_products)
    assert sorted(kinds(found)) == ["Concat", "MatMul", "Neg", "Relu", "Split", "Tanh"], ctx.why_not("join-products")
    assert_same(graph, found, floats(2, 3, 8))


def test_siblings_that_are_missing_are_named() -> None:
    op = Builder()
    x = op.input("x", "float32", (3, 8))
    graph = op.graph([x], {"a": op.MatMul(x, op.constant(floats(8, 8)))})
    found, ctx = apply(graph, join_products)
    assert found is graph
    assert "no other MatMul uses x" in ctx.why_not("join-products")


@dataclass(frozen=True)
class AddNorm(Op):
    """(normalised x + skip, x + skip): the sum is an output, so its other users stop nothing."""

    epsilon: float = 1e-5
    mean: ReduceMean = MEAN

    def n_outputs(self) -> int:
        return 2

    def decompose(self, op: Namespace, x: Any, skip: Any, weight: Any) -> Any:
        total = op.Add(x, skip)
        square = op.apply(self.mean, op.Mul(total, total))
        return op.Mul(op.Div(total, op.Sqrt(op.Add(square, op.scalar(self.epsilon, total)))), weight), total


def add_norm(late: bool) -> Graph:
    op = Builder()
    x, skip = op.input("x", "float32", (2, 8)), op.input("skip", "float32", (2, 8))
    total = op.Add(x, skip)
    other = op.Relu(total)
    weight = op.ReduceMean(other, axes=(-1,)) if late else op.constant(floats(8))
    root = op.Sqrt(op.Add(op.ReduceMean(op.Mul(total, total), axes=(-1,)), op.scalar(1e-6, x)))
    y = op.Mul(op.Div(total, root), weight)
    return op.graph([x, skip], {"y": op.Add(y, total), "z": other})


def test_an_interior_value_may_be_an_output_of_the_fused_op() -> None:
    graph = add_norm(late=False)
    found, ctx = apply(graph, fuse(AddNorm))
    assert kinds(found) == ["AddNorm", "Relu", "Add"], ctx.why_not("fuse-AddNorm")
    assert found.nodes[0].op == AddNorm(1e-6, ReduceMean(axes=(1,)))
    assert_same(graph, found, floats(2, 8), floats(2, 8))


def test_no_cycle_arises() -> None:
    graph = add_norm(late=True)
    found, ctx = apply(graph, fuse(AddNorm))
    assert found is graph
    assert "an operand is computed after the first output" in ctx.why_not("fuse-AddNorm")


# ---- the driver


def test_fixed_nodes_are_left_to_folding() -> None:
    op = Builder()
    c = op.constant(floats(3))
    graph = op.graph([], {"y": op.Relu(c)})
    assert apply(graph, rule(lambda op, x: op.Relu(x))(_exp))[0] is graph


def test_an_output_may_become_an_input_or_a_constant() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {"y": op.Identity(x), "z": op.Relu(op.Identity(x)), "k": op.Tanh(x)})
    keep = rule(lambda op, x: op.Identity(x))(lambda op, x: x)
    constant = rule(lambda op, x: op.Tanh(x))(lambda op, x: op.constant(np.zeros(3, np.float32)))
    found, _ = apply(graph, keep, constant)
    assert kinds(found) == ["Relu"]
    assert dict(found.outputs)["y"] is x
    assert dict(found.outputs)["k"].constant is not None


def test_values_upstream_and_downstream_keep_their_identity() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    first = op.Relu(x)
    middle = op.Relu(op.Neg(first))
    last = op.Tanh(middle)
    graph = op.graph([x], {"y": last})
    found, _ = apply(graph, rule(lambda op, x: op.Relu(op.Neg(x)))(_exp))
    assert found.nodes[0] is graph.nodes[0]
    assert found.nodes[-1] is graph.nodes[-1]
    assert found.nodes[1].outputs == (middle,)


def test_what_a_match_makes_is_matched_again() -> None:
    op = Builder()
    x = value = op.input("x", "float32", (3,))
    for _ in range(20):
        value = op.Relu(value)
    graph = op.graph([x], {"y": value})
    once = rule(lambda op, x: op.Relu(op.Relu(x)))(lambda op, x: op.Relu(x))
    assert kinds(rewrite(graph, (once,), context())) == ["Relu"]


def test_a_rule_that_comes_to_no_end_is_stopped() -> None:
    @rule(lambda op, x: op.Relu(x))
    def forever(op: Any, x: Value) -> Any:
        return op.Relu(x)

    with pytest.raises(AicoreError, match="rule forever comes to no end"):
        apply(conv_act(), forever)


def test_wrong_number_of_results() -> None:
    @rule(lambda op, x: op.Relu(x))
    def two(op: Any, x: Value) -> Any:
        return x, x

    with pytest.raises(AicoreError, match="rule two gives 2 results for the 1 of its pattern"):
        apply(conv_act(), two)


def test_error_in_a_body_names_rule_and_match() -> None:
    @rule(lambda op, x: op.Relu(x))
    def broken(op: Any, x: Value) -> Any:
        raise ZeroDivisionError("bug")

    with pytest.raises(ZeroDivisionError) as caught:
        apply(conv_act(), broken)
    assert "in rule broken, match 0, at Relu 'relu'" in caught.value.__notes__


def test_origin_names_sources_rule_and_match() -> None:
    graph = conv_act()
    graph = replace(graph, nodes=tuple(replace(n, origin=Origin(f"/{type(n.op).__name__}")) for n in graph.nodes))
    origin = apply(graph, fuse(ConvAct))[0].nodes[0].origin
    assert (origin.rule, origin.match) == ("fuse-ConvAct", 0)
    assert origin.names() == ["/Conv", "/Relu"]


def test_budget_stops_changes() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {str(i): op.Relu(op.Neg(x)) for i in range(4)})
    one = rule(lambda op, x: op.Relu(op.Neg(x)))(_exp)
    found, ctx = apply(graph, one, budget=3)
    assert kinds(found).count("Exp") == 3
    assert ctx.matches == 3
    assert ctx.refused > 0


def test_explain_gives_the_first_failing_guard() -> None:
    graph = conv_act(tap=True)
    relu = graph.nodes[-1]
    assert "an interior value has other users" in str(explain(fuse(ConvAct), graph, relu))
    assert explain(fuse(ConvAct), conv_act(), conv_act().nodes[-1]) is not None
    good = conv_act()
    assert explain(fuse(ConvAct), good, good.nodes[-1]) is None
    assert "no node is of the kind of its root" in str(explain(fuse(ConvAct), good, good.nodes[0]))


def test_explain_a_fixed_node() -> None:
    op = Builder()
    graph = op.graph([], {"y": op.Relu(op.constant(floats(3)))})
    assert "will be folded" in str(explain(fuse(ConvAct), graph, graph.nodes[0]))


def test_watch_keeps_the_near_miss_of_one_value() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 3, 8, 8))
    first = op.Relu(op.Tanh(x))
    conv = op.Conv(x, op.constant(floats(4, 3, 3, 3)))
    graph = op.graph([x], {"a": first, "b": op.Relu(conv), "c": conv})
    assert "other users" in apply(graph, fuse(ConvAct))[1].why_not("fuse-ConvAct")
    assert "computed by Conv" in apply(graph, fuse(ConvAct), watch=first)[1].why_not("fuse-ConvAct")


def test_why_not_without_a_root() -> None:
    _, ctx = apply(conv_act(Tanh()), rule(lambda op, x: op.Relu(x))(_exp))
    assert ctx.why_not("exp") == "exp: there is no Relu in the graph"
    assert ctx.why_not("other") == "other: no node is of the kind of its root"


def test_near_miss_counts_ops() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 3, 8, 8))
    y = op.Relu(op.Add(op.Exp(op.Neg(x)), op.Tanh(x)))
    graph = op.graph([x], {"y": y, "z": op.Exp(op.Abs(x))})
    _, ctx = apply(graph, rule(lambda op, x: op.Relu(op.Add(op.Exp(op.Abs(x)), op.Tanh(x))))(_exp))
    assert ctx.why_not("exp") == "exp: 3 ops matched at Relu 'relu', then: Neg 'neg' is not Abs"


def test_why_not_when_an_op_is_missing_altogether() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 3, 8, 8))
    graph = op.graph([x], {"y": op.Relu(op.Exp(x))})
    _, ctx = apply(graph, fuse(ConvAct))
    assert ctx.why_not("fuse-ConvAct") == "fuse-ConvAct: there is no Conv in the graph"


def test_deep_chain_does_not_recurse() -> None:
    op = Builder()
    x = value = op.input("x", "float32", (3,))
    for _ in range(3000):
        value = op.Neg(op.Relu(value))
    graph = op.graph([x], {"y": value})
    found, _ = apply(graph, rule(lambda op, x: op.Neg(op.Relu(x)))(_exp))
    assert len(found.nodes) == 3000


def test_dims_survive() -> None:
    op = Builder()
    x = op.input("x", "float32", ("N", unknown()))
    graph = op.graph([x], {"y": op.Relu(op.Neg(x))})
    found, _ = apply(graph, rule(lambda op, x: op.Relu(op.Neg(x)))(_exp))
    assert found.outputs[0][1].shape == x.shape
    assert found.outputs[0][1].shape is not None
    assert found.outputs[0][1].shape[0] == symbol("N")


def test_gemm_and_conv_are_both_linear_in_one_rule() -> None:
    @rule(lambda op, x, w, linear: op.Neg(op.apply(linear, x, w)))
    def negate_weight(op: Any, linear: Conv | Gemm, x: Value, w: Value) -> Any:
        return op.apply(linear, x, op.Neg(w))

    op = Builder()
    x, m = op.input("x", "float32", (1, 3, 8, 8)), op.input("m", "float32", (2, 4))
    a = op.Neg(op.Conv(x, op.constant(floats(4, 3, 3, 3))))
    b = op.Neg(op.Gemm(m, op.constant(floats(4, 5)), alpha=0.5))
    graph = op.graph([x, m], {"a": a, "b": b})
    found, _ = apply(graph, negate_weight)
    assert kinds(found) == ["Neg", "Conv", "Neg", "Gemm"]
    assert_same(graph, found, floats(1, 3, 8, 8), floats(2, 4))
    assert len(run(found, floats(1, 3, 8, 8), floats(2, 4))) == 2
    assert TensorType("float32", (2, 5)) == found.outputs[1][1].type


def test_a_near_miss_keeps_nothing_of_the_body_that_refused() -> None:
    """A traceback would keep its frames alive, and with them versions of the graph."""
    refused: list[weakref.ref[Any]] = []

    @rule(lambda op, x: op.Relu(x))
    def never(op: Any, x: Value) -> Value:
        local = RuleError("stands for a graph")
        refused.append(weakref.ref(local))
        require(False, "never", x)
        return x

    _, ctx = apply(conv_act(), never)
    assert ctx.why_not("never").startswith("never: 2 ops matched at Relu 'relu', then: never (%conv")
    assert [found() for found in refused] == [None]
