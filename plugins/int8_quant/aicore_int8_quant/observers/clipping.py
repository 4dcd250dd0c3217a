"""Observers that may cut off rare numbers, so that the others get finer steps: percentile, entropy, squared error.

Each chooses a range from a histogram. Clipping can destroy a model, so none is the default, and the report of a
quantised model says what was cut off.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from aicore_int8_quant.affine import Array, Format, QParams, qparams_of
from aicore_int8_quant.errors import CalibrationError
from aicore_int8_quant.observers.base import NonFinite
from aicore_int8_quant.observers.histogram import BINS, HistogramObserver

_THRESHOLDS = np.unique(np.round(np.geomspace(32, BINS, 96)).astype(int))
"""Candidates for the largest magnitude, in bins."""
_SMOOTHING = 1e-9
"""Share of an empty bin, so that a logarithm is finite."""


class ClippingObserver(HistogramObserver):
    """Chooses a range for each channel from its histogram."""

    def _range(self, to: Format) -> tuple[Array, Array]:
        ends = [self._choose(channel, to) for channel in range(self.counts.shape[0])]
        low, high = np.array(ends, np.float64).T
        return np.maximum(low, np.minimum(self._low, 0)), np.minimum(high, np.maximum(self._high, 0))

    @abstractmethod
    def _choose(self, channel: int, to: Format) -> tuple[float, float]:
        """The range of one channel; what lies outside the numbers seen is cut off afterwards."""


class Percentile(ClippingObserver):
    """The range that holds `percentile` percent of the numbers, with as many left out on each side.

    99.9 and even 99.999 can destroy a model: compare with minmax before using it.
    """

    kind: ClassVar[str] = "percentile"

    def __init__(
        self,
        tensor: str = "tensor",
        axis: int | None = None,
        non_finite: NonFinite = "raise",
        percentile: float = 99.999,
    ) -> None:
        super().__init__(tensor, axis, non_finite)
        if not 50 < percentile <= 100:
            raise CalibrationError(f"percentile is {percentile}; choose more than 50 and at most 100")
        self.percentile = percentile

    def options(self) -> dict[str, Any]:
        return {**super().options(), "percentile": self.percentile}

    def _choose(self, channel: int, to: Format) -> tuple[float, float]:
        counts, edges = self.counts[channel], self.edges(channel)
        tail = counts.sum() * (1 - self.percentile / 100) / 2
        first = int(np.flatnonzero(np.cumsum(counts) > tail)[0])
        last = 2 * BINS - 1 - int(np.flatnonzero(np.cumsum(counts[::-1]) > tail)[0])
        return float(edges[first]), float(edges[last + 1])


class Thresholding(ClippingObserver):
    """Tries thresholds t, each giving the range from -t to t as far as numbers were seen, and takes the best one."""

    def _choose(self, channel: int, to: Format) -> tuple[float, float]:
        edges, counts = self.edges(channel), self.counts[channel].astype(np.float64)
        seen = self._low[channel], self._high[channel]
        best, found = np.inf, seen
        for bins in _THRESHOLDS[::-1]:  # from wide to narrow: of equals, the one that cuts off least
            threshold = edges[BINS + bins]
            ends = max(-threshold, seen[0]), min(threshold, seen[1])
            params = qparams_of(np.array(ends[0]), np.array(ends[1]), Format(to.dtype, to.symmetric))
            loss = self._loss(counts, edges, params, int(bins))
            if loss < best:
                best, found = loss, ends
        return float(found[0]), float(found[1])

    @abstractmethod
    def _loss(self, counts: Array, edges: Array, params: QParams, bins: int) -> float:
        """How bad the codes are for these counts; `bins` on each side of 0 are within the threshold."""


class SquaredError(Thresholding):
    """The range with the least mean squared difference between numbers and what their codes stand for."""

    kind: ClassVar[str] = "mse"

    def _loss(self, counts: Array, edges: Array, params: QParams, bins: int) -> float:
        used = counts > 0
        centres = ((edges[:-1] + edges[1:]) / 2)[used]
        difference = centres - _round_trip(centres, params)
        return float((counts[used] * difference**2).sum())


class Entropy(Thresholding):
    """The range whose codes tell most of the distribution: least Kullback-Leibler divergence, over 2048 bins a side.

    For each threshold, what lies beyond it counts for the outermost bin; that is compared with the same counts spread
    evenly over the bins that share a code. Source: S. Migacz, 8-bit inference with TensorRT (2017).
    """

    kind: ClassVar[str] = "entropy"

    def _loss(self, counts: Array, edges: Array, params: QParams, bins: int) -> float:
        inside = slice(BINS - bins, BINS + bins)
        kept = counts[inside]
        clipped = kept.copy()
        clipped[0] += counts[: inside.start].sum()
        clipped[-1] += counts[inside.stop :].sum()
        centres = ((edges[:-1] + edges[1:]) / 2)[inside]
        codes = np.rint(centres / float(params.scale)).astype(np.int64)
        codes -= codes.min()
        filled = kept > 0
        sums = np.bincount(codes, weights=kept)
        shares = np.bincount(codes, weights=filled)
        spread = np.where(filled, sums[codes] / np.maximum(shares[codes], 1), 0)
        return _divergence(clipped, spread)


def _divergence(wanted: Array, got: Array) -> float:
    """Sum of p * log(p / q) over two distributions, in nats."""
    if not got.sum():
        return np.inf
    p, q = wanted / wanted.sum(), got / got.sum()
    used = p > 0
    return float((p[used] * np.log(p[used] / np.maximum(q[used], _SMOOTHING))).sum())


def _round_trip(x: Array, params: QParams) -> Array:
    """In float64, for the differences are small."""
    scale, zero_point = float(params.scale), int(params.zero_point)
    limits = np.iinfo(params.zero_point.dtype)
    codes = np.clip(np.rint(x / scale) + zero_point, limits.min, limits.max)
    found: Array = (codes - zero_point) * scale
    return found
