"""Does a change pay? Times two variants in interleaved pairs, so that drift of the machine hits both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from math import comb

from aicore.errors import AicoreError
from aicore.records import dataclass

_LEAST_PAIRS = 6
"""With fewer, not even all pairs together are 95% certain."""


@dataclass(frozen=True)
class Comparison:
    """Time with the change divided by time without it, over all pairs.

    ratio: the median.
    low, high: an interval that holds the true median with at least 95% confidence, whatever the noise looks like.
    """

    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def keep(self) -> bool:
        """Whether the change is faster beyond the noise."""
        return self.high < 1.0

    def __str__(self) -> str:
        verdict = "faster" if self.keep else "slower" if self.low > 1.0 else "no difference beyond the noise"
        return f"{self.ratio:.3f} of the time [{self.low:.3f}, {self.high:.3f}], {self.pairs} pairs: {verdict}"


def compare_times(
    without: Callable[[], object],
    with_change: Callable[[], object],
    pairs: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Call both in pairs, the order changing from pair to pair.

    Raises AicoreError for fewer than 6 pairs.
    """
    if pairs < _LEAST_PAIRS:
        raise AicoreError(f"{pairs} pairs are too few to tell a change from noise; {_LEAST_PAIRS} are the least")
    ratios = []
    for i in range(pairs):
        first, second = (without, with_change) if i % 2 == 0 else (with_change, without)
        a, b = _seconds(first, clock), _seconds(second, clock)
        ratios.append(b / a if i % 2 == 0 else a / b)
    ratios.sort()
    rank = _rank(pairs)
    return Comparison(statistics.median(ratios), ratios[rank], ratios[-1 - rank], pairs)


def _seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return max(clock() - start, 1e-9)


def _rank(count: int) -> int:
    """How many of the sorted ratios may be cut off at each end: the sign test's interval for a median."""
    outside, rank = 2 / 2**count, 0
    while outside + 2 * comb(count, rank + 1) / 2**count <= 0.05:
        rank += 1
        outside += 2 * comb(count, rank) / 2**count
    return rank
