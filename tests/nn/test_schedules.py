"""Rates by hand at the steps where something happens, the graph beside the numbers, and PyTorch's schedulers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aicore
from aicore.errors import ConfigError
from aicore.ir import Builder
from aicore.nn.schedules import (
    Constant,
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    InverseSqrt,
    InverseTimeDecay,
    LinearWarmup,
    MultiStepDecay,
    Noam,
    OneCycle,
    PiecewiseConstantDecay,
    PolynomialDecay,
    Schedule,
    StepDecay,
    schedule,
)

BY_HAND: list[tuple[Schedule, dict[int, float]]] = [
    (Constant(0.5), {1: 0.5, 1000: 0.5}),
    (StepDecay(1.0, 3, 0.5), {1: 1, 3: 1, 4: 0.5, 6: 0.5, 7: 0.25}),
    (MultiStepDecay(1.0, (5, 2), 0.5), {1: 1, 2: 1, 3: 0.5, 5: 0.5, 6: 0.25, 99: 0.25}),
    (PiecewiseConstantDecay((2, 5), (1.0, 0.3, 0.2)), {1: 1, 3: 1, 4: 0.3, 6: 0.3, 7: 0.2}),
    (ExponentialDecay(1.0, 0.25, 2), {1: 1, 2: 0.5, 3: 0.25, 5: 0.0625}),
    (ExponentialDecay(1.0, 0.25, 2, staircase=True), {1: 1, 2: 1, 3: 0.25, 4: 0.25, 5: 0.0625}),
    (InverseTimeDecay(1.0, 0.5, 2), {1: 1, 2: 0.8, 3: 1 / 1.5, 5: 0.5}),
    (InverseTimeDecay(1.0, 0.5, 2, staircase=True), {2: 1, 3: 1 / 1.5, 4: 1 / 1.5}),
    (PolynomialDecay(1.0, 4, 0.2), {1: 1, 2: 0.8, 3: 0.6, 5: 0.2, 6: 0.2, 100: 0.2}),
    (PolynomialDecay(1.0, 4, power=2), {1: 1, 2: 0.5625, 3: 0.25, 5: 0}),
    (CosineDecay(2.0, 4), {1: 2, 2: 1 + math.sqrt(0.5), 3: 1, 5: 0, 9: 0}),
    (CosineDecay(2.0, 4, alpha=0.5), {1: 2, 3: 1.5, 5: 1, 9: 1}),
    (CosineDecayRestarts(1.0, 2), {1: 1, 2: 0.5, 3: 1, 5: 0.5, 7: 1, 11: 0.5, 15: 1}),
    (CosineDecayRestarts(1.0, 2, t_mul=1, m_mul=0.5), {1: 1, 2: 0.5, 3: 0.5, 4: 0.25, 5: 0.25}),
    (CosineDecayRestarts(1.0, 2, m_mul=0.5, alpha=0.2), {1: 1, 2: 0.6, 3: 0.6, 5: 0.4, 7: 0.4}),
    (LinearWarmup(1.0, 4), {1: 0, 2: 0.25, 4: 0.75, 5: 1, 50: 1}),
    (LinearWarmup(StepDecay(1.0, 2), 2, start=0.5), {1: 0.5, 2: 0.75, 3: 1, 4: 1, 5: 0.1}),
    (OneCycle(1.0, 10, 0.5, 10, 100), {1: 0.1, 3: 0.55, 5: 1, 10: 0.001, 99: 0.001}),
    (InverseSqrt(1.0, 4), {1: 0.25, 4: 1, 16: 0.5, 64: 0.25}),
    (Noam(16, 4, 2.0), {1: 0.5 / 8, 4: 0.25, 16: 0.125}),
]


@pytest.mark.parametrize(("chosen", "expected"), BY_HAND, ids=lambda x: repr(x) if isinstance(x, Schedule) else "")
def test_by_hand(chosen: Schedule, expected: dict[int, float]) -> None:
    np.testing.assert_allclose(
        [chosen.value(step) for step in expected], list(expected.values()), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("chosen", [chosen for chosen, _ in BY_HAND], ids=repr)
def test_the_graph_gives_the_same(chosen: Schedule) -> None:
    op = Builder()
    step = op.input("step", "int64", ())
    program = aicore.compile(op.graph([step], {"rate": chosen.build(op, step)}))
    for number in (*range(1, 20), 1_000_000):
        found = program.run({"step": np.array(number)})["rate"]
        assert found.dtype == np.float32
        assert found.shape == ()
        np.testing.assert_allclose(found, chosen.value(number), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("chosen", "name", "settings"),
    [
        (StepDecay(1.0, 3, 0.5), "StepLR", {"step_size": 3, "gamma": 0.5}),
        (MultiStepDecay(1.0, (3, 7)), "MultiStepLR", {"milestones": [3, 7]}),
        (ExponentialDecay(1.0, 0.9), "ExponentialLR", {"gamma": 0.9}),
        (PolynomialDecay(1.0, 7, power=2), "PolynomialLR", {"total_iters": 7, "power": 2}),
        (CosineDecay(1.0, 12, 0.1), "CosineAnnealingLR", {"T_max": 12, "eta_min": 0.1}),
        (CosineDecayRestarts(1.0, 3), "CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
        (OneCycle(1.0, 12), "OneCycleLR", {"max_lr": 1.0, "total_steps": 12}),
        (LinearWarmup(1.0, 5, 0.25), "LinearLR", {"start_factor": 0.25, "total_iters": 5}),
    ],
    ids=repr,
)
def test_pytorch(chosen: Schedule, name: str, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = getattr(torch.optim.lr_scheduler, name)(theirs, **settings)
    for step in range(1, 13):
        assert chosen.value(step) == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-6, abs=1e-9), step
        theirs.step()
        if step < 12:
            scheduler.step()


def test_numbers_are_schedules() -> None:
    assert schedule(0.1) == Constant(0.1)
    assert schedule(Constant(0.1)) == Constant(0.1)
    assert schedule(np.float32(0.5)) == Constant(0.5)  # type: ignore[arg-type]
    for wrong in ("0.1", None, True, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="is no learning rate"):
            schedule(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepDecay(1.0, 0), "StepDecay: step_size 0 is not above 0"),
        (lambda: PiecewiseConstantDecay((1, 2), (0.1, 0.2)), "2 boundaries want 3 values, not 2"),
        (lambda: PiecewiseConstantDecay((2, 1), (0.1, 0.2, 0.3)), "do not rise"),
        (lambda: ExponentialDecay(1.0, -1.0), "decay_rate -1.0 is not above 0"),
        (lambda: CosineDecayRestarts(1.0, 2, t_mul=0.5), "t_mul 0.5 is below 1"),
        (lambda: LinearWarmup(1.0, 0), "steps 0 is not above 0"),
        (lambda: OneCycle(1.0, 10, pct_start=1.0), "pct_start 1.0 is not between 0 and 1"),
        (lambda: OneCycle(1.0, 3), "of 3 steps, pct_start leaves none to rise in"),
        (lambda: Noam(0), "d_model 0 is not above 0"),
    ],
)
def test_settings_that_are_refused(make: Callable[[], Schedule], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
