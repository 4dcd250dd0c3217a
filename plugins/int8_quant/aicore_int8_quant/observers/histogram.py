"""A histogram that never grows: when a number does not fit, the bins become twice as wide, pairs joined.

Bins of one channel are equally wide, their width is a power of two, and one begins at 0. So a number's bin is found
without rounding, joining two neighbours gives exactly what wider bins would have counted, and the final counts depend
only on the numbers seen: not on their order, nor on how they were cut into batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore_int8_quant.affine import Array
from aicore_int8_quant.observers.base import NonFinite, Observer, batch_extremes

BINS = 2048
"""Bins on each side of 0."""
_LOWEST = -1074
"""Exponent of the smallest float64 above 0: the span of a channel that has seen zeros only."""


class HistogramObserver(Observer):
    """Counts of the numbers seen, in 2 * BINS bins that cover both sides of 0, for each channel.

    A channel takes 32 KiB, whatever it sees.
    """

    def __init__(self, tensor: str = "tensor", axis: int | None = None, non_finite: NonFinite = "raise") -> None:
        super().__init__(tensor, axis, non_finite)
        self._reset(self.channels or 0)

    def _reset(self, channels: int) -> None:
        self.counts = np.zeros((channels, 2 * BINS), np.int64)
        self._exponents = np.full(channels, _LOWEST, np.int64)
        self._low, self._high = np.full(channels, np.inf), np.full(channels, -np.inf)

    def extremes(self) -> tuple[Array, Array]:
        return self._low, self._high

    def edges(self, channel: int) -> Array:
        """The borders of the channel's bins: 2 * BINS + 1 numbers."""
        found: Array = np.ldexp(np.arange(-BINS, BINS + 1) / BINS, self._exponents[channel])
        return found

    def _see(self, rows: Array, finite: Array | None) -> None:
        if rows.shape[0] != self.counts.shape[0]:
            self._reset(rows.shape[0])
        low, high = batch_extremes(rows, finite)
        self._reach(np.where(np.isfinite(low), np.maximum(np.abs(low), np.abs(high)), 0))
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
        for channel, row in enumerate(rows):
            numbers = row if finite is None else row[finite[channel]]
            self.counts[channel] += self._count(numbers.astype(np.float64), self._exponents[channel])

    def _count(self, numbers: Array, exponent: Any) -> Array:
        # Two steps, for a number near the largest float64 must not overflow on its way to a bin.
        scaled = (
            np.ldexp(numbers, -int(exponent))
            if exponent > -1000
            else np.ldexp(np.ldexp(numbers, 100), -int(exponent) - 100)
        )
        bins = np.floor(scaled * BINS).astype(np.int64) + BINS
        return np.bincount(bins, minlength=2 * BINS)

    def _reach(self, largest: Array) -> None:
        """Widen the bins of each channel until its number fits; 2 ** exponent is above it."""
        wanted = np.where(largest > 0, np.frexp(largest)[1], _LOWEST)
        for channel in np.flatnonzero(wanted > self._exponents):
            self._widen(int(channel), int(wanted[channel]))

    def _widen(self, channel: int, exponent: int) -> None:
        steps = exponent - int(self._exponents[channel])
        self._exponents[channel] = exponent
        counts = self.counts[channel]
        for _ in range(min(steps, 2 * BINS.bit_length())):  # by then, all is in the two bins beside 0
            joined = counts.reshape(-1, 2).sum(1)
            counts = np.zeros_like(counts)
            counts[BINS // 2 : BINS + BINS // 2] = joined
        self.counts[channel] = counts

    def _merge(self, other: HistogramObserver) -> None:
        if other.counts.shape != self.counts.shape:
            self._reset(other.counts.shape[0])
        for channel in range(self.counts.shape[0]):
            mine, theirs = int(self._exponents[channel]), int(other._exponents[channel])
            if theirs > mine:
                self._widen(channel, theirs)
        for channel in range(self.counts.shape[0]):
            copy = type(self)(**self.options())
            copy._reset(1)
            copy.counts[0], copy._exponents[0] = other.counts[channel], other._exponents[channel]
            if copy._exponents[0] < self._exponents[channel]:
                copy._widen(0, int(self._exponents[channel]))
            self.counts[channel] += copy.counts[0]
        self._low, self._high = np.minimum(self._low, other._low), np.maximum(self._high, other._high)

    def _join_into(self, total: HistogramObserver, exponents: Array) -> None:
        for channel, steps in enumerate(exponents):
            one = type(self)(**total.options())
            one.counts[0] = self.counts[channel]
            one._exponents[0] = max(int(self._exponents[channel] + steps), _LOWEST)
            one._low[0] = np.ldexp(self._low[channel], steps)
            one._high[0] = np.ldexp(self._high[channel], steps)
            total._merge(one)

    def _state(self) -> Any:
        channels = []
        for channel, counts in enumerate(self.counts):
            used = np.flatnonzero(counts)
            bins = [[int(i), int(counts[i])] for i in used]
            seen = [float(self._low[channel]), float(self._high[channel])] if used.size else None
            channels.append({"exponent": int(self._exponents[channel]), "bins": bins, "seen": seen})
        return channels

    def _set_state(self, state: Any) -> None:
        self._reset(len(state))
        for channel, one in enumerate(state):
            self._exponents[channel] = one["exponent"]
            for index, count in one["bins"]:
                self.counts[channel, index] = count
            if one["seen"] is not None:
                self._low[channel], self._high[channel] = one["seen"]
