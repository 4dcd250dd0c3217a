"""Traces of passes: stable names, diffs by hand, files; and why a rule does not match at a node."""

from __future__ import annotations

import json
from typing import Any

import pytest

import aicore
from aicore.errors import ConfigError
from aicore.ir import Builder, Graph, Value, VersionPrinter, parse_graph, print_graph
from aicore.ops import CORE
from aicore.ops.activation import Relu
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct
from aicore.passes import (
    DiffLine,
    Pass,
    PassTrace,
    Recorder,
    WhyNot,
    run_passes,
    why_not,
)
from aicore.passes.fuse_linear import FuseLinear
from aicore.passes.fuse_pointwise import FusePointwise
from aicore.passes.remove_dead import RemoveDead
from aicore.passes.remove_identities import RemoveIdentities
from aicore.plugins import PluginRegistry
from aicore.rewrite import Rule, fuse, require, rule
from tests.passes.graphs import context, floats, lacking
from tests.passes.test_manager import chain, rule_pass

SOURCE = """
graph (%x: float32[2,3]) {
  %i: float32[2,3] = Identity(%x) from ["same"]
  %a: float32[2,3] = Relu(%i) from ["first"]
  %b: float32[2,3] = Neg(%a) from ["second"]
  %c: float32[2,3] = Softmax(%b){axis=1} from ["third"]
  return "y"=%c
}"""


def traced(graph: Graph, *passes: Pass, **options: Any) -> PassTrace:
    recorder = Recorder()
    recorder.begin("whole")
    run_passes(graph, passes, context(**options), recorder=recorder)
    return recorder.trace


@pytest.fixture
def trace() -> PassTrace:
    return traced(parse_graph(SOURCE.strip(), CORE), RemoveIdentities(), RemoveDead(), FusePointwise(largest=8))


def test_every_version_as_text(trace: PassTrace) -> None:
    first, idle, last = trace.steps
    assert [(s.number, s.name, s.changed, s.row.matches) for s in trace.steps] == [
        (1, "remove-identities", True, 1),
        (2, "remove-dead", False, 0),
        (3, "fuse-pointwise", True, 1),
    ]
    assert first.before_text == SOURCE.strip()
    assert (
        first.text
        == idle.text
        == SOURCE.strip().replace('  %i: float32[2,3] = Identity(%x) from ["same"]\n', "").replace("%i", "%x")
    )
    assert last.title == "3. fuse-pointwise (largest=8)"
    assert (last.first, last.changes) == (1, (("fuse-pointwise", "fuse-pointwise"),))
    assert trace.changes == [("remove-identities", ""), ("fuse-pointwise", "fuse-pointwise")]


def test_a_diff_by_hand(trace: PassTrace) -> None:
    diff = trace.step("remove-identities").diff
    assert diff.lines == (
        DiffLine("@", " line 1 "),
        DiffLine(" ", "graph (%x: float32[2,3]) {"),
        DiffLine("-", '  %i: float32[2,3] = Identity(%x) from ["same"]'),
        DiffLine("-", '  %a: float32[2,3] = Relu(%i) from ["first"]'),
        DiffLine("+", '  %a: float32[2,3] = Relu(%x) from ["first"]'),
        DiffLine(" ", '  %b: float32[2,3] = Neg(%a) from ["second"]'),
        DiffLine(" ", '  %c: float32[2,3] = Softmax(%b){axis=1} from ["third"]'),
    )
    assert (diff.removed, diff.added) == (2, 1)
    assert str(diff).startswith("1. remove-identities: 2 lines gone, 1 new\n@ line 1 \n graph (%x")
    assert str(trace.step("remove-dead").diff) == "2. remove-dead: none"


def test_views_of_a_trace(trace: PassTrace) -> None:
    diff = trace.step("remove-identities").diff
    assert diff.to_json()["lines"][2] == ["-", '  %i: float32[2,3] = Identity(%x) from ["same"]']
    html = diff._repr_html_()
    assert "color: #" in html
    assert "Identity(%x)" in html
    assert "<script" not in html
    assert "remove-identities" in trace._repr_html_()
    assert str(trace).splitlines()[0].startswith("1. remove-identities")
    data = trace.to_json()
    assert json.dumps(data)
    assert [step["name"] for step in data["steps"]] == ["remove-identities", "remove-dead", "fuse-pointwise"]
    assert str(trace.step("remove-dead")).startswith("2. remove-dead, 0 changes\ngraph (")


def test_markup_in_names_is_shown_as_it_is() -> None:
    op = Builder()
    x = op.input("[red]x[/red]", "float32", (2,))
    graph = op.graph([x], {"<b>y</b>": op.Relu(op.Identity(x))})
    diff = traced(graph, RemoveIdentities()).steps[0].diff
    assert "[red]x[/red]" in diff._repr_html_()
    assert "<b>" not in diff._repr_html_()


def test_files_are_numbered_and_hold_what_changed(trace: PassTrace) -> None:
    files = trace.files()
    assert list(files) == [
        "00-whole-source.txt",
        "01-whole-remove-identities.txt",
        "03-whole-fuse-pointwise.txt",
    ]
    assert files["00-whole-source.txt"] == SOURCE.strip()
    assert files["03-whole-fuse-pointwise.txt"].startswith("# 3. fuse-pointwise (largest=8)\ngraph (")


def test_names_that_are_no_pass(trace: PassTrace) -> None:
    with pytest.raises(ConfigError, match="no pass that ran is called 'remove-deed'; did you mean 'remove-dead'"):
        trace.step("remove-deed")
    with pytest.raises(ConfigError, match="there are: remove-identities, remove-dead, fuse-pointwise"):
        trace.named("xyz")


def test_a_value_has_one_name_in_all_versions() -> None:
    """`print_graph` numbers equal names in their order, so what a pass removes would rename what is left."""
    op = Builder()
    x = op.input("x", "float32", ("n", 3))
    twins = [op.apply(Relu(), op.Identity(x), names=("twin",)) for _ in range(3)]
    graph = op.graph([x], {"y": twins[2], "z": twins[0]})
    printer = VersionPrinter()
    first = printer.text(graph)
    assert first == print_graph(graph)
    smaller = op.graph([x], {"y": twins[2]})
    smaller = Graph(smaller.inputs, smaller.outputs, tuple(n for n in graph.nodes if twins[0] not in n.outputs))
    assert "%twin~2: " in printer.text(smaller)
    assert "%twin~2: " not in print_graph(smaller)
    assert printer.text(graph) == first
    assert print_graph(parse_graph(printer.text(graph), CORE)) == first


def test_programs_keep_their_trace(registry: PluginRegistry) -> None:
    program = aicore.compile(chain(2), "cpu", trace=True, registry=registry)
    stages = [step.stage for step in program.trace.steps]
    assert stages == sorted(stages, reverse=True)
    assert set(stages) == {"whole", "sized"}
    assert program.trace.step("fuse-linear").row.matches == 2


# ---- why not


def conv_act(*, tap: bool = False, act: str = "Relu", strides: tuple[int, int] = (1, 1)) -> Graph:
    op = Builder()
    x, w = op.input("x", "float32", (1, 3, 8, 8)), op.constant(floats(4, 3, 3, 3), "w")
    conv = op.apply(Conv(strides=strides), x, w, names=("conv",))
    y = getattr(op, act)(conv)
    return op.graph([x], {"y": y, "c": conv} if tap else {"y": y})


@rule(lambda op, x, w: op.Relu(op.Conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1))))
def same_conv(op: Any, x: Value, w: Value) -> Any:
    return op.Relu(op.Conv(x, w, pads=(1, 1, 1, 1)))


@rule(lambda op, x, w: op.Relu(op.Conv(x, w)))
def only_wide(op: Any, x: Value, w: Value) -> Any:
    require((x.shape or ())[1] == 64, "the image has few channels", x)
    return op.Relu(op.Conv(x, w))


@rule(lambda op, x, w: op.Relu(op.Conv(x, w)))
def other_type(op: Any, x: Value, w: Value) -> Any:
    return op.Cast(op.Relu(op.Conv(x, w)), to="float16")


@rule(lambda op, x, w: op.Relu(op.Add(op.Conv(x, w), x)))
def residual(op: Any, x: Value, w: Value) -> Any:
    return op.Relu(op.Conv(x, w))


@rule(lambda op, x: op.Relu(op.Mul(x, op.scalar(2.0, x))))
def doubled(op: Any, x: Value) -> Any:
    return op.Relu(x)


def asked(graph: Graph, one: Rule, node: str, **options: Any) -> WhyNot:
    return why_not(traced(graph, rule_pass("planted", one), **options), one.name, node)


FUSE = fuse(ConvAct)


@pytest.mark.parametrize(
    ("graph", "one", "kind", "reason", "pattern"),
    [
        (conv_act(act="Softmax"), same_conv, "root", "the pattern ends with Relu, which neither", "Relu(Conv(x, w,"),
        (conv_act(), residual, "op", "Conv 'conv' is not Add", "Relu(»Add(Conv(x, w), x)«)"),
        (conv_act(), same_conv, "attribute", "pads is (0, 0, 0, 0), the pattern wants (1, 1, 1, 1)", "Relu(»Conv("),
        (conv_act(tap=True), FUSE, "readers", "an interior value has other users or is a graph output (%conv", ""),
        (conv_act(), only_wide, "guard", "the image has few channels (%x: float32[1,3,8,8])", "Relu(Conv(x, w))"),
        (conv_act(), other_type, "type", "the result has another type", "Relu(Conv(x, w))"),
        (conv_act(), doubled, "op", "no operand of Relu 'relu' is computed by Mul", ""),
    ],
    ids=["root", "op", "attribute", "readers", "guard", "type", "constant"],
)
def test_which_part_failed(graph: Graph, one: Rule, kind: str, reason: str, pattern: str) -> None:
    found = asked(graph, one, "conv")
    assert (found.rule, found.pass_name, found.node) == (one.name, "planted", "Conv 'conv'")
    if one is not doubled:
        assert found.kind == kind, str(found)
        assert reason in found.reason
        assert pattern in found.pattern


def test_what_the_target_lacks_and_constants() -> None:
    found = asked(conv_act(), FUSE, "conv", supports=lacking(ConvAct))
    assert (found.kind, found.root, found.score) == ("kernel", "Relu 'relu'", 3)
    assert "no kernel for ConvAct: there is none for ConvAct" in found.reason
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {"y": op.Relu(op.Mul(x, op.scalar(3.0, x)))})
    found = asked(graph, doubled, "mul")
    assert (found.kind, found.pattern) == ("constant", "Relu(Mul(x, »2.0«))")
    assert "is not 2.0" in found.reason


def test_fates_of_nodes() -> None:
    matched = asked(conv_act(), FUSE, "conv")
    assert (matched.kind, matched.matched) == ("matched", True)
    assert "fuse-ConvAct#0" in matched.reason
    assert asked(conv_act(), FUSE, "relu").kind == "matched"
    left_out = asked(conv_act(), FUSE, "%conv", off=frozenset({"fuse-ConvAct"}))
    assert (left_out.kind, left_out.root) == ("left out", "Relu 'relu'")
    assert asked(conv_act(), FUSE, "conv", budget=0).kind == "left out"
    op = Builder()
    x = op.input("x", "float32", (3,))
    graph = op.graph([x], {"y": op.Add(x, op.Relu(op.constant(floats(3))))})
    assert asked(graph, doubled, "relu").kind == "folded"
    trace = traced(parse_graph(SOURCE.strip(), CORE), RemoveIdentities(), rule_pass("planted", doubled))
    gone = why_not(trace, "doubled", "same")
    assert gone.kind == "gone"
    assert "pass remove-identities took it away" in gone.reason


def test_source_names_and_names_that_are_none() -> None:
    trace = traced(parse_graph(SOURCE.strip(), CORE), rule_pass("planted", doubled))
    assert why_not(trace, "doubled", "second").node == "Neg 'b' (from second)"
    with pytest.raises(ConfigError, match="no node is called 'secund'; did you mean 'second'"):
        why_not(trace, "doubled", "secund")
    with pytest.raises(ConfigError, match="no rule is called 'dubled'; did you mean 'doubled'"):
        why_not(trace, "dubled", "second")


def test_views_of_a_near_miss() -> None:
    found = asked(conv_act(), same_conv, "conv")
    assert str(found).splitlines() == [
        "same-conv at Conv 'conv', in pass planted: an attribute has another value",
        "  attribute: Conv 'conv': pads is (0, 0, 0, 0), the pattern wants (1, 1, 1, 1)",
        "  1 op matched at Relu 'relu'",
        "  pattern: Relu(»Conv(x, w, strides=(1, 1), pads=(1, 1, 1, 1))«)",
    ]
    assert found.to_json()["kind"] == "attribute"
    assert "Conv" in found._repr_html_()


def test_the_whole_of_a_linear_pass() -> None:
    trace = traced(chain(2), FuseLinear())
    assert why_not(trace, "fuse-ConvAddAct", "relu").kind in {"op", "operand", "root", "matched", "gone"}
