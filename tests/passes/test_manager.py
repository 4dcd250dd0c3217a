"""Transactions, sub-graphs, order of passes, bisect, A/B."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from aicore.errors import AicoreError, InputError
from aicore.ir import Builder, Graph, Value, verify
from aicore.ops.activation import Tanh
from aicore.ops.control import If
from aicore.ops.fused_linear import ConvAct
from aicore.passes import (
    Culprit,
    Pass,
    RulePass,
    bisect,
    close,
    default_passes,
    first_difference,
    numeric_check,
    order_passes,
    run_graph,
    run_passes,
    specialise_passes,
)
from aicore.passes.decompose_unsupported import DecomposeUnsupported
from aicore.passes.fuse_linear import FuseLinear
from aicore.passes.merge_common import MergeCommon
from aicore.passes.remove_dead import RemoveDead
from aicore.rewrite import Context, Rule, fuse, rule
from tests.passes.graphs import assert_same, context, evaluate, floats, kinds, lacking, run


def chain(length: int = 4) -> Graph:
    """Convolutions, each with a bias of its own and a Relu."""
    op = Builder()
    x = value = op.input("x", "float32", (1, 3, 6, 6))
    for i in range(length):
        w, b = op.constant(floats(3, 3, 3, 3) / 4), op.constant(np.array([i, 1, 2], np.float32) / 50)
        value = op.Relu(op.Conv(value, w, b, pads=(1, 1, 1, 1)))
    return op.graph([x], {"y": value})


def rule_pass(title: str, *listed: Rule) -> Pass:
    @dataclass(frozen=True)
    class Made(RulePass):
        name: ClassVar[str] = title
        rules: ClassVar[tuple[Rule, ...]] = listed

    return Made()


def wrong_at(index: int) -> Rule:
    """The fusion ConvAct, with the wrong activation for one convolution of `chain`."""
    good = fuse(ConvAct)

    def body(op: Any, bindings: Any) -> Any:
        result = good.body(op, bindings)
        node = op.nodes[-1]
        if round(float(bindings["b"].constant.array[0]) * 50) == index:
            op.nodes[-1] = replace(node, op=replace(node.op, activation=Tanh()))
        return result

    return replace(good, body=body)


FEED = floats(1, 3, 6, 6)


def numbers_are(graph: Graph) -> Any:
    wanted = run(graph, FEED)[0]
    return lambda other: close(wanted, run(other, FEED)[0], 1e-5)


# ---- transactions


def test_a_pass_that_raises_is_rolled_back() -> None:
    @rule(lambda op, x: op.Relu(x))
    def boom(op: Any, x: Value) -> Any:
        raise ValueError("bug in a plugin")

    graph = chain()
    found, report = run_passes(graph, (rule_pass("boom", boom), FuseLinear()), context())
    assert kinds(found) == ["ConvAct"] * 4
    (error,) = report.errors
    assert error.startswith(
        "boom rolled back after its first match: ValueError: bug in a plugin (in rule boom, match 0,"
    )
    assert [row.matches for row in report.rows] == [0, 4]
    assert "boom rolled back" in str(report)


def test_a_pass_that_breaks_the_graph_is_rolled_back_and_names_rule_and_match() -> None:
    @rule(lambda op, x: op.Relu(x))
    def stray(op: Any, x: Value) -> Any:
        return op.Add(op.Tanh(x), Value("nowhere", x.type))

    graph = chain()
    found, report = run_passes(graph, (rule_pass("stray", stray),), context())
    assert found is graph
    assert "operand %nowhere is used before it is defined" in report.errors[0]
    assert "made by stray#0" in report.errors[0]


@dataclass(frozen=True)
class Tampering(Pass):
    """Breaks what is promised to the caller."""

    name: ClassVar[str] = "tampering"
    kind: str = ""

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        x = graph.inputs[0]
        match self.kind:
            case "input":
                return replace(graph, inputs=(replace(x, name="other"),))
            case "output":
                return replace(graph, outputs=(("z", graph.outputs[0][1]),))
            case "state":
                return replace(graph, state=(("y", "x"),))
        op = Builder()
        op.nodes.extend(graph.nodes)
        return replace(graph, outputs=(("y", op.Cast(x, to="float64")),), nodes=tuple(op.nodes))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("input", "the inputs are not what they were"),
        ("output", "the outputs are not what they were"),
        ("state", "the outputs are not what they were"),
        ("type", "output 'y' was float32[1,3,6,6] and is now float64[1,3,6,6]"),
    ],
)
def test_a_pass_may_not_change_what_the_caller_sees(kind: str, message: str) -> None:
    graph = chain()
    found, report = run_passes(graph, (Tampering(kind),), context())
    assert found is graph
    assert message in report.errors[0]


def test_a_pass_without_apply_is_rolled_back() -> None:
    graph = chain()
    found, report = run_passes(graph, (Pass(),))
    assert found is graph
    assert "NotImplementedError: Pass.apply" in report.errors[0]


@pytest.mark.parametrize("index", [0, 1, 3])
def test_wrong_numbers_are_caught_rolled_back_and_named(index: int) -> None:
    graph = chain()
    check = numeric_check({"x": FEED}, evaluate)
    passes = (rule_pass("bad", wrong_at(index)), FuseLinear())
    found, report = run_passes(graph, passes, context(), check=check)
    assert f"made by fuse-ConvAct#{index}" in report.errors[0]
    assert report.errors[0].startswith("bad rolled back")
    assert kinds(found) == ["ConvAct"] * 4
    assert report.rows[1].matches == 4
    assert_same(graph, found, FEED)


def test_rolled_back_changes_are_not_counted() -> None:
    ctx = context()
    check = numeric_check({"x": FEED}, evaluate)
    found, _ = run_passes(chain(), (rule_pass("bad", wrong_at(2)), FuseLinear()), ctx, check=check)
    assert ctx.matches == 4
    assert [node.origin.match for node in found.nodes] == [0, 1, 2, 3]
    assert {name for name, _ in ctx.changes} == {"fuse-linear"}


def test_report_counts() -> None:
    found, report = run_passes(chain(), (MergeCommon(), FuseLinear(), RemoveDead()), context())
    assert [(r.name, r.matches, r.nodes_before, r.nodes_after) for r in report.rows] == [
        ("merge-common", 0, 8, 8),
        ("fuse-linear", 4, 8, 4),
        ("remove-dead", 0, 4, 4),
    ]
    assert report.ms >= sum(r.ms for r in report.rows)
    assert report.errors == []
    assert len(found.nodes) == 4


# ---- sub-graphs


def if_graph(depth: int = 1) -> Graph:
    """An If in the branch of an If, `depth` deep; each branch has something to fuse."""

    def branch(level: int, name: str) -> Graph:
        op = Builder()
        cond, x = op.input("c", "bool", ()), op.input("x", "float32", ("N", 3, 6, 6))
        y = getattr(op, name)(op.Conv(x, op.constant(floats(3, 3, 1, 1))))
        if level:
            y = op.If(cond, cond, y, then_branch=branch(level - 1, "Relu"), else_branch=branch(level - 1, "Tanh"))
        return op.graph([cond, x], {"y": y})

    return branch(depth, "Sigmoid")


def test_passes_run_inside_sub_graphs() -> None:
    graph = if_graph()
    found, report = run_passes(graph, default_passes(), context())
    assert not report.errors
    assert kinds(found) == ["ConvAct", "If"]
    held = found.nodes[1].op
    assert isinstance(held, If)
    assert kinds(held.then_branch) == kinds(held.else_branch) == ["ConvAct"]
    assert report.rows[0].nodes_before == 3 + 2 + 2
    for cond in (True, False):
        assert_same(graph, found, np.array(cond), floats(2, 3, 6, 6))


def test_deep_sub_graphs_do_not_recurse_into_each_other() -> None:
    graph = if_graph(5)
    found, report = run_passes(graph, (FuseLinear(),), context())
    assert report.rows[0].matches == 1 + 2 + 4 + 8 + 16 + 32
    assert report.rows[0].nodes_after == 63 + 31
    for cond in (True, False):
        assert_same(graph, found, np.array(cond), floats(1, 3, 6, 6))


def test_what_goes_wrong_in_a_sub_graph_rolls_the_whole_pass_back() -> None:
    @rule(lambda op, x: op.Tanh(x))
    def stray(op: Any, x: Value) -> Any:
        return op.Add(x, Value("nowhere", x.type))

    graph = if_graph()
    found, report = run_passes(graph, (rule_pass("stray", fuse(ConvAct), stray),), context())
    assert kinds(found) == ["ConvAct", "If"]
    assert not report.errors  # every Tanh was fused before
    found, report = run_passes(graph, (rule_pass("stray", stray),), context())
    assert found is graph
    assert "made by stray#0" in report.errors[0]


# ---- order


@dataclass(frozen=True)
class Named(Pass):
    """Ordering looks at names alone."""

    def apply(self, graph: Graph, ctx: Context) -> Graph:
        return graph


def named(title: str, in_phase: str = "fuse", **wishes: tuple[str, ...]) -> Pass:
    made = type(title, (Named,), {"name": title, "phase": in_phase, **wishes})
    found: Pass = made()
    return found


def test_passes_are_ordered_by_phase_then_by_wish_then_as_given() -> None:
    passes = (
        named("sweep", "clean"),
        named("c", after=("b",)),
        named("a"),
        named("b", before=("a",)),
        named("fold", "simplify", after=("nobody",)),
        named("d"),
    )
    assert [p.name for p in order_passes(passes)] == ["fold", "b", "c", "a", "d", "sweep"]


def test_order_that_cannot_be() -> None:
    with pytest.raises(AicoreError, match="pass a: phase 'later' is none of simplify, fuse, lower, clean"):
        order_passes([named("a", "later")])
    with pytest.raises(AicoreError, match="two passes are called a"):
        order_passes([named("a"), named("a")])
    with pytest.raises(AicoreError, match="passes wait for each other: a, b"):
        order_passes([named("a", after=("b",)), named("b", after=("a",))])


def test_passes_of_plugins_find_their_place() -> None:
    mine = named("mine", after=("fuse-linear",), before=("fuse-pointwise",))
    names = [p.name for p in default_passes([mine])]
    assert names.index("fuse-linear") < names.index("mine") < names.index("fuse-pointwise")
    assert [p.name for p in specialise_passes()][-1] == "remove-dead"


# ---- finding the culprit


@pytest.mark.parametrize("index", [0, 17, 48])
def test_bisect_names_pass_rule_and_match(index: int) -> None:
    graph = chain(49)
    passes = (MergeCommon(), rule_pass("bad", wrong_at(index)), RemoveDead())
    culprit = bisect(graph, passes, numbers_are(graph), context)
    assert (culprit.pass_name, culprit.rule, culprit.match) == ("bad", "fuse-ConvAct", index)
    assert culprit.runs <= math.ceil(math.log2(49)) + 2
    assert str(culprit).startswith(f"bad: fuse-ConvAct#{index} (")


def test_required_passes_have_numbers_and_cost_no_budget() -> None:
    """Each fused op is taken apart and fused again, so that a required change precedes each one that may be wrong."""
    graph = chain(6)
    apart = DecomposeUnsupported()
    supports = lacking(ConvAct)
    again = rule_pass("bad", wrong_at(4))

    def with_apart() -> Context:
        return context(supports=lambda op, *types: supports(op, *types))

    @dataclass(frozen=True)
    class Fuse(RulePass):
        """Fuses whatever the target has."""

        name: ClassVar[str] = "fuse-all"

        def apply(self, graph: Graph, ctx: Context) -> Graph:
            return FuseLinear().apply(graph, Context(off=ctx.off))

    @dataclass(frozen=True)
    class Again(Pass):
        """The wrong rule, on a target that has the kernel."""

        name: ClassVar[str] = "bad"

        def apply(self, graph: Graph, ctx: Context) -> Graph:
            ctx.supports = Context().supports
            return again.apply(graph, ctx)

    passes = (Fuse(), apart, Again())
    good = run_passes(graph, passes[:2], with_apart())[0]
    assert kinds(good) == ["Conv", "Relu"] * 6
    culprit = bisect(graph, passes, numbers_are(graph), with_apart)
    assert (culprit.pass_name, culprit.rule, culprit.match, culprit.before) == ("bad", "fuse-ConvAct", 6 + 4, 4)


def test_bisect_when_nothing_is_bad() -> None:
    graph = chain()
    assert bisect(graph, (FuseLinear(),), numbers_are(graph), context) == Culprit("", "", -1, 1)
    assert str(bisect(graph, (FuseLinear(),), numbers_are(graph), context)) == "nothing is bad (1 runs)"


def test_bisect_when_it_was_bad_from_the_start() -> None:
    culprit = bisect(chain(), (FuseLinear(),), lambda graph: False, context)
    assert culprit.match == -1
    assert culprit.runs == 2
    assert "bad before any change" in str(culprit)


def test_first_difference_names_the_match_in_one_run_of_each() -> None:
    graph = chain(20)
    found, _ = run_passes(graph, (rule_pass("bad", wrong_at(7)),), context())
    runs = 0

    def counted(graph: Graph, feeds: Any) -> Any:
        nonlocal runs
        runs += 1
        return run_graph(graph, feeds, evaluate)

    assert "made by fuse-ConvAct#7" in first_difference(graph, found, {"x": FEED}, counted)
    assert runs == 2


def test_first_difference_of_outputs_that_are_other_values() -> None:
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {"y": op.Relu(x)})
    other = replace(graph, nodes=(), outputs=(("y", x),))
    text = first_difference(graph, other, {"x": floats(3) - 9}, lambda g, f: run_graph(g, f, evaluate))
    assert text.startswith("output 'y' differs from before: largest difference")
    assert first_difference(graph, graph, {"x": floats(3)}, lambda g, f: run_graph(g, f, evaluate)) == ""


def test_run_graph_needs_its_inputs() -> None:
    with pytest.raises(InputError, match="input 'x' is missing"):
        run_graph(chain(), {}, evaluate)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ([1.0, 1e-9], [1.0, 0.0], True),
        ([1.0, 1e-3], [1.0, 0.0], False),
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.nan, 1.0], [1.0, 1.0], False),
        ([1.0, 1.0], [1.0, np.inf], False),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [-np.inf, 1.0], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([0.0, 0.0], [0.0, 1e-20], False),
        ([], [], True),
    ],
)
def test_close(a: list[float], b: list[float], same: bool) -> None:
    assert close(np.array(a, np.float32), np.array(b, np.float32), 1e-4) is same


def test_close_needs_the_same_kind() -> None:
    x = np.ones(3, np.float32)
    assert not close(x, x.astype(np.float64), 1e-4)
    assert not close(x, x[None], 1e-4)
    assert close(np.array([1, 2]), np.array([1, 2]), 0.5)
    assert not close(np.array([100]), np.array([101]), 0.5)
    assert close(np.array([1 + 1j]), np.array([1 + 1j]), 1e-6)


# ---- state


def test_state_is_kept_by_every_pass() -> None:
    op = Builder()
    x, w = op.input("x", "float32", (2, 4)), op.input("w", "float32", (4, 4))
    y = op.MatMul(x, op.Identity(w))
    graph = op.graph([x, w], {"y": y, "w'": op.Identity(op.Sub(w, op.Mul(w, op.scalar(0.1, w))))}, [("w'", "w")])
    found, report = run_passes(graph, default_passes(), context())
    assert not report.errors
    assert found.state == (("w'", "w"),)
    verify(found)
    assert_same(graph, found, floats(2, 4), floats(4, 4))
