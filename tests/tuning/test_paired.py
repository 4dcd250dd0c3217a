"""Pairs of timed runs: the interval by hand, its promise at every moment, and when timing stops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicore.errors import ConfigError
from aicore.tuning import Comparison, compare_runs, comparison, median_sequence

RATIOS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=60)


# ---- the interval


@pytest.mark.parametrize(
    ("count", "dropped"),
    [
        (1, 0),
        (7, 0),  # 2^7 / 8 = 16: below 20, so nothing is ruled out
        (8, 1),  # 2^8 / 9 = 28.4
        (11, 1),  # 2^11 / (12 * 11) = 15.5 with one ratio on the other side
        (12, 2),  # 2^12 / (13 * 12) = 26.3; with two, 2^12 / (13 * 66) = 4.8
        (15, 2),  # 2^15 / (16 * 105) = 19.5 with two: not yet
    ],
)
def test_the_interval_by_hand(count: int, dropped: int) -> None:
    ratios = [float(i + 1) for i in range(count)]
    low, high = median_sequence(ratios[::-1])
    assert (low, high) == ((ratios[dropped - 1], ratios[count - dropped]) if dropped else (0.0, math.inf))


@given(RATIOS)
def test_the_interval_is_that_of_the_definition(ratios: list[float]) -> None:
    """m stays while 2^n / ((n + 1) C(n, k)) < 20, k being how many ratios are at most m."""
    low, high = median_sequence(ratios)
    n = len(ratios)
    for m in {*ratios, 0.05, 20.0}:
        at_most, below = sum(r <= m for r in ratios), sum(r < m for r in ratios)
        stays = any(2**n / ((n + 1) * math.comb(n, k)) < 20 for k in range(below, at_most + 1))
        assert stays == (low <= m <= high)


@given(RATIOS)
def test_the_median_lies_inside_and_inverting_inverts(ratios: list[float]) -> None:
    low, high = median_sequence(ratios)
    assert low <= float(np.median(ratios)) <= high
    if low:
        other_low, other_high = median_sequence([1 / r for r in ratios])
        assert (other_low, other_high) == (1 / high, 1 / low)


def test_looking_after_every_pair_claims_too_much_in_less_than_one_of_twenty_cases() -> None:
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(200):
        ratios = np.exp(rng.standard_t(2, size=80) * 0.1).tolist()  # heavy tails, and no difference at all
        wrong += any(not (low <= 1 <= high) for low, high in (median_sequence(ratios[:n]) for n in range(8, 81)))
    assert wrong <= 10


# ---- verdicts


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.90, 0.95, "faster"),
        (1.02, 1.10, "slower"),
        (0.985, 1.015, "equal"),
        (0.991, 0.999, "equal"),  # beyond the noise, and too little to matter
        (0.975, 1.015, "unclear"),
        (0.97, 0.998, "unclear"),  # as above, and not known well enough
        (1.002, 1.03, "unclear"),
        (0.95, 0.998, "faster"),
        (1.002, 1.05, "slower"),
    ],
)
def test_verdicts(low: float, high: float, verdict: str) -> None:
    found = Comparison((low + high) / 2, low, high, 9)
    assert found.verdict == verdict
    assert found.to_json()["verdict"] == verdict
    assert Comparison(1.0, 0.0, math.inf, 3).verdict == "unclear"
    assert Comparison(1.0, 0.0, math.inf, 3).to_json()["high"] is None


def test_times_of_pairs_by_hand() -> None:
    found = comparison([2.0] * 8, [1.0, 1.0, 1.0, 1.0, 1.2, 1.2, 1.2, 1.4])
    assert (found.ratio, found.low, found.high, found.pairs, found.seconds) == (0.55, 0.5, 0.7, 8, (2.0, 1.1))
    assert str(found) == "0.550 of the time [0.500, 0.700], 8 pairs: faster"
    assert "faster" in found._repr_html_()


# ---- runs on a clock that the runs move


class Machine:
    """A clock, and two ways that take what they are told, times noise."""

    def __init__(self, base: float, other: float, noise: float = 0.0, seed: int = 0) -> None:
        self.now = 0.0
        self.calls: list[str] = []
        self._seconds = {"base": base, "other": other}
        self._rng = np.random.default_rng(seed)
        self._noise = noise

    def way(self, name: str) -> Callable[[], None]:
        def run() -> None:
            self.calls.append(name)
            self.now += self._seconds[name] * float(np.exp(self._rng.normal() * self._noise))

        return run

    def compare(self, **options: Any) -> Comparison:
        return compare_runs(self.way("base"), self.way("other"), clock=lambda: self.now, **options)


def test_a_clear_difference_needs_eight_pairs() -> None:
    machine = Machine(0.010, 0.005)
    found = machine.compare(seconds=100)
    assert (found.verdict, found.pairs, found.repeats) == ("faster", 8, 1)
    assert found.seconds == (pytest.approx(0.010), pytest.approx(0.005))
    assert len(machine.calls) == 4 + 2 * 8


def test_what_is_equally_fast_is_known_to_be() -> None:
    found = Machine(0.010, 0.010, noise=0.002).compare(seconds=100)
    assert (found.verdict, found.pairs) == ("equal", 8)


def test_noise_alone_ends_with_the_time() -> None:
    machine = Machine(0.010, 0.010, noise=0.5, seed=3)
    found = machine.compare(seconds=1.0)
    assert found.verdict == "unclear"
    assert machine.now < 1.3


def test_eight_pairs_are_timed_however_long_they_take() -> None:
    assert Machine(5.0, 5.0, noise=0.5).compare(seconds=1.0).pairs == 8


def test_short_runs_are_repeated() -> None:
    found = Machine(1e-3, 2e-3).compare(seconds=1.0)
    assert found.repeats == 5  # 10 ms of the slower way
    assert found.seconds == (pytest.approx(1e-3), pytest.approx(2e-3))
    assert Machine(1e-6, 1e-6, noise=0.5).compare(seconds=0.1).repeats == 500


def test_a_wake_up_in_a_stretch_of_short_runs_spoils_nothing() -> None:
    machine = Machine(1e-3, 1e-3)
    quiet, calls = machine.way("other"), 0

    def startled() -> None:
        nonlocal calls
        calls += 1
        quiet()
        machine.now += 0.05 if calls % 5 == 0 else 0.0  # in each stretch once

    found = compare_runs(machine.way("base"), startled, seconds=10, clock=lambda: machine.now)
    assert found.verdict == "equal"


def test_a_rival_without_promise_is_given_up_early() -> None:
    slow = Machine(0.010, 0.0102, noise=0.2, seed=5)
    assert slow.compare(seconds=100, only_gains=True).pairs < slow.compare(seconds=100, most_pairs=200).pairs


def test_what_is_slower_in_each_of_three_pairs_is_given_up() -> None:
    found = Machine(0.010, 0.020).compare(seconds=100, only_gains=True)
    assert (found.pairs, found.verdict, found.ratio) == (3, "unclear", pytest.approx(2.0))
    assert str(found) == "2.000 of the time, 3 pairs: too few to tell"
    assert Machine(0.010, 0.020).compare(seconds=100).verdict == "slower"
    assert Machine(0.020, 0.010).compare(seconds=100, only_gains=True).verdict == "faster"


def test_the_order_of_each_pair_is_drawn() -> None:
    machine = Machine(0.010, 0.010, noise=0.5)
    machine.compare(seconds=2.0)
    firsts = machine.calls[4::2]
    assert {firsts.count("base") > 10, firsts.count("other") > 10} == {True}


def test_the_state_is_told_after_each_pair() -> None:
    told: list[Comparison] = []
    found = Machine(0.010, 0.005).compare(seconds=100, advance=told.append)
    assert [state.pairs for state in told] == list(range(1, 9))
    assert told[-1] == found


def test_too_few_pairs() -> None:
    with pytest.raises(ConfigError, match="7 pairs are too few to tell a change from noise; 8 are the least"):
        Machine(1, 1).compare(most_pairs=7)


@pytest.mark.parametrize(("base", "other", "verdict"), [(1.0, 1.2, "slower"), (1.2, 1.0, "faster")])
def test_twenty_percent_in_ten_percent_noise_never_flip(base: float, other: float, verdict: str) -> None:
    found = [Machine(base, other, noise=0.1, seed=seed).compare(seconds=1000).verdict for seed in range(40)]
    assert set(found) == {verdict}


def test_thousands_of_pairs_narrow_the_interval_further() -> None:
    low, high = median_sequence(range(1, 4001))
    # By the normal approximation the mixture drops ranks that are sqrt(n (ln 400 + ln(2 n / pi)) / 4) from the middle.
    assert (low, high) == (4001 - high, 4001 - low)
    assert 2000.5 - low == pytest.approx(math.sqrt(4000 * (math.log(400) + math.log(8000 / math.pi)) / 4), rel=0.05)
