"""`bisect`: which change is wrong, in how few runs, and what it says where no single one is."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicore import ops
from aicore.errors import AicoreError, ConfigError, InputError, PluginError
from aicore.experiments import Bisection, bisect, partners
from aicore.ir import Builder, Graph, Value
from aicore.kernels import kernel
from aicore.rewrite import rule
from aicore.testing import replay
from tests.experiments.planted import LAYERS, pass_of, registry_with, relu_to_max, tower

FEED = {"x": np.linspace(0.1, 1.0, 12, dtype=np.float32).reshape(2, 6)}
ONLY_PLANTED = (
    "-fold-constants,-fold-shapes,-remove-identities,-merge-common,-recognise-functions,-fuse-pointwise,-remove-dead"
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return tower()


@pytest.mark.parametrize("index", [0, 333, 499])
def test_a_wrong_rewrite_among_500_is_found_in_at_most_11_runs(graph: Graph, index: int) -> None:
    registry = registry_with(pass_of("planted", relu_to_max((index,))))
    limits: list[int] = []
    found = bisect(
        graph,
        FEED,
        target="cpu",
        registry=registry,
        choices=ONLY_PLANTED,
        advance=lambda n, limit, ok: limits.append(limit),
    )
    assert (found.ending, found.total) == ("found", LAYERS)
    assert (found.pass_name, found.rule, found.match) == ("planted", "relu-as-max", index)
    assert found.node == f"Max 'r{index}'"
    assert found.runs == len(limits) <= math.ceil(math.log2(LAYERS)) + 2 == 11
    assert (found.last_right, found.first_wrong) == (index, index + 1)
    assert "wrong by itself" in found.verdict
    assert str(found).startswith(f"planted: relu-as-max#{index} at Max 'r{index}' ({found.runs} runs, 500 changes)")


def test_among_all_default_passes_too(graph: Graph) -> None:
    registry = registry_with(pass_of("planted", relu_to_max((333,))))
    found = bisect(graph, FEED, target="cpu", registry=registry)
    assert (found.pass_name, found.rule, found.node) == ("planted", "relu-as-max", "Max 'r333'")
    assert found.runs <= math.ceil(math.log2(found.total)) + 2


def test_the_repro_replays_alone_and_holds_onnx_and_inputs(tmp_path: Path) -> None:
    import onnx

    registry = registry_with(pass_of("planted", relu_to_max((3,))))
    found = bisect(tower(8), FEED, target="cpu", registry=registry, folder=tmp_path / "repro")
    assert found.repro == str(tmp_path / "repro")
    again = replay(tmp_path / "repro", registry)
    assert again.reproduced
    assert not replay(tmp_path / "repro", registry_with(pass_of("planted", relu_to_max()))).reproduced
    model = onnx.load(tmp_path / "repro" / "model.onnx")
    assert [node.op_type for node in model.graph.node] == ["Relu"]
    with np.load(tmp_path / "repro" / "inputs.npz") as inputs:
        assert [value.name for value in model.graph.input] == list(inputs) == ["a3"]
        assert inputs["a3"].shape == (2, 6)
    about = json.loads((tmp_path / "repro" / "repro.json").read_text())
    assert about["change"] == {"pass": "planted", "rule": "relu-as-max", "match": found.match, "node": "Max 'r3'"}
    assert (tmp_path / "repro" / "replay.py").is_file()


def test_the_limits_that_it_names_are_right_and_wrong() -> None:
    import aicore

    graph, registry = tower(8), registry_with(pass_of("planted", relu_to_max((5,))))
    want = aicore.compile(graph, "cpu", choices="limit=0", registry=registry).run(FEED)["y"]
    found = bisect(graph, FEED, target="cpu", registry=registry)
    for limit, right in ((found.last_right, True), (found.first_wrong, False)):
        got = aicore.compile(graph, "cpu", choices=f"limit={limit}", registry=registry).run(FEED)["y"]
        assert np.allclose(got, want, atol=1e-6) is right
    assert f"right with --choices limit={found.last_right}, wrong with --choices limit={found.first_wrong}" in str(
        found
    )


def test_of_several_culprits_one_is_named_and_the_way_to_go_on() -> None:
    @rule(lambda op, x, y: op.Add(x, y))
    def shift(op: Any, x: Value, y: Value) -> Any:
        return op.Sub(x, y)

    graph = tower(8)
    registry = registry_with(pass_of("planted", relu_to_max((5,))), pass_of("other", shift))
    found = bisect(graph, FEED, target="cpu", registry=registry)
    assert "there may be more" in str(found)
    assert found.advice[-1].endswith(f"--choices -{found.rule}")
    more = bisect(graph, FEED, target="cpu", registry=registry, choices=f"-{found.rule}")
    assert {found.rule, more.rule} == {"shift", "relu-as-max"}
    last = bisect(graph, FEED, target="cpu", registry=registry, choices=f"-{found.rule},-{more.rule}")
    assert last.ending == "right"


def test_nothing_is_wrong() -> None:
    found = bisect(tower(4), FEED, target="cpu", registry=registry_with())
    assert (found.ending, found.runs) == ("right", 1)
    assert str(found).startswith("nothing is wrong on cpu, compared with reference (")


@kernel(ops.Add, device="cpu", variant="one_too_many", estimate=lambda op, x, y: 0.0)
def add_wrong(op: ops.Add, x: Any, y: Any) -> Any:
    return x + y + 1


def test_a_wrong_kernel_is_no_rewrite() -> None:
    registry = registry_with(kernels=(add_wrong,))
    op = Builder()
    x = op.input("x", "float32", (2, 6))
    graph = op.graph([x], {"y": op.Softmax(op.Add(x, x)), "z": op.Add(x, x)})
    found = bisect(graph, FEED, target="cpu", registry=registry)
    assert (found.ending, found.runs) == ("wrong from the start", 2)
    assert "aicore parity MODEL --targets cpu" in str(found)


@kernel(ops.Max, device="cpu", variant="of_the_planted_kind", estimate=lambda op, *xs: 0.0)
def max_wrong(op: ops.Max, *xs: Any) -> Any:
    return np.maximum(xs[0], xs[1]) + np.float32(0.5)


def test_a_right_change_whose_kernel_is_wrong_is_told_from_a_wrong_change(tmp_path: Path) -> None:
    registry = registry_with(pass_of("planted", relu_to_max()), kernels=(max_wrong,))
    choices = "-fuse-pointwise"
    found = bisect(tower(4), FEED, target="cpu", registry=registry, choices=choices, folder=tmp_path)
    assert (found.rule, found.ending) == ("relu-as-max", "found")
    assert "keeps what the graph means, but its node is computed wrongly" in found.verdict
    assert "max_of_the_planted_kind" in found.verdict
    assert replay(tmp_path, registry).reproduced


def test_changes_that_are_wrong_only_together_end_with_an_honest_message() -> None:
    scratch = {"dirty": False}  # what two kernels share, as a bug in a backend might have it

    @kernel(ops.Max, device="cpu", variant="that_leaves_dirt", estimate=lambda op, *xs: 0.0)
    def max_dirty(op: ops.Max, *xs: Any) -> Any:
        scratch["dirty"] = True
        return np.maximum(xs[0], xs[1])

    @kernel(ops.Reciprocal, device="cpu", variant="that_reads_dirt", estimate=lambda op, x: 0.0)
    def reciprocal_dirty(op: ops.Reciprocal, x: Any) -> Any:
        dirty, scratch["dirty"] = scratch["dirty"], False
        return np.reciprocal(x) + np.float32(dirty)

    @kernel(ops.Sigmoid, device="cpu", variant="that_cleans", estimate=lambda op, x: 0.0)
    def sigmoid_clean(op: ops.Sigmoid, x: Any) -> Any:
        scratch["dirty"] = False
        return np.reciprocal(1 + np.exp(-x))

    @rule(lambda op, x: op.Sigmoid(x))
    def sigmoid_by_parts(op: Any, x: Value) -> Any:
        return op.Reciprocal(op.Add(op.Exp(op.Neg(x)), op.scalar(1.0, x)))

    op = Builder()
    x = op.input("x", "float32", (2, 6))
    graph = op.graph([x], {"y": op.Sigmoid(op.apply(ops.Relu(), op.Sub(x, op.scalar(0.5, x)), names=("r0",)))})

    @rule(lambda op, x: op.Relu(x))
    def relu_as_max(op: Any, x: Value) -> Any:
        return op.Max(x, op.scalar(0.0, x))

    passes = (pass_of("one", relu_as_max), pass_of("two", sigmoid_by_parts))
    registry = registry_with(*passes, kernels=(max_dirty, reciprocal_dirty, sigmoid_clean))
    for alone in ("relu-as-max", "sigmoid-by-parts"):
        choices = f"-fuse-pointwise,-recognise-functions,-{alone}"
        assert bisect(graph, FEED, target="cpu", registry=registry, choices=choices).ending == "right"
    found = bisect(graph, FEED, target="cpu", registry=registry, choices="-fuse-pointwise,-recognise-functions")
    assert (found.ending, found.rule) == ("found", "sigmoid-by-parts")
    assert found.verdict.startswith("by itself the change is right")
    assert "wrong only together with changes before it" in found.verdict
    assert found.verdict.endswith("They are wrong with relu-as-max and sigmoid-by-parts alone")
    assert (found.partners, found.to_json()["partners"]) == (("relu-as-max",), ["relu-as-max"])
    assert found.repro == ""


def test_matches_of_one_rule_that_are_wrong_together_are_told() -> None:
    before: dict[str, Any] = {"x": None}

    @kernel(ops.Max, device="cpu", variant="that_wants_the_same_again", estimate=lambda op, *xs: 0.0)
    def max_twice(op: ops.Max, *xs: Any) -> Any:
        is_other = before["x"] is not None and not np.array_equal(before["x"], xs[0])
        before["x"] = xs[0].copy()
        return np.maximum(xs[0], xs[1]) + np.float32(is_other)

    @kernel(ops.Exp, device="cpu", variant="that_forgets", estimate=lambda op, *xs: 0.0)
    def exp_forgets(op: ops.Exp, x: Any) -> Any:
        before["x"] = None
        return np.exp(x)

    op = Builder()
    x = op.input("x", "float32", (2, 6))
    first = op.apply(ops.Relu(), op.Sub(x, op.scalar(0.5, x)), names=("r0",))
    graph = op.graph([x], {"y": op.Exp(op.apply(ops.Relu(), op.Neg(first), names=("r1",)))})

    @rule(lambda op, x: op.Relu(x))
    def relu_as_max(op: Any, x: Value) -> Any:
        return op.Max(x, op.scalar(0.0, x))

    registry = registry_with(pass_of("one", relu_as_max), kernels=(max_twice, exp_forgets))
    found = bisect(graph, FEED, target="cpu", registry=registry, choices="-fuse-pointwise,-simplify-arithmetic")
    assert (found.ending, found.rule, found.partners) == ("found", "relu-as-max", ())
    assert found.verdict.endswith("With relu-as-max alone they are wrong, too: its own matches take part")


@pytest.mark.parametrize("culprits", [("a",), ("j",), ("c", "h"), ("a", "e", "j"), tuple("abcdefghij")])
def test_the_fewest_names_are_found_in_few_runs(culprits: tuple[str, ...]) -> None:
    runs: list[list[str]] = []

    def is_wrong(names: Sequence[str]) -> bool:
        runs.append(list(names))
        return set(culprits) <= set(names)

    assert partners._fewest("abcdefghij", is_wrong) == culprits
    assert len(runs) <= 2 * 10


def test_partners_that_do_not_explain_it_are_none() -> None:
    registry = registry_with()
    assert partners.partners_of("fuse-pointwise", ["fuse-Gelu"], registry, lambda names: False) is None
    assert partners.partners_of("fuse-pointwise", ["fuse-Gelu"], registry, lambda names: True) == ()
    assert partners.partners_text("fuse-pointwise", None) == ""


def test_another_target_may_be_the_reference() -> None:
    registry = registry_with(pass_of("planted", relu_to_max((2,))))
    found = bisect(tower(8), FEED, target="cpu", reference="cpu:reference", registry=registry)
    assert (found.rule, found.node, found.reference) == ("relu-as-max", "Max 'r2'", "cpu:reference")


def test_what_raises_is_wrong_too() -> None:
    @kernel(ops.Max, device="cpu", variant="raising", estimate=lambda op, *xs: 0.0)
    def max_raising(op: ops.Max, *xs: Any) -> Any:
        raise ZeroDivisionError("no")

    registry = registry_with(pass_of("planted", relu_to_max()), kernels=(max_raising,))
    found = bisect(tower(4), FEED, target="cpu", registry=registry, choices="-fuse-pointwise")
    assert (found.ending, found.rule) == ("found", "relu-as-max")
    assert "ZeroDivisionError: no" in found.wrong


def test_names_that_are_none() -> None:
    with pytest.raises(PluginError, match="tpu"):
        bisect(tower(2), FEED, target="tpu", registry=registry_with())
    registry = registry_with(pass_of("planted", relu_to_max()))
    with pytest.raises(ConfigError, match="no rule or pass is called 'relu-as-mux'; did you mean 'relu-as-max'"):
        bisect(tower(2), FEED, target="cpu", registry=registry, choices="-relu-as-mux")


def test_feeds_that_are_none_and_a_reference_that_fails() -> None:
    with pytest.raises(InputError, match="missing input 'x'"):
        bisect(tower(2), {}, target="cpu", registry=registry_with())
    op = Builder()
    x, i = op.input("x", "float32", (4,)), op.input("i", "int64", (1,))
    graph = op.graph([x, i], {"y": op.Gather(x, i, axis=0)})
    feeds = {"x": np.ones(4, np.float32), "i": np.array([9])}
    with pytest.raises(AicoreError, match=r"the reference cannot run the model: .*9.* out of range"):
        bisect(graph, feeds, target="cpu", registry=registry_with())


def test_views() -> None:
    found = Bisection("found", "cpu", "reference", 5, 9, "p", "r", 3, "Relu 'y'", 3, 4, "2 elements", "it is", ("so",))
    assert str(found) == "p: r#3 at Relu 'y' (5 runs, 9 changes)\n  results: 2 elements\n  it is\n  so"
    assert "Relu" in found._repr_html_()
    data = found.to_json()
    assert (data["match"], data["runs"], data["node"]) == (3, 5, "Relu 'y'")
    assert json.dumps(data)
