"""Derivatives by finite differences in float64, with an estimate of their error, and a sense for kinks.

Let C(h) = (f(x + h) - f(x - h)) / 2h. Its error is h^2 f'''/6 plus higher powers of h^2, so that of the extrapolation
(4 C(h/2) - C(h)) / 3 is of the order of h^4 (Richardson): with h = 2^-12 about 1e-14 for functions of moderate
derivatives. What the extrapolation changed is a safe bound of what it left. Rounding adds some units of 2^-53 |f| / h,
about 1e-12 |f|.

Near a kink or a jump, differences mean nothing. Two signs give it away: C(h) and C(h/2) differ by more than curvature
explains, or D(h) = (f(x + h) - 2 f(x) + f(x - h)) / h, which halves with h where f is smooth, does not. A point with
such a sign, or one where a value is not finite, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from aicore.records import dataclass

Array = np.ndarray[Any, Any]
Function: TypeAlias = Callable[[Array], Sequence[Array]]

STEP = 2.0**-12
_UNIT = 2.0**-53
_ROUNDINGS = 32
"""Roundings that each result may carry, of numbers as large as it or the operand, whose difference it may be."""
_CURVED = 2.0**-9
"""How far C(h) and C(h/2) may differ, relative to them: x ** 3 does by h^2 / x^2, so at x = 0.01 by 6e-4."""
_BENT = 0.125
_NEGLIGIBLE = 1e-7


@dataclass(frozen=True)
class Slope:
    """The derivative along a direction of each of several sums, which add up.

    wide, narrow: C(h) and C(h/2). bend, half_bend: D(h) and D(h/2). noise: what rounding may do to the derivative.
    """

    wide: Array
    narrow: Array
    bend: Array
    half_bend: Array
    noise: Array

    def of(self, sums: Sequence[int]) -> tuple[float, float] | None:
        """(derivative, its error) of the sums chosen; None where there seems to be none."""
        wide, narrow, bend, half, noise = (
            float(row[list(sums)].sum()) for row in (self.wide, self.narrow, self.bend, self.half_bend, self.noise)
        )
        if not np.isfinite([wide, narrow, bend, half, noise]).all():
            return None
        small = _NEGLIGIBLE * (abs(wide) + abs(narrow)) + noise
        is_curved = abs(wide - narrow) > _CURVED * (abs(wide) + abs(narrow)) / 2 + small
        is_bent = abs(half - bend / 2) > _BENT * abs(bend) + small
        if is_curved or is_bent:
            return None
        return (4 * narrow - wide) / 3, abs(narrow - wide) / 3 + noise


def slope(function: Function, x: Array, direction: Array, weights: Sequence[Array]) -> Slope:
    """The slope at `x` along the direction of the sums of each result times its weights.

    function: x -> results, all in float64.
    """
    base = function(x)
    wide = [function(x + step * direction) for step in (STEP, -STEP)]
    narrow = [function(x + step * direction) for step in (STEP / 2, -STEP / 2)]
    largest = float(np.abs(x).max(initial=0.0))
    columns = []
    for i, weight in enumerate(weights):
        found = [results[i] for results in (base, *wide, *narrow)]
        if len({array.shape for array in found}) > 1:  # how many there are depends on the numbers
            columns.append((np.nan,) * 5)
            continue
        here, up, down, half_up, half_down = found
        size = np.abs(up) + np.abs(down) + np.abs(here) + largest
        moved = np.where(up == down, 0.0, np.abs(weight) * size)
        columns.append(
            (
                (weight * (up - down)).sum() / (2 * STEP),
                (weight * (half_up - half_down)).sum() / STEP,
                (weight * (up - here + (down - here))).sum() / STEP,
                (weight * (half_up - here + (half_down - here))).sum() / (STEP / 2),
                _ROUNDINGS * _UNIT * moved.sum() / STEP,
            )
        )
    return Slope(*np.array(columns, np.float64).reshape(-1, 5).T)
