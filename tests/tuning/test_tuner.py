"""Tuning on the real launcher with kernels made for it: a slow default, a fast one, a wrong one, one that raises."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import aicore
import aicore.ops as ops
from aicore.config import Config
from aicore.errors import ConfigError, OutOfMemoryError
from aicore.ir import Builder, Graph, Node
from aicore.kernels import Kernel, kernel
from aicore.plugins import PluginRegistry, hookimpl
from aicore.runtime import Plan
from aicore.tuning import Measure, Outcome, TuningStore, tuner
from aicore.tuning.repeats import Repeats
from aicore_cpu_numpy import plugin as cpu_plugin
from aicore_cpu_numpy.kernels import all_kernels

Array = np.ndarray[Any, Any]
SHAPE = (64, 64)


def neg(
    variant: str,
    seconds: float = 0.0,
    wrong: float = 0.0,
    estimate: float | None = None,
    where: Any = (..., -1),
    **options: Any,
) -> Kernel:
    """A negation that takes this long, and is off by `wrong` in some elements."""

    def bind(op: ops.Neg, types: Any, constants: Any, pause: float = seconds) -> Any:
        def call(x: Array, *, out: Array) -> None:
            if pause < 0:
                raise ValueError("no such pause")
            time.sleep(pause)
            np.negative(x, out=out)
            out[where] += wrong

        return call

    def function(op: ops.Neg, x: Array, *, out: Array) -> None:
        raise AssertionError("bind is there for that")

    guess = None if estimate is None else lambda op, *types, **settings: estimate
    return kernel(ops.Neg, device="cpu", variant=variant, bind=bind, estimate=guess, **options)(function)


REFERENCE = neg("reference", 20e-3)
SLOW = neg("slow", 30e-3, estimate=1e-6)
FAST = neg("fast", 0.0, estimate=2e-6)
WRONG = neg("wrong", 0.0, wrong=1e-3, estimate=3e-6)
RAISING = neg("raising", -1.0, estimate=4e-6)


def registry_of(*kernels: Kernel, launch: Callable[[Plan], Any] = cpu_plugin.launch) -> PluginRegistry:
    module = ModuleType("tuned")
    module.probe = cpu_plugin.probe  # type: ignore[attr-defined]

    def launch_plan(plan: Plan) -> Any:
        return launch(plan)

    module.launch = hookimpl(launch_plan, specname="launch")  # type: ignore[attr-defined]
    helpers = [k for k in all_kernels() if k.op in (ops.Expand, ops.Add)]

    def register_kernels() -> list[Kernel]:
        return [*kernels, REFERENCE, *helpers]

    module.register_kernels = hookimpl(register_kernels)  # type: ignore[attr-defined]
    return PluginRegistry.from_modules({"tuned": module}, config=Config())


def graph_of(count: int = 1) -> Graph:
    b = Builder()
    x = value = b.input("x", "float32", SHAPE)
    for _ in range(count):
        value = b.Add(b.Neg(value), x)
    return b.graph((x,), {"y": value})


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AICORE_TUNE", "cached")
    return tmp_path


X = {"x": np.ones(SHAPE, np.float32)}


def tune(registry: PluginRegistry, **how: Any) -> list[Outcome]:
    outcomes: list[Outcome] = []
    measure = Measure(finished=outcomes.append, **how)
    program = aicore.compile(graph_of(2), "cpu", tune=measure, optimize=False, registry=registry)
    np.testing.assert_array_equal(program.run(X)["y"], 1)  # -(-1 + 1) + 1
    return outcomes


def chosen(registry: PluginRegistry, **options: Any) -> set[str]:
    program = aicore.compile(graph_of(), "cpu", optimize=False, registry=registry, **options)
    np.testing.assert_array_equal(program.run(X)["y"], 0)
    return {step.kernel.variant for plan in program.plan for step in plan.steps if isinstance(step.node.op, ops.Neg)}


def negations(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if isinstance(outcome.problem.node.op, ops.Neg)]


def test_the_faster_one_is_found_kept_and_used() -> None:
    registry = registry_of(SLOW, FAST)
    assert chosen(registry) == {"slow"}  # by its estimate
    (outcome,) = negations(tune(registry))
    assert outcome.problem.count == 2
    assert outcome.record is not None
    assert (outcome.record.default, outcome.record.chosen) == ("neg_slow", "neg_fast")
    assert outcome.record.gain[2] < 0.5
    for _ in range(3):
        assert chosen(registry) == {"fast"}  # the same store gives the same kernels
    assert chosen(registry, tune="off") == {"slow"}
    assert chosen(registry, kernels={"Neg": "slow"}) == {"slow"}
    assert negations(tune(registry)) == []  # it is known
    assert len(negations(tune(registry, again=True))) == 1


def test_a_fast_kernel_with_wrong_numbers_never_wins(caplog: pytest.LogCaptureFixture) -> None:
    registry = registry_of(SLOW, WRONG, RAISING)
    with caplog.at_level(logging.WARNING):
        (outcome,) = negations(tune(registry))
    assert outcome.record is not None
    assert set(outcome.record.refused) == {"neg_wrong", "neg_raising"}
    assert "neg_wrong is not used for" in caplog.text
    assert "no such pause" in outcome.record.refused["neg_raising"]
    assert "neg_wrong" not in outcome.record.seconds
    assert chosen(registry) <= {"slow", "reference"}


def test_rows_that_repeat_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in large problems: the reference computes three rows of 64; one element of one row that is wrong is found."""

    def by_rows(node: Node) -> Repeats | None:
        rows = np.concatenate([np.arange(3), np.random.default_rng(0).integers(0, 3, SHAPE[0] - 3)])
        return Repeats({node.inputs[0]: 0}, 0, rows) if isinstance(node.op, ops.Neg) else None  # type: ignore[dict-item]

    monkeypatch.setattr(tuner, "repeats_of", by_rows)
    last = neg("last", 0.0, wrong=1e-3, estimate=3e-6, where=(-1, -1))
    (outcome,) = negations(tune(registry_of(SLOW, FAST, last)))
    assert outcome.record is not None
    assert outcome.record.chosen == "neg_fast"
    assert "1 of 4096 elements are wrong; [63, 63]" in outcome.record.refused["neg_last"]


def test_a_wrong_default_gives_way() -> None:
    wrong = neg("wrong", 0.0, wrong=1e-3, estimate=1e-9)
    registry = registry_of(wrong, FAST)
    (outcome,) = negations(tune(registry))
    assert outcome.record is not None
    assert outcome.record.default != "neg_wrong"
    assert "wrong" not in chosen(registry)


def test_settings_are_candidates_too() -> None:
    registry = registry_of(neg("paused", tune={"pause": (30e-3, 0.0)}, estimate=1e-6))
    (outcome,) = negations(tune(registry))
    assert outcome.record is not None
    assert outcome.record.default == "neg_paused[pause=0.03]"
    assert outcome.record.chosen == "neg_paused[pause=0.0]"
    program = aicore.compile(graph_of(), "cpu", optimize=False, registry=registry)
    program.run(X)
    text = str(program.explain())
    assert "neg_paused[pause=0.0]: " in text
    assert "tuned times: " in text


def test_changed_kernels_are_a_miss_with_the_reason() -> None:
    tune(registry_of(SLOW, FAST))
    other = registry_of(SLOW, FAST, neg("newer", estimate=1e-3))
    assert chosen(other) == {"slow"}
    program = aicore.compile(graph_of(), "cpu", optimize=False, registry=other)
    program.run(X)
    tuning = program.explain().to_json()["tuning"]
    assert tuning["misses"]["kernels have changed since they were measured"] == 1
    assert "not: kernels have changed since they were measured" in str(program.explain())


def with_device(cache: Path, **facts: str) -> None:
    """Make all records those of another device."""
    store = TuningStore(cache / "tuning.sqlite")
    rows = [row._replace(device=json.dumps({**json.loads(row.device), **facts})) for row in store.rows()]
    store.path.unlink()
    for rest in cache.glob("tuning.sqlite-*"):
        rest.unlink()
    store.forget_connection()
    store.keep(rows)


def test_records_of_another_device_order_the_candidates_but_answer_nothing(cache: Path) -> None:
    slower = [neg(f"slower{i}", 25e-3, estimate=1e-2) for i in range(6)]
    registry = registry_of(SLOW, *slower, FAST)
    (first,) = negations(tune(registry))
    with_device(cache, device="another processor")
    assert chosen(registry) == {"slow"}  # no answer
    (second,) = negations(tune(registry))
    assert second.record is not None
    assert second.record.chosen == "neg_fast"
    assert second.timed < first.timed  # but fewer were timed
    assert chosen(registry) == {"fast"}


def test_other_numbers_of_threads_are_other_problems() -> None:
    registry = registry_of(SLOW, FAST)
    tune(registry)
    assert chosen(registry, threads=64) == {"slow"}


class TellsTimes:
    """An executable that says how long a negation takes by the variant of its kernel, whatever it takes.

    room: how many of them may prepare to be timed.
    """

    told: ClassVar[dict[str, float]] = {"slow": 1e-6, "fast": 3e-6, "reference": 2e-6}

    def __init__(self, plan: Plan, ready: list[str], room: int) -> None:
        self._inner: Any = cpu_plugin.launch(plan)
        self._ready = ready
        self._room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def time_step(self, index: int) -> float:
        variant = self.plan.steps[index].kernel.variant
        if not isinstance(self.plan.steps[index].node.op, ops.Neg):
            return 5e-6
        if variant not in self._ready:
            if len(self._ready) == self._room:
                raise OutOfMemoryError("no room for more weights")
            self._ready.append(variant)
        return self.told.get(variant, 4e-6)


def telling(*kernels: Kernel, room: int = 9) -> tuple[PluginRegistry, list[str]]:
    ready: list[str] = []
    registry = registry_of(*kernels, launch=lambda plan: TellsTimes(plan, ready, room))
    return registry, ready


def test_a_device_that_times_steps_itself_is_asked() -> None:
    registry, ready = telling(FAST, SLOW)
    (outcome,) = negations(tune(registry))
    assert outcome.record is not None
    assert sorted(ready) == ["fast", "reference", "slow"]
    assert outcome.record.seconds == {"neg_slow": 1e-6, "neg_fast": 3e-6, "neg_reference": 2e-6}
    assert outcome.record.chosen == outcome.record.default == "neg_slow"


def test_wrong_numbers_are_found_before_a_device_times_them() -> None:
    registry, ready = telling(SLOW, WRONG)
    (outcome,) = negations(tune(registry))
    assert "wrong" not in ready
    assert outcome.record is not None
    assert set(outcome.record.refused) == {"neg_wrong"}


def test_estimates_far_off_are_tried_only_among_the_first() -> None:
    """Eight whatever they say; of the others those near the default, and those that have none."""
    far = [neg(f"far{i}", estimate=(100 + i) * 1e-6) for i in range(9)]
    registry, ready = telling(SLOW, *far, FAST, room=20)
    (outcome,) = negations(tune(registry))
    assert outcome.timed == 9
    assert sorted(ready) == sorted(["slow", "fast", *(f"far{i}" for i in range(6)), "reference"])
    near = [neg(f"near{i}", estimate=(1 + i / 20) * 1e-6) for i in range(9)]
    registry, ready = telling(SLOW, *near, FAST, room=20)
    (outcome,) = negations(tune(registry))
    assert sorted(ready) == sorted(["slow", *(f"near{i}" for i in range(9)), "reference"])


def test_candidates_for_which_there_is_no_room_are_left_out() -> None:
    registry, ready = telling(SLOW, FAST, room=2)
    (outcome,) = negations(tune(registry))
    assert outcome.record is not None
    assert sorted(outcome.record.seconds) == ["neg_fast", "neg_slow"] == sorted(f"neg_{name}" for name in ready)
    assert outcome.record.refused == {}


def test_without_any_room_there_is_no_record() -> None:
    (outcome,) = negations(tune(telling(SLOW, FAST, room=0)[0]))
    assert outcome.record is None
    assert outcome.reason == "there is no room to try it: no room for more weights"


def test_ctrl_c_keeps_what_was_learnt() -> None:
    registry = registry_of(SLOW, FAST)

    def interrupt(outcome: Outcome) -> None:
        raise KeyboardInterrupt

    program = aicore.compile(graph_of(), "cpu", tune=Measure(finished=interrupt), optimize=False, registry=registry)
    with pytest.raises(KeyboardInterrupt):
        program.run(X)
    assert chosen(registry) == {"fast"}  # the heaviest problem came first


def test_no_budget_measures_nothing() -> None:
    registry = registry_of(SLOW, FAST)
    assert tune(registry, budget=0.0) == []
    assert chosen(registry) == {"slow"}


def test_a_store_that_cannot_be_written_is_said_once_and_used_in_this_process(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "tuning.sqlite").write_text("something else")
    registry = registry_of(SLOW, FAST)
    with caplog.at_level(logging.WARNING):
        program = aicore.compile(graph_of(), "cpu", tune="measure", optimize=False, registry=registry)
        program.run(X)
    assert caplog.text.count("cannot keep what was measured") == 1
    assert "neg_fast" in {step.kernel.name for plan in program.plan for step in plan.steps}


def test_a_store_is_said_to_be_unusable_once_for_each_reason(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = cache / "tuning.sqlite"
    with caplog.at_level(logging.WARNING):
        for content in ("something else", "something else", ""):
            store.unlink(missing_ok=True)
            store.write_text(content) if content else store.mkdir()
            program = aicore.compile(
                graph_of(), "cpu", tune="measure", optimize=False, registry=registry_of(SLOW, FAST)
            )
            program.run(X)
    told = [record.message for record in caplog.records if "cannot keep what was measured" in record.message]
    assert len(told) == len(set(told)) == 2


def test_where_there_is_no_choice_nothing_is_measured() -> None:
    assert negations(tune(registry_of())) == []


def test_an_unknown_policy_lists_the_choices() -> None:
    with pytest.raises(ConfigError, match="tune='always' is not a policy; choose from off, cached, measure"):
        aicore.compile(graph_of(), "cpu", tune="always")  # type: ignore[arg-type]
