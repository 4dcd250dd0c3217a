"""A device takes int8 only where it is no slower than floating point: as measured, else as estimated."""

from __future__ import annotations

import json
import logging
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
import aicore_cpu_numpy.plugin
import aicore_int8_quant.plugin
from aicore.cli import main
from aicore.config import Config, from_environment
from aicore.frontends.onnx import save_model
from aicore.ir import Graph, Op
from aicore.kernels import Kernel
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, GemmAct, MatMulAdd
from aicore.ops.layout import ChannelsLast
from aicore.ops.matmul import Gemm, MatMul
from aicore.ops.quantization import DequantizeLinear, QuantizeLinear
from aicore.passes import why_not
from aicore.plugins import PluginRegistry, Probe, hookimpl
from aicore.testing.fake_gpu import FakeDevice, FakeExecutable
from aicore.tuning import Measure, Raced, TuningStore
from aicore_cpu_numpy.kernels import all_kernels
from aicore_cpu_numpy.workers import single_threaded_blas
from aicore_int8_quant.kernels import KERNELS
from aicore_int8_quant.ops import Int8Conv, Int8MatMul
from aicore_int8_quant.passes import _race, fuse
from plugins.int8_quant.tests.test_fuse import Qdq, kinds, normal

FLOATS = (Conv, ConvAct, MatMul, MatMulAdd, Gemm, GemmAct)
INTEGERS = (Int8Conv, Int8MatMul)
BORDERS = (DequantizeLinear, QuantizeLinear)


@pytest.fixture(autouse=True)
def raced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The race as it is by default, and a store of its own."""
    monkeypatch.setattr(fuse, "losers", _race.losers)
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))


def by_kind(floats: float, integers: float, conversion: float) -> dict[type[Op], float]:
    return {**dict.fromkeys(FLOATS, floats), **dict.fromkeys(INTEGERS, integers), **dict.fromkeys(BORDERS, conversion)}


class Clocked(FakeExecutable):
    """Steps take what the plugin says, so that races need no clock."""

    times: dict[type[Op], float]

    def time_step(self, index: int) -> float:
        op = self.plan.steps[index].node.op
        return self.times.get(type(op.inner if isinstance(op, ChannelsLast) else op), 1e-9)


class Plugin:
    """A device whose kernels are those of the CPU, with estimates and times of ours.

    times: what steps really take; the estimates, unless they are given.
    """

    def __init__(
        self, floats: float, integers: float, conversion: float = 0.0, times: dict[type[Op], float] | None = None
    ) -> None:
        self.device = FakeDevice()
        self.estimates = by_kind(floats, integers, conversion)
        self.times = self.estimates if times is None else times
        self.timed: list[str] = []

    @hookimpl
    def probe(self) -> Probe:
        return Probe(devices=(self.device,))

    @hookimpl
    def register_kernels(self) -> list[Kernel]:
        return [self._timed(kernel) for kernel in (*all_kernels(), *KERNELS) if kernel.op is not ChannelsLast]

    @hookimpl
    def launch(self, plan: Any) -> FakeExecutable:
        made = Clocked(plan, self.device, single_threaded_blas)
        made.times = {kind: max(seconds, 1e-9) for kind, seconds in self.times.items()}
        return made

    def _timed(self, kernel: Kernel) -> Kernel:
        taken = self.estimates.get(kernel.op)
        made = replace(kernel, device=FakeDevice.kind)
        return made if taken is None else replace(made, estimate=lambda op, *types, **settings: taken)


def registry_of(plugin: Plugin) -> PluginRegistry:
    modules = {"cpu_numpy": aicore_cpu_numpy.plugin, "int8": aicore_int8_quant.plugin, "fake": plugin}
    return PluginRegistry.from_modules(modules, config=Config())


def compiled(graph: Graph, plugin: Plugin, tune: Any = "off", **options: Any) -> aicore.Program:
    return aicore.compile(graph, "fake", registry=registry_of(plugin), tune=tune, fallback="error", **options)


def two_layers(batch: int | str = 2) -> Graph:
    """A convolution that makes codes, and a product that makes numbers."""
    q = Qdq()
    x = q.op.input("x", "float32", (batch, 4, 6, 6))
    hidden = q.coded(q.op.Relu(q.op.Conv(q.coded(x), q.weight(8, 4, 3, 3))), 0.1)
    return q.op.graph([x], {"y": q.op.MatMul(q.op.Flatten(hidden), q.weight(128, 5, axis=1))})


def in_int8(program: aicore.Program) -> set[str]:
    return {"Int8Conv", "Int8MatMul"} & set(kinds(program.graph))


def test_the_faster_one_is_taken() -> None:
    graph, x = two_layers(), normal(2, 4, 6, 6)
    integers, floats = compiled(graph, Plugin(2e-6, 1e-6)), compiled(graph, Plugin(1e-6, 2e-6))
    assert in_int8(integers) == {"Int8Conv", "Int8MatMul"}
    assert in_int8(floats) == set()
    expected = integers(x=x)["y"]
    np.testing.assert_allclose(floats(x=x)["y"], expected, rtol=0, atol=0.2 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("floats", "conversion", "taken"),
    [
        (1.0e-6, 1.0e-6, {"Int8Conv", "Int8MatMul"}),  # 3 and 2 us: numbers of codes, and for one also codes of numbers
        (0.9e-6, 0.9e-6, {"Int8Conv"}),  # 2.7 and 1.8 us
        (1.0e-6, 0.4e-6, set()),  # 1.8 and 1.4 us
    ],
)
def test_conversions_count_for_floating_point(floats: float, conversion: float, taken: set[str]) -> None:
    """Int8 takes 2 us; a tie is for it."""
    assert in_int8(compiled(two_layers(), Plugin(floats, 2e-6, conversion))) == taken


def test_a_residual_in_codes_becomes_numbers_too() -> None:
    q = Qdq()
    x = q.op.input("x", "float32", (1, 4, 6, 6))
    kept = q.coded(x)
    graph = q.op.graph([x], {"y": q.coded(q.op.Add(q.op.Conv(kept, q.weight(4, 4, 1, 1)), q.coded(kept, 0.07)), 0.1)})
    assert in_int8(compiled(graph, Plugin(1e-6, 3.9e-6, 1e-6))) == {"Int8Conv"}  # x, the residual, and the result
    assert in_int8(compiled(graph, Plugin(1e-6, 4.1e-6, 1e-6))) == set()


def test_explain_says_which_side_won_and_by_what() -> None:
    text = str(compiled(two_layers(), Plugin(1e-6, 2e-6, 0.4e-6)).explain())
    assert (
        "Conv 'conv' stays in floating point: 2.0 us in int8 and 1.8 us in floating point on fake, by estimate" in text
    )
    assert "MatMul 'matmul' stays in floating point: 2.0 us in int8 and 1.4 us" in text
    assert "Conv 'conv' runs in int8: 1.0 us in int8 and 2.8 us" in str(
        compiled(two_layers(), Plugin(2e-6, 1e-6, 0.4e-6)).explain()
    )


def test_why_not_says_so_too() -> None:
    program = compiled(two_layers(), Plugin(1e-6, 2e-6), trace=True)
    found = why_not(program.trace, "fuse-int8", "conv")
    assert found.kind == "noted"
    assert "stays in floating point" in found.reason
    with pytest.raises(aicore.AicoreError, match="no node is called 'nobody'"):
        why_not(program.trace, "fuse-int8", "nobody")


def test_int8_everywhere_on_demand() -> None:
    program = compiled(two_layers(), Plugin(1e-6, 2e-6), choices="fuse-int8.race=false")
    assert in_int8(program) == {"Int8Conv", "Int8MatMul"}


def told_wrongly(floats: float, integers: float, conversion: float = 0.1e-6) -> Plugin:
    """By estimates int8 takes 5 us, and floating point 9; really they take these."""
    return Plugin(9e-6, 5e-6, 0.1e-6, by_kind(floats, integers, conversion))


def measured(plugin: Plugin, graph: Graph | None = None, **how: Any) -> tuple[aicore.Program, list[Raced]]:
    outcomes: list[Raced] = []
    program = compiled(graph or two_layers(), plugin, Measure(raced=outcomes.append, **how))
    return program, outcomes


def test_a_measurement_counts_more_than_an_estimate_and_is_kept() -> None:
    plugin = told_wrongly(2e-6, 8e-6)
    assert in_int8(compiled(two_layers(), plugin)) == {"Int8Conv", "Int8MatMul"}
    program, outcomes = measured(plugin)
    assert in_int8(program) == set()
    assert [outcome.count for outcome in outcomes] == [1, 1]
    record = outcomes[0].record
    assert record is not None
    assert (record.default, record.chosen) == ("int8", "float")
    assert record.seconds == pytest.approx({"int8": 8e-6, "float": 2.2e-6})
    later = compiled(two_layers(), plugin, "cached")
    assert in_int8(later) == set()
    assert "8.0 us in int8 and 2.2 us in floating point on fake, by time" in str(later.explain())
    assert in_int8(compiled(two_layers(), plugin, "off")) == {"Int8Conv", "Int8MatMul"}


def test_a_measured_tie_is_for_int8() -> None:
    plugin = Plugin(1e-6, 2e-6, 0.0, by_kind(3e-6, 3e-6, 0.0))
    assert in_int8(compiled(two_layers(), plugin)) == set()
    assert in_int8(measured(plugin)[0]) == {"Int8Conv", "Int8MatMul"}


def test_the_key_names_both_sides_shapes_and_device() -> None:
    plugin = told_wrongly(2e-6, 8e-6)
    _, outcomes = measured(plugin)
    text = outcomes[0].text
    assert text.startswith("race int8: ")
    assert "; or float: " in text
    for part in ("Int8Conv{", "int8[2,4,6,6]", "DequantizeLinear", "const float32[8,4,3,3]", "QuantizeLinear"):
        assert part in text
    rows = [row for row in TuningStore.of(from_environment()).rows() if row.problem == text]
    assert len(rows) == 1
    assert json.loads(rows[0].device)["kind"] == "fake"
    other, more = measured(plugin, two_layers(3))
    assert len(more) == 2  # other shapes are other races
    assert in_int8(other) == set()


def test_what_is_known_is_not_measured_again_unless_asked_for() -> None:
    plugin = told_wrongly(2e-6, 8e-6)
    assert len(measured(plugin)[1]) == 2
    assert measured(plugin)[1] == []
    plugin.times = by_kind(9e-6, 4e-6, 0.1e-6)
    assert in_int8(measured(plugin)[0]) == set()
    program, outcomes = measured(plugin, again=True)
    assert len(outcomes) == 2
    assert in_int8(program) == {"Int8Conv", "Int8MatMul"}


def test_without_time_the_estimates_stay() -> None:
    program, outcomes = measured(told_wrongly(2e-6, 8e-6), budget=0.0)
    assert {outcome.reason for outcome in outcomes} == {"not reached within the budget"}
    assert in_int8(program) == {"Int8Conv", "Int8MatMul"}
    assert "by estimate (not reached within the budget)" in str(program.explain())


def edited(query: str, *values: Any) -> None:
    with sqlite3.connect(TuningStore.of(from_environment()).path) as connection:
        assert connection.execute(query, values).rowcount == 2
    connection.close()


RACES = "problem LIKE 'race %'"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"UPDATE records SET device = 'another' WHERE {RACES}", "measured on another device, or with other threads"),
        (f"UPDATE records SET value = '{{\"chosen\": 1}}' WHERE {RACES}", "a damaged record"),
        (f"DELETE FROM records WHERE {RACES}", "not measured on this device"),
    ],
)
def test_a_record_that_does_not_hold_is_a_counted_miss(query: str, reason: str) -> None:
    plugin = told_wrongly(2e-6, 8e-6)
    measured(plugin)
    edited(query)
    program = compiled(two_layers(), plugin, "cached")
    text = str(program.explain())
    assert f"by estimate ({reason}" in text
    (counted,) = [count for told, count in program.explain().tuning.misses.items() if told.startswith("a race: ")]  # type: ignore[union-attr]
    assert counted == 2


def test_older_code_is_a_counted_miss() -> None:
    plugin = told_wrongly(2e-6, 8e-6)
    measured(plugin)
    store = TuningStore.of(from_environment())
    rows = [row for row in store.rows() if row.problem.startswith("race ")]
    store.keep([row._replace(record=replace(row.record, considered="older")) for row in rows])
    text = str(compiled(two_layers(), plugin, "cached").explain())
    assert "by estimate (passes or kernels have changed since it was measured)" in text
    assert "2 not: a race: passes or kernels have changed since it was measured" in text


def test_sides_that_disagree_do_not_race(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_race, "_fault", lambda integers, floats: "they are 9 codes apart")
    program, outcomes = measured(told_wrongly(2e-6, 8e-6))
    assert {outcome.record for outcome in outcomes} == {None}
    assert "float gives other numbers than int8: they are 9 codes apart" in outcomes[0].reason
    assert "a race was not measured" in caplog.text
    assert "on fake, by time" not in str(program.explain())


def test_one_code_apart_is_allowed_and_two_are_not() -> None:
    a = np.array([3, 4], np.int8)
    assert _race._fault([a], [a + 1]) == ""
    assert _race._fault([a], [a + 2]) == "results are up to 2 codes apart"
    b = np.array([1.0, -2.0], np.float32)
    assert _race._fault([b], [b * np.float32(1.0005)]) == ""
    assert "allowed" in _race._fault([b], [b * np.float32(1.01)])


def test_an_estimate_that_raises_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    def broken(op: Op, *types: Any, **settings: Any) -> float:
        raise ZeroDivisionError("no rate")

    class Broken(Plugin):
        def _timed(self, kernel: Kernel) -> Kernel:
            made = super()._timed(kernel)
            return replace(made, estimate=broken) if kernel.op is Int8MatMul else made

    with caplog.at_level(logging.WARNING, "aicore.kernels"):
        compiled(two_layers(), Broken(1e-6, 2e-6))
    assert [text for text in caplog.messages if "estimate raised ZeroDivisionError" in text and "left out" in text]


def test_open_sizes_are_decided_when_they_are_known() -> None:
    """A convolution of 200 images is another race than one of two."""

    class Growing(Plugin):
        def _timed(self, kernel: Kernel) -> Kernel:
            made = super()._timed(kernel)
            if kernel.op is not Int8Conv:
                return made

            def estimate(op: Op, x: Any, *types: Any, **settings: Any) -> float:
                return 2e-6 if x.static_shape[0] < 100 else 0.5e-6

            return replace(made, estimate=estimate)

    program = compiled(two_layers("n"), Growing(1e-6, 2e-6))
    assert in_int8(program) == {"Int8Conv", "Int8MatMul"}
    for n, taken, others in ((2, set(), 2), (200, {Int8Conv}, 1)):
        assert program(x=normal(n, 4, 6, 6))["y"].shape == (n, 5)
        steps = {type(step.node.op) for plan in program.plan for step in plan.steps}
        assert steps & set(INTEGERS) == taken
        text = str(program.explain())
        assert f"for these sizes {others} of 2 races are won by another way than the default" in text
        assert "MatMul 'matmul' stays in floating point: 2.0 us in int8 and 1.0 us" in text
    fast = compiled(two_layers("n"), Plugin(2e-6, 1e-6))
    fast(x=normal(2, 4, 6, 6))
    assert "choices: the default passes" in str(fast.explain())  # nothing had to be made again


def test_open_sizes_are_measured_for_the_sizes_of_the_call() -> None:
    plugin = told_wrongly(2e-6, 8e-6)
    program, outcomes = measured(plugin, two_layers("n"))
    assert outcomes == []
    program(x=normal(2, 4, 6, 6))
    assert [outcome.record is not None for outcome in outcomes] == [True, True]
    assert "by time" in str(program.explain())
    assert not any(isinstance(step.node.op, INTEGERS) for plan in program.plan for step in plan.steps)


def test_the_cpu_races_as_well(tmp_path: Path) -> None:
    outcomes: list[Raced] = []
    aicore.compile(two_layers(), "cpu", tune=Measure(raced=outcomes.append), fallback="error")
    assert [outcome.reason for outcome in outcomes] == ["", ""]
    text = str(aicore.compile(two_layers(), "cpu", tune="cached", fallback="error").explain())
    assert text.count("on cpu, by time") == 2


def test_the_command_tells_of_races(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AICORE_THREADS", "1")  # times hold for a number of threads
    path = str(tmp_path / "model.onnx")
    save_model(two_layers(), path, 21)
    assert main(["tune", path, "--target", "cpu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [race["groups"] for race in report["races"]] == [1, 1]
    assert all(race["record"]["chosen"] in ("int8", "float") for race in report["races"])
    assert main(["tune", path, "--target", "cpu", "--again"]) == 0
    shown = capsys.readouterr().out
    assert "groups" in shown
    assert "int8: %1=Int8Conv" in shown
    assert main(["tune", path, "--target", "cpu", "--again", "--budget", "0"]) == 0
    assert "not reached within the budget" in capsys.readouterr().out
    assert main(["inspect", path, "--target", "cpu", "--why-not", "fuse-int8", "--node", "y"]) == 0
    assert "on cpu, by time" in " ".join(capsys.readouterr().out.split())
