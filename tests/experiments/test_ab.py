"""`ab`: a slow rule is rejected, a good one kept, a wrong one rejected however fast; what is kept."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import AicoreError, ConfigError, InputError, TuningError
from aicore.experiments import ABResult, ab, tune_graph, whole_graph, with_without
from aicore.ir import Builder, Graph, Value
from aicore.plugins import PluginRegistry
from aicore.rewrite import Rule, rule
from aicore.tuning import Comparison, TuningStore
from tests.experiments.planted import pass_of, registry_with

SIZE = 256


def network() -> Graph:
    """Three square products, with exp(log(x)) six times in between, which is x for what is positive."""
    op = Builder()
    x = h = op.input("x", "float32", ("n", SIZE))
    rng = np.random.default_rng(0)
    for _ in range(3):
        w = op.constant((rng.standard_normal((SIZE, SIZE)) / 16).astype(np.float32))
        h = op.Add(op.Abs(h), op.scalar(1.0, h))
        for _ in range(6):
            h = op.Exp(op.Log(h))
        h = op.MatMul(h, w)
    return op.graph([x], {"y": h})


FEED = {"x": np.random.default_rng(1).standard_normal((64, SIZE)).astype(np.float32)}


@rule(lambda op, x, w: op.MatMul(x, w))
def slow_product(op: Any, x: Value, w: Value) -> Any:
    """x @ w -> (x @ w + x @ w + ...) / 8 as Gemm, each computed anew, as nothing merges nodes after fusing."""
    parts = [op.Gemm(x, w) for _ in range(8)]
    while len(parts) > 1:
        parts = [op.Add(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return op.Mul(parts[0], op.scalar(0.125, x))


@rule(lambda op, x: op.Exp(op.Log(x)))
def exp_of_log(op: Any, x: Value) -> Any:
    """exp(log(x)) -> x"""
    return x


@rule(lambda op, x, w: op.MatMul(x, w))
def no_product(op: Any, x: Value, w: Value) -> Any:
    """x @ w -> x / 2, which is fast and wrong."""
    return op.Mul(x, op.scalar(0.5, x))


def planted(one: Rule) -> PluginRegistry:
    """What is slow comes after the passes that would mend it."""
    return registry_with(pass_of("planted", one, in_phase="fuse" if one is slow_product else "simplify"))


def products() -> Graph:
    """Three square products and little else."""
    op = Builder()
    x = h = op.input("x", "float32", ("n", SIZE))
    rng = np.random.default_rng(0)
    for _ in range(3):
        h = op.MatMul(op.Abs(h), op.constant((rng.standard_normal((SIZE, SIZE)) / 16).astype(np.float32)))
    return op.graph([x], {"y": h})


def judge(one: Rule, **options: Any) -> ABResult:
    """One thread, as this machine may have others to run."""
    graph = products() if one is slow_product else network()
    return ab(graph, one.name, FEED, target="cpu", registry=planted(one), **{"threads": 1, **options})


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A store of its own, which compilations use."""
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AICORE_TUNE", "cached")
    return tmp_path


# ---- verdicts on the real clock; the effects are several-fold


def test_a_slow_rule_is_rejected_and_a_good_one_kept() -> None:
    slow, good = judge(slow_product), judge(exp_of_log)
    assert slow.verdict == "reject", str(slow)
    assert good.verdict == "keep", str(good)
    assert slow.time is not None and slow.time.low > 1  # noqa: PT018
    assert good.time is not None and good.time.high < 1  # noqa: PT018
    assert slow.with_it.steps > slow.without.steps
    assert slow.with_it.difference is not None and slow.with_it.difference.is_right  # noqa: PT018
    assert "95 % confidence" in slow.reason


@pytest.mark.slow
def test_ten_repetitions_do_not_flip() -> None:
    found = [(judge(slow_product).verdict, judge(exp_of_log).verdict) for _ in range(10)]
    assert found == [("reject", "keep")] * 10


def test_a_wrong_rule_is_rejected_however_fast() -> None:
    found = judge(no_product)
    assert (found.verdict, found.time) == ("reject", None)
    assert found.reason.startswith("its results are wrong: ")
    assert found.with_it.steps < found.without.steps + 3
    assert "elements are wrong" in str(found)


def test_a_rule_that_matches_nothing_makes_no_difference() -> None:
    @rule(lambda op, x: op.Sin(op.Cos(x)))
    def never(op: Any, x: Value) -> Any:
        return op.Cos(x)

    found = judge(never)
    assert (found.verdict, found.time) == ("no difference", None)
    assert found.reason.startswith("the program is the same")


def test_a_rule_that_raises_is_rejected_with_its_reason() -> None:
    @rule(lambda op, x: op.Abs(x))
    def boom(op: Any, x: Value) -> Any:
        raise ZeroDivisionError("bug in a plugin")

    found = judge(boom)
    assert found.verdict == "reject"
    assert "planted rolled back" in found.reason
    assert "ZeroDivisionError: bug in a plugin" in found.reason


def test_where_both_are_wrong_nothing_is_judged() -> None:
    registry = registry_with(pass_of("planted", exp_of_log), pass_of("other", no_product))
    found = ab(network(), "exp-of-log", FEED, target="cpu", registry=registry, seconds=0.1)
    assert found.verdict == "no difference"
    assert "both are wrong" in found.reason
    assert "aicore bisect" in found.reason


def test_what_mends_wrong_results_is_kept() -> None:
    op = Builder()
    x = op.input("x", "float32", ("n", SIZE))
    graph = op.graph([x], {"y": op.Abs(x)})

    @rule(lambda op, x: op.Abs(x))
    def halve(op: Any, x: Value) -> Any:
        return op.Mul(op.Sqrt(op.Mul(x, x)), op.scalar(0.5, x))

    @rule(lambda op, x: op.Mul(op.Sqrt(x), op.scalar(0.5, x)))
    def mend(op: Any, x: Value) -> Any:
        return op.Sqrt(x)

    registry = registry_with(pass_of("planted", halve), pass_of("mending", mend))
    found = ab(graph, "mend", FEED, target="cpu", registry=registry, seconds=0.1)
    assert (found.verdict, found.time) == ("keep", None)
    assert found.reason.startswith("without it, results are wrong")


# ---- against


def test_against_other_pipelines() -> None:
    found = judge(exp_of_log, against="none", seconds=0.2)
    assert found.without.nodes > found.with_it.nodes
    assert found.rival == "none"
    assert "-planted" in str(found.without.choices)
    same = judge(exp_of_log, against="default", seconds=0.2)
    assert same.reason.startswith("the program is the same")
    limited = judge(exp_of_log, against="limit=0", seconds=0.2)
    assert str(limited.without.choices) == "limit=0"


@pytest.mark.parametrize(
    ("name", "against", "message"),
    [
        ("exp-of-lag", "", "no rule or pass is called 'exp-of-lag'; did you mean 'exp-of-log'?"),
        ("exp-of-log", "exp", "'exp' in 'exp' is no choice"),
        ("decompose-unsupported", "", "cannot be left out"),
    ],
)
def test_names_that_are_none(name: str, against: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ab(network(), name, FEED, target="cpu", against=against, registry=planted(exp_of_log), seconds=0.1)


def test_a_model_that_runs_in_neither_way() -> None:
    op = Builder()
    x = op.input("x", "float32", ("n", 4))
    graph = op.graph([x], {"y": op.Reshape(x, shape=(7, 3))})
    with pytest.raises(AicoreError, match="the model runs neither with exp-of-log nor without it"):
        ab(graph, "exp-of-log", {"x": np.ones((2, 4), np.float32)}, target="cpu", registry=planted(exp_of_log))


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "missing input 'x'"),
        ({**FEED, "z": 1}, "no such input 'z'"),
        ({"x": np.ones((2, 3), np.float32)}, "input 'x': expected .*, got float32\\[2,3\\]"),
    ],
)
def test_feeds_that_are_none(feeds: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ab(network(), "exp-of-log", feeds, target="cpu", registry=planted(exp_of_log))


@pytest.mark.parametrize(("name", "against"), [("exp-of-lag", ""), ("exp-of-log", "-exp-of-lag")])
def test_names_are_looked_up_before_anything_runs(name: str, against: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_without, "Bench", None)
    with pytest.raises(ConfigError, match="did you mean 'exp-of-log'"):
        ab(network(), name, FEED, target="cpu", against=against, registry=planted(exp_of_log))


def test_an_interrupt_shows_what_the_pairs_said_and_keeps_nothing(cache: Path) -> None:
    def stop(state: Comparison) -> None:
        if state.pairs == 3:
            raise KeyboardInterrupt

    found = ab(network(), "planted", FEED, target="cpu", keep=True, registry=planted(exp_of_log), advance=stop)
    assert found.time is not None
    assert (found.finished, found.kept, found.time.pairs, found.verdict) == (False, "", 3, "no difference")
    assert found.notes == ("interrupted, so nothing is kept",)
    assert found.to_json()["finished"] is False
    assert "of the time, but 3 pairs are too few to tell" in str(found)
    assert "inf" not in str(found)
    assert list(TuningStore(cache / "tuning.sqlite").rows()) == []


def test_a_store_that_cannot_be_written_is_told_before_anything_runs(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "tuning.sqlite").write_text("no store")
    for module in (with_without, whole_graph):
        monkeypatch.setattr(module, "Bench", None)
    with pytest.raises(TuningError, match=r"cannot keep what was measured: .*; fix: delete the file"):
        ab(network(), "exp-of-log", FEED, target="cpu", keep=True, registry=planted(exp_of_log))
    with pytest.raises(TuningError, match="cannot keep what was measured"):
        tune_graph(network(), FEED, target="cpu", registry=planted(exp_of_log))
    with pytest.raises(TypeError):  # what is not kept needs no store
        ab(network(), "exp-of-log", FEED, target="cpu", registry=planted(exp_of_log))


def test_an_interrupt_before_the_first_pair_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(with_without, "compare_runs", stop)
    with pytest.raises(KeyboardInterrupt):
        ab(network(), "exp-of-log", FEED, target="cpu", registry=planted(exp_of_log))


# ---- what is kept


def test_a_rejected_rule_is_off_from_then_on_and_the_explanation_says_so(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry, graph = planted(slow_product), products()
    found = judge(slow_product, keep=True)
    assert found.verdict == "reject"
    assert found.kept.startswith("kept: -slow-product from now on for this graph and (float32[64,256]) on cpu, in ")
    with caplog.at_level(logging.INFO, "aicore"):
        program = aicore.compile(graph, "cpu", threads=1, registry=registry)
        program.run(FEED)
    assert "-slow-product: measured on this device" in caplog.text
    assert program.explain().choices.startswith("-slow-product: measured on this device for these shapes")
    assert "choices: -slow-product" in str(program.explain())
    assert program.explain().to_json()["choices"].startswith("-slow-product")
    assert sum(len(plan.steps) for plan in program.plan) == found.without.steps
    program.run({"x": FEED["x"][:3]})  # nothing is known of these shapes
    assert program.explain().choices == ""
    ignoring = aicore.compile(graph, "cpu", threads=1, registry=registry, tune="off")
    ignoring.run(FEED)
    assert ignoring.explain().choices == ""
    asked = aicore.compile(graph, "cpu", threads=1, registry=registry, choices="default")
    asked.run(FEED)
    assert sum(len(plan.steps) for plan in asked.plan) == found.with_it.steps


def test_verdicts_add_up_and_may_be_taken_back(cache: Path) -> None:
    registry = registry_with(pass_of("planted", slow_product, in_phase="fuse"), pass_of("other", exp_of_log))
    graph = network()

    def kept(name: str) -> ABResult:
        return ab(graph, name, FEED, target="cpu", registry=registry, threads=1, keep=True)

    assert kept("slow-product").verdict == "reject"
    second = kept("exp-of-log")
    assert second.verdict == "keep"
    assert str(second.with_it.choices) == "-slow-product"
    assert str(second.without.choices) == "-exp-of-log,-slow-product"
    again = kept("slow-product")  # its side with the rule has it, though it is off
    assert str(again.with_it.choices) == "default"
    assert again.verdict == "reject"


def test_a_wrong_rule_is_kept_out(cache: Path) -> None:
    judge(no_product, keep=True)
    program = aicore.compile(network(), "cpu", threads=1, registry=planted(no_product))
    program.run(FEED)
    assert program.explain().choices.startswith("-no-product")


def test_records_of_graphs_travel(cache: Path, tmp_path: Path) -> None:
    from aicore.tuning import export_records, import_records

    judge(no_product, keep=True)
    data = export_records(TuningStore(cache / "tuning.sqlite"))
    (row,) = [row for row in data["records"] if row["problem"].startswith("graph ")]
    assert row["record"]["chosen"] == "-no-product"
    (tmp_path / "out.json").write_text(json.dumps(data))
    assert import_records(TuningStore(tmp_path / "other.sqlite"), tmp_path / "out.json")[0] == len(data["records"])


# ---- views


def test_views() -> None:
    found = judge(no_product)
    data = found.to_json()
    assert json.dumps(data)
    assert (data["verdict"], data["with"]["choices"], data["without"]["choices"]) == (
        "reject",
        "default",
        "-no-product",
    )
    assert data["with"]["difference"]["wrong"] > 0
    html = found._repr_html_()
    assert "reject" in html
    assert "<pre" in html
    assert str(found).startswith("no-product on cpu, against the same without no-product\n")
