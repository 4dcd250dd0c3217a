"""Is one way faster than another? Timed runs of both in pairs, until that is clear or the time is up.

The order in each pair is drawn at random, so if both ways are equally fast, either is as likely to be the faster one of
a pair, whatever the machine does meanwhile. One may look at the result after every pair, and stop because of what one
sees, without claiming more than the interval holds: it is a confidence sequence for the median of the ratios, from the
mixture of all alternatives of the sign test (Robbins, Ann. Math. Statist. 41, 1970; Howard and Ramdas, Bernoulli 28,
2022). For n pairs of which k have a ratio of at most m, the mixture's likelihood ratio against "m is the median" is
2^n / ((n + 1) C(n, k)); by Ville's inequality it ever reaches 20 with a probability of at most 1/20 if m is the median.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Literal, TypeAlias

from aicore.errors import ConfigError
from aicore.records import dataclass
from aicore.views import View

Verdict: TypeAlias = Literal["faster", "slower", "equal", "unclear"]
MARGIN = 0.02
"""Less than 2 % is no gain: two compilations of one model differ by 1 % for no reason but where their memory lies."""
LEAST_PAIRS = 8
"""Eight pairs that all say the same are the fewest that are beyond chance: 2^8 / 9 = 28, 2^7 / 8 = 16."""
_MOST_PAIRS = 1000
_HOPELESS_PAIRS, _HOPELESS = 3, 1.1
"""Giving up says nothing that could be wrong: the default stays."""
_LIKELIHOOD = 20
_LEAST_RUN = 0.01
"""Seconds of one stretch; of shorter runs it has several, and their median counts, so that a wake-up spoils none."""
_MOST_REPEATS = 500


@dataclass(frozen=True)
class Comparison(View):
    """The time of one way over that of another.

    ratio: the median over all pairs.
    low, high: an interval that holds the true median with 95 % confidence at whatever moment one stops.
    seconds: medians of one run: of the other way, and of this one.
    repeats: runs in one timed stretch.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    seconds: tuple[float, float] = (0.0, 0.0)
    repeats: int = 1

    @property
    def verdict(self) -> Verdict:
        if self.low > 1 - MARGIN and self.high < 1 + MARGIN:
            return "equal"
        if self.high < 1 and self.ratio < 1 - MARGIN:
            return "faster"
        return "slower" if self.low > 1 and self.ratio > 1 + MARGIN else "unclear"

    def __str__(self) -> str:
        words = {"equal": f"equal within {MARGIN:.0%}", "unclear": "no difference beyond the noise"}
        told = words.get(self.verdict, self.verdict)
        if math.isinf(self.high):
            return f"{self.ratio:.3f} of the time, {self.pairs} pairs: too few to tell"
        return f"{self.ratio:.3f} of the time [{self.low:.3f}, {self.high:.3f}], {self.pairs} pairs: {told}"

    def to_json(self) -> dict[str, Any]:
        """`high` is None where too few pairs bound it: JSON has no infinity."""
        return {
            "ratio": self.ratio, "low": self.low, "high": None if math.isinf(self.high) else self.high,
            "pairs": self.pairs, "verdict": self.verdict, "seconds": list(self.seconds), "repeats": self.repeats,
        }  # fmt: skip


def median_sequence(ratios: Sequence[float]) -> tuple[float, float]:
    """The interval of all medians that these ratios, one after the other, have not ruled out."""
    ordered, count = sorted(ratios), len(ratios)
    dropped = 0
    while 2 * dropped < count and 2**count >= _LIKELIHOOD * (count + 1) * math.comb(count, dropped):
        dropped += 1
    if not dropped:
        return 0.0, math.inf
    return ordered[dropped - 1], ordered[count - dropped]


def compare_runs(
    base: Callable[[], object],
    other: Callable[[], object],
    seconds: float = 10.0,
    *,
    only_gains: bool = False,
    most_pairs: int = _MOST_PAIRS,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    advance: Callable[[Comparison], object] | None = None,
) -> Comparison:
    """Time `other` against `base`, after a run of each that is not counted.

    seconds: to spend at most; eight pairs are timed however long they take.
    only_gains: stop also as soon as `other` seems to gain nothing: after three pairs in which it was clearly slower.
    seed: of the order in each pair.
    advance: is told the state after each pair.
    Raises ConfigError for fewer than eight pairs.
    """
    if most_pairs < LEAST_PAIRS:
        raise ConfigError(f"{most_pairs} pairs are too few to tell a change from noise; {LEAST_PAIRS} are the least")
    begin = clock()
    rng = random.Random(seed)
    repeats = _repeats(max(_time(way, 1, clock) for way in (base, other, base, other)))
    times: tuple[list[float], list[float]] = ([], [])
    while True:
        ways = [(base, times[0]), (other, times[1])]
        if rng.random() < 0.5:
            ways.reverse()
        for way, found in ways:
            found.append(_time(way, repeats, clock))
        state = comparison(times[0], times[1], repeats)
        if advance is not None:
            advance(state)
        over = clock() - begin >= seconds or state.pairs >= most_pairs
        if state.pairs >= LEAST_PAIRS and (over or state.verdict != "unclear" or (only_gains and state.ratio >= 1)):
            return state
        if only_gains and state.pairs >= _HOPELESS_PAIRS and _always_slower(*times):
            return state


def comparison(base: Sequence[float], other: Sequence[float], repeats: int = 1) -> Comparison:
    """What paired times say: the i-th of both were taken one after the other."""
    ratios = [b / a for a, b in zip(base, other, strict=True)]
    low, high = median_sequence(ratios)
    return Comparison(median(ratios), low, high, len(ratios), (median(base), median(other)), repeats)


def _always_slower(base: Sequence[float], other: Sequence[float]) -> bool:
    return all(b > a * _HOPELESS for a, b in zip(base, other, strict=True))


def _time(way: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    """Seconds of one run: the median of a stretch."""
    ticks = [clock()]
    for _ in range(repeats):
        way()
        ticks.append(clock())
    return max(median(after - before for before, after in pairwise(ticks)), 1e-9)


def _repeats(seconds: float) -> int:
    return min(max(math.ceil(_LEAST_RUN / seconds), 1), _MOST_REPEATS)
