"""How far two tensors are apart, summed over batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class Power:
    """Power of a signal and of the noise on it."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, wanted: Array, got: Array) -> None:
        """See one more pair of tensors; what is not finite in both alike is no noise."""
        a, b = wanted.astype(np.float64), got.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.where(same, 0.0, a - b)
            self.noise += float((difference**2).sum())
        self.signal += float((a[np.isfinite(a)] ** 2).sum())

    @property
    def sqnr(self) -> float:
        """Signal to quantisation noise in decibels; +infinity for identical tensors, NaN is never better than that."""
        if self.noise == 0:
            return math.inf
        if not math.isfinite(self.noise):
            return -math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


def sqnr(wanted: Array, got: Array) -> float:
    """Of one pair of tensors, in decibels."""
    power = Power()
    power.add(wanted, got)
    return power.sqnr


def all_outputs(power: Power, wanted: Mapping[str, Array], got: Mapping[str, Array]) -> None:
    """Add every output in floating point, each scaled to the same power, so that a large one does not hide others."""
    for name, array in wanted.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        one = Power()
        one.add(array, got[name])
        weight = array.size / one.signal if one.signal else 1.0
        power.signal += one.signal * weight
        power.noise += one.noise * weight
