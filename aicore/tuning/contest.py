"""Which of several ways is fastest, on a machine where every measurement is noisy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeAlias

from aicore.records import dataclass

Timer: TypeAlias = Callable[[int], float]
"""Runs one contestant once and returns the seconds that it took."""

_ROUNDS = ((2, 1.5), (3, 1.15))
"""Rounds in which all that are left run in turn; afterwards those slower than the fastest by this factor are out."""
_FINALISTS = 2
_LEAST_PAIRS, _MOST_PAIRS = 9, 31
_ENOUGH_SECONDS, _MOST_SECONDS = 0.05, 1.0
_PROMISING = 0.95
"""A median gain that is worth more pairs, if the noise still hides it."""
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median, and the interval that holds the true one with at least 95 % confidence."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """seconds: median by contestant that was timed. winner: its index. gain: its time over the default's."""

    winner: int
    seconds: dict[int, float]
    gain: Interval


def contest(count: int, timer: Timer) -> Result:
    """Find the fastest of `count` contestants; 0 is the default, which wins unless another is faster beyond the noise.

    All run in turn, so that a slow moment of the machine meets every one of them; the slow ones leave early, and the
    best meet the default in pairs until the median of ratios is known well enough.
    """
    times: dict[int, list[float]] = {i: [] for i in range(count)}
    left = list(range(count))
    for rounds, factor in _ROUNDS:
        if len(left) == 1:
            break
        for turn in range(rounds):
            for i in _rotated(left, turn):
                times[i].append(timer(i))
        best = min(min(times[i]) for i in left)
        left = [i for i in left if i == 0 or min(times[i]) <= best * factor]
    rivals = sorted((i for i in left if i), key=lambda i: median(times[i]))[:_FINALISTS]
    gains = {i: _paired(i, timer, times) for i in rivals}
    if not times[0]:
        times[0].append(timer(0))
    faster = [i for i in rivals if gains[i].high < 1]
    winner = min(faster, key=lambda i: gains[i].middle, default=0)
    seconds = {i: median(values) for i, values in times.items() if values}
    return Result(winner, seconds, gains.get(winner, Interval(1.0, 1.0, 1.0)))


def median_interval(values: Sequence[float]) -> Interval:
    """From order statistics, so that nothing is assumed about the distribution.

    The number of values below the true median is binomial with p = 1/2. Fewer than 6 values give no interval of 95 %;
    then it is their whole range, widened to infinity.
    """
    ordered, count = sorted(values), len(values)
    drop = -1
    tail = 0.0
    for k in range(count):
        tail += math.comb(count, k) / 2**count
        if 2 * tail > 1 - _CONFIDENCE:
            break
        drop = k
    if drop < 0:
        return Interval(median(ordered), 0.0, math.inf)
    return Interval(median(ordered), ordered[drop], ordered[count - 1 - drop])


def _paired(rival: int, timer: Timer, times: dict[int, list[float]]) -> Interval:
    ratios: list[float] = []
    spent = 0.0
    while len(ratios) < _LEAST_PAIRS or (len(ratios) < _MOST_PAIRS and spent < _worth(ratios)):
        order = (0, rival) if len(ratios) % 2 else (rival, 0)
        pair = {i: timer(i) for i in order}
        for i, seconds in pair.items():
            times[i].append(seconds)
        spent += sum(pair.values())
        ratios.append(pair[rival] / pair[0] if pair[0] > 0 else 1.0)
    return median_interval(ratios)


def _worth(ratios: Sequence[float]) -> float:
    """Seconds that it is worth to spend on pairs."""
    interval = median_interval(ratios)
    undecided = interval.low < 1 <= interval.high and interval.middle < _PROMISING
    return _MOST_SECONDS if undecided else _ENOUGH_SECONDS


def _rotated(items: Sequence[int], turn: int) -> list[int]:
    start = turn % len(items)
    return [*items[start:], *items[:start]]
