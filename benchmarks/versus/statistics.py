"""What is made of paired samples: ratios, their median with an interval, geometric means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median, and an interval that holds the true one with about 95% confidence."""

    median: float
    low: float
    high: float


def paired_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """The ratio of each round; raises ValueError when the rounds do not pair up."""
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} and {len(denominators)} samples do not pair up")
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def estimate(samples: Iterable[float], confidence: float = 0.95) -> Estimate:
    """The median with an interval of order statistics, which assumes no distribution (the sign test, inverted).

    Fewer than six samples cannot reach 95%: their interval is all that was seen.
    Raises ValueError when there are none.
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples, no median")
    count = len(ordered)
    cut, tail = 0, 0.5**count  # `tail`: how likely at most `cut` samples lie below the true median
    while cut + 1 < (count + 1) // 2:
        tail += math.comb(count, cut + 1) * 0.5**count
        if 1 - 2 * tail < confidence:
            break
        cut += 1
    return Estimate(statistics.median(ordered), ordered[cut], ordered[count - 1 - cut])


def geometric_mean(ratios: Iterable[float]) -> float:
    """The mean of ratios that does not depend on which side is the denominator.

    Raises ValueError for no ratios, or one that is not positive.
    """
    found = list(ratios)
    if not found or min(found) <= 0:
        raise ValueError(f"a geometric mean wants positive ratios, got {found}")
    return math.exp(math.fsum(map(math.log, found)) / len(found))
