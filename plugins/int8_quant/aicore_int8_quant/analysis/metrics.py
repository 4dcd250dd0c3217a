"""How good an int8 model is, by its outputs beside those of the float model. Larger is better."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aicore_int8_quant.analysis.sensitivity import Metric, Outputs
from aicore_int8_quant.errors import QuantizationError

Array = np.ndarray[Any, Any]


def top1(wanted: Sequence[Outputs], got: Sequence[Outputs]) -> float:
    """Percent of rows along the last axis whose largest number is in the same place, over all float outputs."""
    same = [a.argmax(-1) == b.argmax(-1) for a, b in _pairs(wanted, got) if a.ndim and a.shape[-1] > 1 and a.size]
    return 100 * float(np.concatenate([np.atleast_1d(s).ravel() for s in same]).mean()) if same else 100.0


def cosine(wanted: Sequence[Outputs], got: Sequence[Outputs]) -> float:
    """100 times the mean cosine of the angle between float outputs."""
    angles = []
    for a, b in _pairs(wanted, got):
        x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
        norm = np.linalg.norm(x) * np.linalg.norm(y)
        angles.append(float(x @ y / norm) if norm else float(np.array_equal(x, y)))
    return 100 * float(np.mean(angles)) if angles else 100.0


def relative(wanted: Sequence[Outputs], got: Sequence[Outputs]) -> float:
    """100 times one minus the relative error of the float outputs, in the 2-norm; 0 when it is 1 or more."""
    errors = []
    for a, b in _pairs(wanted, got):
        norm = float(np.linalg.norm(a.ravel().astype(np.float64)))
        errors.append(float(np.linalg.norm((a.astype(np.float64) - b).ravel())) / norm if norm else 0.0)
    return 100 * (1 - min(float(np.mean(errors)), 1.0)) if errors else 100.0


METRICS: dict[str, Metric] = {"top1": top1, "cosine": cosine, "relative": relative}
"""By the name that --metric takes. All are 100 for the float model itself."""


def find_metric(name: str) -> Metric:
    """One of METRICS, or the function that `module:function` names.

    Such a function gets two lists of outputs by name, those of the float model and those of another, and returns how
    good the other is. Raises QuantizationError for a name that is neither.
    """
    if name in METRICS:
        return METRICS[name]
    module, _, function = name.partition(":")
    try:
        found: Metric = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        choices = ", ".join(METRICS)
        raise QuantizationError(
            f"there is no metric {name!r} ({error}); choose {choices}, or module:function"
        ) from error
    return found


def _pairs(wanted: Sequence[Outputs], got: Sequence[Outputs]) -> Iterator[tuple[Array, Array]]:
    for a, b in zip(wanted, got, strict=True):
        for name, array in a.items():
            if array.dtype.kind == "f":
                yield array, b[name]
