"""Timing several sides of a GPU in turn: its clock falls when it is hot, so only neighbours in time may be compared."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.versus.statistics import estimate, paired_ratios

Timer = Callable[[int], float]
"""Takes a number of calls, makes that many in a row, and returns the seconds of one, as the device's events tell."""

SAMPLE_SECONDS = 0.03
"""A sample is as many calls in a row as fill this: reading events costs microseconds."""
FEWEST_CALLS, MOST_CALLS = 3, 2000
_TRIAL_CALLS = 3


def take_turns(sides: Mapping[str, Timer], rounds: int) -> dict[str, list[float]]:
    """Seconds of one call by side, a sample a round; each round starts with another side."""
    calls = {}
    for name, timer in sides.items():
        timer(_TRIAL_CALLS)
        calls[name] = calls_of_sample(timer(_TRIAL_CALLS))
    samples: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        first = number % len(names) if names else 0
        for name in names[first:] + names[:first]:
            samples[name].append(sides[name](calls[name]))
    return samples


def calls_of_sample(seconds: float) -> int:
    """How many calls of `seconds` make one sample."""
    return max(FEWEST_CALLS, min(MOST_CALLS, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-9))))


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {side: statistics.median(taken) for side, taken in samples.items()}


def ratios_to(side: str, samples: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """By other side: how many times as fast as it `side` is, the median of the rounds with its interval."""
    others = [name for name in samples if name != side]
    return {name: asdict(estimate(paired_ratios(samples[name], samples[side]))) for name in others}
