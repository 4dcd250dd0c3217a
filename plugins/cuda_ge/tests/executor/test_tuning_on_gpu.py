"""Tuning on a GPU: candidates timed inside captured graphs, by steps alone and of whole networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.ir import Builder, Graph
from aicore.tuning import Measure, Outcome

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.gpu
X = np.random.default_rng(1).normal(size=(1, 32, 14, 14)).astype(np.float32)


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AICORE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AICORE_TUNE", "cached")


def convolutions(count: int = 3) -> Graph:
    """Convolutions of one kind, each with weights of its own, and a product behind them."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = y = b.input("x", "float32", X.shape)
    for _ in range(count):
        w = b.constant((rng.normal(size=(32, 32, 3, 3)) / 17).astype(np.float32))
        y = b.Relu(b.Conv(y, w, pads=(1, 1, 1, 1)))
    flat = b.Reshape(y, b.constant(np.array([1, -1])))
    return b.graph([x], {"y": b.MatMul(flat, b.constant(rng.normal(size=(32 * 196, 10)).astype(np.float32)))})


def tuned(graph: Graph) -> tuple[aicore.Program, list[Outcome]]:
    outcomes: list[Outcome] = []
    program = aicore.compile(graph, "cuda:0", fallback="error", tune=Measure(finished=outcomes.append))
    program.run({"x": X})
    return program, outcomes


def test_what_was_measured_is_kept_and_used() -> None:
    program, outcomes = tuned(convolutions())
    wanted = aicore.compile(convolutions(), "cpu", tune="off").run({"x": X})["y"]
    np.testing.assert_allclose(program.run({"x": X})["y"], wanted, rtol=1e-4, atol=1e-4)
    (alike,) = (o for o in outcomes if "Conv" in o.problem.text)
    assert alike.problem.count == 3, "alike problems are one"
    assert alike.timed > 4
    for outcome in outcomes:
        assert outcome.record is not None, outcome.reason
        assert outcome.record.refused == {}
        assert all(1e-7 < seconds < 1e-2 for seconds in outcome.record.seconds.values())
    again = aicore.compile(convolutions(), "cuda:0", fallback="error")
    again.run({"x": X})
    chosen = {step.kernel.name for plan in again.plan for step in plan.steps}
    assert {o.record.chosen.partition("[")[0] for o in outcomes if o.record} <= chosen
    assert tuned(convolutions())[1] == [], "all is known"


def test_a_step_takes_less_in_a_graph_than_alone() -> None:
    """Times are those of the middle of a program, without what a launch alone costs."""
    program = aicore.compile(convolutions(), "cuda:0", fallback="error", tune="off")
    program.run({"x": X})
    specialised = program.explain().specialised
    assert specialised is not None
    (executable,) = specialised.executables
    steps: Any = executable
    alone = [row.seconds for row in program.profile({"x": X}).rows if row.device.startswith("cuda")]
    times = [min(steps.time_step(i) for _ in range(5)) for i in range(len(executable.plan.steps))]
    assert 0 < sum(times) < sum(alone)
    before = executable.run([program.device.upload(X)])[0]
    wanted = program.device.download(before)
    steps.time_step(0)
    np.testing.assert_array_equal(program.run({"x": X})["y"], wanted)


def test_memory_comes_back_after_tuning() -> None:
    """Programs that are gone leave nothing, weights included, and without the garbage collector: it sees no GPU."""
    program, _ = tuned(convolutions())
    pool: Any = program.device.pool  # type: ignore[union-attr]
    used = pool.used
    for _ in range(3):
        aicore.compile(convolutions(), "cuda:0", tune=Measure(again=True)).run({"x": X})
    assert pool.used == used
