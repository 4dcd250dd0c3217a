"""Who is fastest under noise: a real difference is found, none is invented, and slow ones cost little."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from aicore.tuning.contest import contest, median_interval


class Machine:
    """Contestants with these true times, on a machine whose every measurement is off at random and drifts."""

    def __init__(self, times: Sequence[float], noise: float, seed: int, drift: float = 0.0) -> None:
        self.times = times
        self.noise = noise
        self.drift = drift
        self.runs: Counter[int] = Counter()
        self._rng = random.Random(seed)

    def __call__(self, index: int) -> float:
        self.runs[index] += 1
        slowness = 1 + self.drift * math.sin(sum(self.runs.values()) / 20)
        return self.times[index] * slowness * math.exp(self._rng.gauss(0, self.noise))


def test_one_that_is_clearly_faster_wins() -> None:
    machine = Machine([1e-3, 0.6e-3, 1.4e-3], noise=0.05, seed=1)
    result = contest(3, machine)
    assert result.winner == 1
    assert result.gain.low < 0.6 < result.gain.high < 1
    assert result.seconds[1] == pytest.approx(0.6e-3, rel=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_equal_ones_leave_the_default_in_place(seed: int) -> None:
    """With 95 % confidence an interval of equal times lies below 1 in 2.5 % of cases; no seed here is one."""
    assert contest(4, Machine([1e-3] * 4, noise=0.1, seed=seed + 100)).winner == 0


def test_drift_of_the_machine_is_no_gain() -> None:
    machine = Machine([1e-3, 1e-3], noise=0.02, seed=3, drift=0.5)
    assert contest(2, machine).winner == 0


def test_a_gain_within_the_noise_is_not_believed() -> None:
    assert contest(2, Machine([1e-3, 0.995e-3], noise=0.2, seed=5)).winner == 0


def test_slow_ones_leave_early() -> None:
    machine = Machine([1e-3, 9e-4, 1e-2, 1e-2, 1e-2], noise=0.01, seed=2)
    contest(5, machine)
    assert [machine.runs[i] for i in (2, 3, 4)] == [2, 2, 2]


def test_the_default_alone_is_timed_once() -> None:
    machine = Machine([2e-3], noise=0.0, seed=0)
    result = contest(1, machine)
    assert (result.winner, result.seconds, machine.runs[0]) == (0, {0: 2e-3}, 1)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        # 2 * P(Bin(9, 1/2) <= 1) = 20/512 = 0.039; with <= 2 it is 92/512: the second smallest and the second largest.
        (range(1, 10), 2, 8),
        # 2 * P(Bin(6, 1/2) <= 0) = 2/64 = 0.031: the ends.
        (range(1, 7), 1, 6),
        # 2/32 = 0.0625 is more than 5 %: five values do not bound the median.
        (range(1, 6), 0, math.inf),
    ],
)
def test_interval_of_a_median(values: Sequence[float], low: float, high: float) -> None:
    interval = median_interval([float(x) for x in reversed(values)])
    assert (interval.low, interval.high) == (low, high)
    assert interval.middle == sum(values) / len(values)


def test_the_interval_holds_the_true_median() -> None:
    """In at least 95 % of samples; 4 standard errors below that would be 0.92."""
    rng = random.Random(7)
    draw: Callable[[], float] = lambda: rng.lognormvariate(0, 1)  # noqa: E731  # its median is 1
    intervals = [median_interval([draw() for _ in range(11)]) for _ in range(1000)]
    assert sum(i.low <= 1 <= i.high for i in intervals) >= 940
