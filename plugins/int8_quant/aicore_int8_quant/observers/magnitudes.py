"""How large the numbers of a tensor are, as counts that do not depend on how the data is cut or ordered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aicore_int8_quant.affine import Array

_MANTISSA_BITS = 3
"""Of the 23 of a float32 that tell bins apart: eight bins between two powers of two."""
_SHIFT = 23 - _MANTISSA_BITS
_BINS = 255 << _MANTISSA_BITS
"""Of finite numbers; what lies beyond is NaN or infinity."""


class Magnitudes:
    """Counts of float32 numbers by exponent and first bits of the mantissa: 16 KiB, whatever is seen.

    The mean square of the numbers is found from them to within 1 % where the numbers spread over the bins.
    NaN and infinity are left out.
    """

    def __init__(self) -> None:
        self.counts = np.zeros(_BINS, np.int64)

    def update(self, array: Array) -> None:
        """See one more batch, of float32 and any shape."""
        bits = np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint32)
        bins = (bits << np.uint32(1)) >> np.uint32(_SHIFT + 1)
        self.counts += np.bincount(bins, minlength=_BINS)[:_BINS]

    def merge(self, other: Magnitudes) -> None:
        """See all that `other` has seen."""
        self.counts += other.counts

    @property
    def mean_square(self) -> float:
        """Of the numbers seen; 0 where there were none."""
        seen = int(self.counts.sum())
        if not seen:
            return 0.0
        used = np.flatnonzero(self.counts)
        ends = _ends()
        low, high = ends[used], ends[used + 1]
        squares = (low * low + low * high + high * high) / 3  # the mean of x * x for x between low and high
        return float((self.counts[used] * squares).sum()) / seen


def decibels(mean_square: float, scale: float) -> float:
    """Power of a tensor against that of rounding to steps of `scale`, whose mean square is scale ** 2 / 12."""
    if mean_square == 0:
        return math.inf
    return 10 * math.log10(mean_square * 12) - 20 * math.log10(scale)


def _ends() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Where each bin begins, and the last one ends."""
    bits = np.arange(_BINS, dtype=np.uint32) << np.uint32(_SHIFT)
    return np.append(bits.view(np.float32).astype(np.float64), 2.0**128)
