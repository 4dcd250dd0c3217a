"""Observers of the smallest and the largest number: over all batches, or as a moving average."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from aicore_int8_quant.affine import Array, Format
from aicore_int8_quant.errors import CalibrationError
from aicore_int8_quant.observers.base import NonFinite, Observer, batch_extremes


class MinMax(Observer):
    """The range from the smallest to the largest number seen: nothing is cut off. The default."""

    kind: ClassVar[str] = "minmax"

    def __init__(self, tensor: str = "tensor", axis: int | None = None, non_finite: NonFinite = "raise") -> None:
        super().__init__(tensor, axis, non_finite)
        self._low = np.full(self.channels or 0, np.inf)
        self._high = np.full(self.channels or 0, -np.inf)

    def extremes(self) -> tuple[Array, Array]:
        return self._low, self._high

    def _see(self, rows: Array, finite: Array | None) -> None:
        self._widen(*batch_extremes(rows, finite))

    def _merge(self, other: MinMax) -> None:
        self._widen(other._low, other._high)

    def _join_into(self, total: MinMax, exponents: Array) -> None:
        low, high = np.ldexp(self._low, exponents), np.ldexp(self._high, exponents)
        total._widen(low.min(keepdims=True), high.max(keepdims=True))

    def _widen(self, low: Array, high: Array) -> None:
        if not self._low.size:
            self._low, self._high = low, high
        self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)

    def _range(self, to: Format) -> tuple[Array, Array]:
        return self._low, self._high

    def _state(self) -> Any:
        return {"low": _numbers(self._low), "high": _numbers(self._high)}

    def _set_state(self, state: Any) -> None:
        self._low, self._high = _array(state["low"], np.inf), _array(state["high"], -np.inf)


class MovingAverage(Observer):
    """Averages of each batch's smallest and largest number, the latest batches weighing most.

    Results depend on the order of batches and on how data is cut into them. Merging weighs both sides by the number of
    their batches.
    decay: what is left of the average when a batch is seen, between 0 and 1.
    """

    kind: ClassVar[str] = "moving-average"

    def __init__(
        self, tensor: str = "tensor", axis: int | None = None, non_finite: NonFinite = "raise", decay: float = 0.9
    ) -> None:
        super().__init__(tensor, axis, non_finite)
        if not 0 < decay < 1:
            raise CalibrationError(f"decay is {decay}; choose a number between 0 and 1")
        self.decay = decay
        self._batches = 0
        self._average: tuple[Array, Array] | None = None

    def options(self) -> dict[str, Any]:
        return {**super().options(), "decay": self.decay}

    def extremes(self) -> tuple[Array, Array]:
        if self._average is None:
            return np.array([np.inf]), np.array([-np.inf])
        return self._average

    def _see(self, rows: Array, finite: Array | None) -> None:
        low, high = batch_extremes(rows, finite)
        if not np.isfinite(low).all():  # an empty batch says nothing
            return
        self._blend(low, high, 1 - self.decay, 1)

    def _merge(self, other: MovingAverage) -> None:
        if other._average is not None:
            self._blend(*other._average, other._batches / (self._batches + other._batches), other._batches)

    def _join_into(self, total: MovingAverage, exponents: Array) -> None:
        if self._average is not None:
            low, high = (np.ldexp(ends, exponents) for ends in self._average)
            total._blend(low.min(keepdims=True), high.max(keepdims=True), 1, self._batches)

    def _blend(self, low: Array, high: Array, share: float, batches: int) -> None:
        if self._average is None:
            self._average = low, high
        else:
            old_low, old_high = self._average
            self._average = old_low + share * (low - old_low), old_high + share * (high - old_high)
        self._batches += batches

    def _range(self, to: Format) -> tuple[Array, Array]:
        return self.extremes()

    def _state(self) -> Any:
        average = None if self._average is None else [part.tolist() for part in self._average]
        return {"batches": self._batches, "average": average}

    def _set_state(self, state: Any) -> None:
        self._batches = state["batches"]
        if state["average"] is not None:
            low, high = state["average"]
            self._average = np.array(low, np.float64), np.array(high, np.float64)


def _numbers(array: Array) -> list[float | None]:
    """None where nothing was seen, for JSON has no infinity."""
    return [number if np.isfinite(number) else None for number in array.tolist()]


def _array(numbers: list[float | None], missing: float) -> Array:
    return np.array([missing if number is None else number for number in numbers], np.float64)
