"""Choices searched over whole programs: what is found, kept, never worse than the default, and survives Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import AicoreError
from aicore.experiments import GraphTuning, tune_graph
from aicore.experiments import whole_graph as module
from aicore.ir import Value
from aicore.passes import Choices
from aicore.rewrite import rule
from aicore.tuning import Comparison, TuningStore
from tests.experiments.planted import pass_of, registry_with
from tests.experiments.test_ab import FEED, exp_of_log, network, no_product, planted, products, slow_product


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AICORE_TUNE", "cached")
    return tmp_path


def kept(cache: Path) -> str:
    (row,) = [row for row in TuningStore(cache / "tuning.sqlite").rows() if row.problem.startswith("graph ")]
    return row.record.chosen


def test_a_planted_slow_fusion_is_found_kept_and_used(cache: Path) -> None:
    registry, graph = planted(slow_product), products()
    found = tune_graph(graph, FEED, target="cpu", seconds=20, threads=1, registry=registry)
    assert "-slow-product" in str(found.chosen), str(found)
    assert found.final is not None
    assert found.final.verdict == "faster"
    assert kept(cache) == str(found.chosen)
    program = aicore.compile(graph, "cpu", threads=1, registry=registry)
    program.run(FEED)
    assert program.explain().choices.startswith(f"{found.chosen}: measured on this device")
    assert program.run(FEED)["y"].shape == (64, 256)
    want = aicore.compile(graph, "cpu", registry=registry, choices="limit=0").run(FEED)["y"]
    np.testing.assert_allclose(program.run(FEED)["y"], want, rtol=1e-3, atol=1e-2)


class Judge:
    """Comparisons by rule instead of by clock: what a program takes is what its choices are said to take."""

    def __init__(self, seconds: Callable[[Choices], float]) -> None:
        self.seconds = seconds
        self.asked: list[tuple[str, str]] = []

    def __call__(self, base: Any, other: Any) -> Comparison:
        self.asked.append((str(base.choices), str(other.choices)))
        ratio = self.seconds(other.choices) / self.seconds(base.choices)
        return Comparison(
            ratio, ratio * 0.99, ratio * 1.01, 9, (self.seconds(base.choices), self.seconds(other.choices))
        )


def searched(judge: Judge, monkeypatch: pytest.MonkeyPatch, *rules: Any, **options: Any) -> GraphTuning:
    monkeypatch.setattr(module._Search, "_compared", _bound(judge))
    passes = [pass_of(f"p-{one.name}", one, in_phase="fuse") for one in rules]
    options = {"seconds": 1000.0, "target": "cpu", **options}
    return tune_graph(network(), FEED, registry=registry_with(*passes), **options)


def _bound(judge: Judge) -> Any:
    def compared(self: Any, base: Any, other: Any, seconds: float, only_gains: bool = False) -> Comparison:
        return judge(base, other)

    return compared


def test_choices_that_pay_only_together_are_found_in_a_second_round(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving out b pays only once a is left out; a comes last in the first round, so b gets another one."""

    @rule(lambda op, x, w: op.Gemm(x, w))
    def rule_b(op: Any, x: Value, w: Value) -> Any:
        return op.MatMul(x, w)

    def seconds(choices: Choices) -> float:
        off = set(choices.off)
        if {"slow-product", "rule-b"} <= off:
            return 0.5
        return 0.8 if "slow-product" in off else 1.2 if off or choices.settings else 1.0

    judge = Judge(seconds)
    found = searched(judge, monkeypatch, slow_product, rule_b)
    assert {"slow-product"} <= set(found.chosen.off)
    assert judge.asked[-1] == ("default", str(found.chosen))  # the last word is that of the default
    assert all(one.accepted == ("accepted" in one.note) for one in found.tried)


def test_ties_go_to_the_default(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(Judge(lambda choices: 1.0), monkeypatch, slow_product)
    assert not found.chosen
    assert found.final is None
    assert kept(cache) == "default"
    assert found.summary.startswith("the default stays: nothing was faster beyond the noise")
    program = aicore.compile(network(), "cpu")
    program.run(FEED)
    assert program.explain().choices == ""


def test_what_does_not_hold_against_the_default_is_given_up(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def seconds(choices: Choices) -> float:
        nonlocal asked
        asked += 1
        return 1.0 if not choices or asked > 2 else 0.5  # the gain is there once, and not when it is looked at again

    found = searched(Judge(seconds), monkeypatch, slow_product)
    assert not found.chosen
    assert kept(cache) == "default"


def test_wrong_numbers_are_refused_before_any_time(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(lambda choices: 0.1 if choices else 1.0)
    registry = registry_with(pass_of("a-breaks", exp_of_log), pass_of("p", slow_product, in_phase="fuse"))
    monkeypatch.setattr(module._Search, "_compared", _bound(judge))
    original = module.Bench.side

    def side(self: Any, choices: Choices, tune: Any = None) -> Any:
        from dataclasses import replace

        found = original(self, choices, tune)
        return replace(found, error="planted: wrong") if "slow-product" in choices.off else found

    monkeypatch.setattr(module.Bench, "side", side)
    found = tune_graph(network(), FEED, target="cpu", registry=registry, seconds=1000)
    (tried,) = [one for one in found.tried if one.change == "-slow-product"]
    assert (tried.accepted, tried.time, tried.note) == (False, None, "refused: planted: wrong")
    assert all("slow-product" not in other for _, other in judge.asked)


def test_a_default_that_is_wrong_is_an_error(cache: Path) -> None:
    with pytest.raises(AicoreError, match="the default is wrong, so there is nothing to compare with: "):
        tune_graph(network(), FEED, target="cpu", registry=planted(no_product), seconds=1)


def test_ctrl_c_keeps_what_was_accepted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, str]] = []

    def advance(done: int, total: int, what: str) -> None:
        told.append((done, total, what))
        if any("slow-product" in text for _, _, text in told[:-1]):
            raise KeyboardInterrupt

    judge = Judge(lambda choices: 0.5 if "slow-product" in choices.off else 1.0)
    found = searched(judge, monkeypatch, slow_product, advance=advance)
    assert (found.finished, str(found.chosen)) == (False, "-slow-product")
    assert kept(cache) == "-slow-product"
    assert told[0][0] == 0
    assert told[0][1] >= 1


def test_what_time_does_not_reach_is_counted(cache: Path) -> None:
    found = tune_graph(network(), FEED, target="cpu", registry=planted(slow_product), seconds=0)
    assert found.left >= 1
    assert not found.tried
    assert "not reached" in found.summary


def test_nothing_is_kept_unasked(cache: Path) -> None:
    found = tune_graph(network(), FEED, target="cpu", registry=planted(slow_product), seconds=0, keep=False)
    assert found.kept == ""
    assert not (cache / "tuning.sqlite").exists()


def test_views(cache: Path) -> None:
    found = tune_graph(network(), FEED, target="cpu", registry=planted(slow_product), seconds=0)
    assert json.dumps(found.to_json())
    assert found.to_json()["chosen"] == "default"
    assert "the default stays" in str(found)
    assert "the default stays" in found._repr_html_()
