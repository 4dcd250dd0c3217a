"""Choices: their text, what they leave out, and names that are none."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aicore
from aicore.errors import AicoreError, ConfigError
from aicore.ir import Builder, Graph
from aicore.passes import Choices, default_passes, run_passes, specialise_passes
from aicore.passes.choices import options_text
from aicore.passes.fuse_pointwise import FusePointwise
from aicore.passes.place_channels_last import PlaceChannelsLast
from aicore.plugins import PluginRegistry
from tests.passes.graphs import context, floats, kinds
from tests.passes.test_manager import chain

PASSES = (*default_passes(), *specialise_passes())
NAMES = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9-]*", fullmatch=True).filter(lambda name: name not in ("limit", "default"))
FIELDS = st.from_regex(r"[a-z_]+", fullmatch=True)
VALUES = st.one_of(st.integers(0, 10**6), st.booleans(), st.text(), st.lists(st.text()).map(tuple))


@given(st.lists(NAMES), st.dictionaries(st.tuples(NAMES, FIELDS), VALUES, max_size=4), st.none() | st.integers(0, 999))
def test_text_reads_back(
    off: list[str], settings: dict[tuple[str, str], aicore.passes.choices.Option], limit: int | None
) -> None:
    chosen = Choices(limit=limit).without(*off)
    for (name, field), value in settings.items():
        chosen = chosen.set(name, field, value)
    assert Choices.parse(str(chosen)) == chosen
    assert bool(chosen) is (str(chosen) != "default")


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", Choices()),
        ("default", Choices()),
        ("-b,-a", Choices(off=("a", "b"))),
        ("limit=3", Choices(limit=3)),
        (
            '-fuse-Gelu,place-channels-last.plain=["a,b","c\\"d"],fuse-pointwise.largest=8',
            Choices(
                ("fuse-Gelu",), (("fuse-pointwise", "largest", 8), ("place-channels-last", "plain", ("a,b", 'c"d')))
            ),
        ),
    ],
)
def test_texts(text: str, chosen: Choices) -> None:
    assert Choices.parse(text) == chosen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fuse", r"'fuse' in 'fuse' is no choice; write -NAME"),
        ("-a,", r"'' in '-a,' is no choice"),
        ("-a -b", r"' -b' in '-a -b': a comma should stand before it"),
        ("a.b=", "begins with no value"),
        ("a.b=" + "[" * 100_000, "begins with no value"),
        ("a.b={}", "is no number, text, truth value or list of texts"),
        ("a.b=[1]", "is no number, text, truth value or list of texts"),
        ("a.b=1.5", "is no number"),
        ("limit=-1", "is no choice"),
        ("limit=" + "9" * 5000, "is no choice"),
        ("a.b=" + "9" * 5000, "begins with no value"),
    ],
)
def test_texts_that_are_none(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Choices.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-fuse-ConvAkt", "no rule or pass is called 'fuse-ConvAkt'; did you mean 'fuse-ConvAct'?"),
        ("-decompose-unsupported", "pass decompose-unsupported cannot be left out: programs may not run without it"),
        ("fuse-pointwize.largest=1", "no pass is called 'fuse-pointwize'; did you mean 'fuse-pointwise'?"),
        ("fuse-pointwise.larges=1", "pass fuse-pointwise has no option 'larges'; did you mean 'largest'?"),
        ('fuse-pointwise.largest="8"', 'fuse-pointwise.largest="8": the value must be of type int, and not negative'),
        ("fuse-pointwise.largest=true", "the value must be of type int"),
        ("fuse-pointwise.largest=-1", "the value must be of type int, and not negative"),
        ("place-channels-last.plain=1", "the value must be a list of texts"),
        ("remove-dead.speed=1", "pass remove-dead has no option 'speed'; there are: none"),
    ],
)
def test_choices_that_fit_no_pass(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Choices.parse(text).check(PASSES)
    assert message in str(error.value)


def test_taking_back() -> None:
    chosen = Choices.parse("-a,-b").including("a").set("p", "q", 1).set("p", "q", 2)
    assert str(chosen) == "-b,p.q=2"
    assert chosen.get(FusePointwise(), "largest") == 64
    assert Choices().set("fuse-pointwise", "largest", 8).get(FusePointwise(), "largest") == 8
    assert options_text(FusePointwise()) == "largest=64"


def compiled_kinds(graph: Graph, choices: str, registry: PluginRegistry) -> list[str]:
    return kinds(aicore.compile(graph, "cpu", choices=choices, registry=registry).graph)


def test_rules_passes_options_and_limits_in_a_compilation(registry: PluginRegistry) -> None:
    graph = chain(3)
    plain = "-place-channels-last"
    assert compiled_kinds(graph, plain, registry) == ["ConvAct"] * 3
    assert compiled_kinds(graph, f"{plain},-fuse-ConvAct", registry) == ["Conv", "Relu"] * 3
    assert compiled_kinds(graph, f"{plain},-fuse-linear", registry) == ["Conv", "Relu"] * 3
    assert compiled_kinds(graph, "limit=2", registry) == ["ConvAct", "ConvAct", "Conv", "Relu"]
    assert compiled_kinds(graph, "limit=0", registry) == ["Conv", "Relu"] * 3


def test_a_program_says_what_was_asked_of_its_passes(registry: PluginRegistry) -> None:
    program = aicore.compile(chain(2), "cpu", choices=Choices(("fuse-linear",)), registry=registry)
    assert program.explain().choices == "-fuse-linear: asked for"
    assert "choices: the default passes" in str(aicore.compile(chain(2), "cpu", registry=registry).explain())
    with pytest.raises(ConfigError, match="no rule or pass is called 'x'"):
        aicore.compile(chain(1), "cpu", choices="-x", registry=registry)


def test_numbers_of_changes_go_on_where_the_whole_graph_ended(registry: PluginRegistry) -> None:
    op = Builder()
    x = op.input("x", "float32", ("n", 4))
    graph = op.graph([x], {"y": op.Reshape(op.Relu(op.Identity(x)), op.Shape(x)), "z": op.Size(x)})
    program = aicore.compile(graph, "cpu", trace=True, registry=registry)
    program.run({"x": floats(2, 4)})
    steps = program.trace.steps
    counted = 0
    for step in steps:
        assert step.first == counted
        counted += len(step.changes)
    sized = [step for step in steps if step.stage == "sized" and step.changes]
    assert sized
    assert len(program.trace.changes) == counted


def test_a_trace_must_be_asked_for(registry: PluginRegistry) -> None:
    with pytest.raises(AicoreError, match="compile with trace=True"):
        _ = aicore.compile(chain(1), "cpu", registry=registry).trace


def test_islands_may_be_left_alone_one_by_one() -> None:
    op = Builder()
    x = op.input("x", "float32", (1, 3, 16, 16))

    def tower(name: str) -> object:
        h = x
        for i in range(3):
            h = op.Conv(h, op.constant(floats(3, 3, 3, 3)), pads=(1, 1, 1, 1))
            h = op.apply(aicore.ops.Relu(), h, names=(f"{name}{i}",))
        return op.ReduceMean(op.Reshape(h, shape=(3, 256)), axes=(1,))

    graph = op.graph([x], {"a": tower("a"), "b": tower("b")})  # type: ignore[dict-item]
    one = PlaceChannelsLast()
    found, _ = run_passes(graph, [one], context())
    everything = kinds(found).count("ChannelsLast")
    assert everything == 6
    offered = one.alternatives(graph, context())["plain"]
    assert len(offered) >= 1
    for names in offered:
        left, _ = run_passes(graph, [PlaceChannelsLast(plain=names)], context())
        assert kinds(left).count("ChannelsLast") < everything
    assert json.dumps(offered)


def test_sizes_of_regions_that_make_a_difference() -> None:
    op = Builder()
    x = op.input("x", "float32", (3, 4))
    h = x
    for _ in range(10):
        h = op.Tanh(op.Neg(h))
    graph = op.graph([x], {"y": h})
    assert FusePointwise().alternatives(graph, context()) == {"largest": [16, 8, 4, 2]}
    assert FusePointwise(largest=4).alternatives(graph, context()) == {"largest": [2]}
    none = op.graph([x], {"y": x})
    assert FusePointwise().alternatives(Graph(none.inputs, none.outputs, ()), context()) == {"largest": []}


def test_a_pass_of_a_class_of_its_own_has_no_options() -> None:
    own: Any = SimpleNamespace(name="odd", phase="fuse", before=(), after=(), apply=lambda graph, ctx: graph)
    assert options_text(own) == ""
    assert Choices(off=("odd",)).apply([own]) == ()
    with pytest.raises(ConfigError, match="pass odd has no option 'size'; there are: none"):
        Choices.parse("odd.size=1").check([own])
