"""Observers: what a tensor's range is, from the batches of a calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from aicore_int8_quant.errors import CalibrationError
from aicore_int8_quant.observers.base import NonFinite, Observer
from aicore_int8_quant.observers.clipping import Entropy, Percentile, SquaredError
from aicore_int8_quant.observers.extremes import MinMax, MovingAverage
from aicore_int8_quant.observers.histogram import BINS, HistogramObserver

OBSERVERS: dict[str, type[Observer]] = {
    cls.kind: cls for cls in (MinMax, MovingAverage, Percentile, Entropy, SquaredError)
}
"""Every kind of observer by the name that `method=` and `--method` take."""

MakeObserver: TypeAlias = Callable[..., Observer]
"""`(tensor, axis=..., non_finite=...) -> Observer`: a class of OBSERVERS, or one with some options filled in."""


def observer_class(method: str) -> type[Observer]:
    """The class for a method such as `minmax`. Raises CalibrationError listing the choices."""
    if method not in OBSERVERS:
        raise CalibrationError(f"there is no method {method!r}; choose from {', '.join(OBSERVERS)}")
    return OBSERVERS[method]


def from_json(data: Mapping[str, Any]) -> Observer:
    """Inverse of `Observer.to_json`."""
    return observer_class(data["kind"])._from_json(data)


__all__ = [
    "BINS",
    "OBSERVERS",
    "Entropy",
    "HistogramObserver",
    "MakeObserver",
    "MinMax",
    "MovingAverage",
    "NonFinite",
    "Observer",
    "Percentile",
    "SquaredError",
    "from_json",
    "observer_class",
]
