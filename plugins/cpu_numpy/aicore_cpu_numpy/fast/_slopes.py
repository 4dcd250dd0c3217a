"""Derivatives of the activations of recurrent layers, computed into given memory; on kinks as RecurrentGrad says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from aicore.ops.recurrent import Activated

Array = np.ndarray[Any, Any]
Slope: TypeAlias = Callable[[Array, Array, Array, Array], None]
"""`(x, y, out, scratch)`: out = the derivative at x, given y = activation(x); all are different arrays of one shape."""


def slope(activation: Activated, clip: float | None) -> Slope:
    """The derivative of an activation with its parameters; 0 where `clip` changes what goes into it."""
    found = _PLAIN.get(activation.name)
    if found is None:
        found = partial(_FORMULAS[activation.name], alpha=activation.alpha, beta=activation.beta)
    return found if clip is None else partial(_clipped, found, clip)


def _clipped(inner: Slope, clip: float, x: Array, y: Array, out: Array, scratch: Array) -> None:
    inner(x, y, out, scratch)
    np.absolute(x, out=scratch)
    np.greater(scratch, clip, out=scratch)
    np.subtract(1, scratch, out=scratch)
    np.multiply(out, scratch, out=out)


def _tanh(x: Array, y: Array, out: Array, scratch: Array) -> None:
    np.multiply(y, y, out)
    np.subtract(1, out, out)


def _sigmoid(x: Array, y: Array, out: Array, scratch: Array) -> None:
    np.subtract(1, y, out)
    np.multiply(out, y, out)


def _relu(x: Array, y: Array, out: Array, scratch: Array) -> None:
    _above(x, 0, out)


def _above(x: Array, bound: Any, out: Array) -> None:
    """1 where x is above the bound or NaN, else 0."""
    np.less_equal(x, bound, out=out)
    np.subtract(1, out, out)


def _affine(x: Array, y: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    out.fill(alpha)


def _leaky_relu(x: Array, y: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.less_equal(x, 0, out=out)
    np.multiply(out, alpha - 1, out=out)
    np.add(out, 1, out=out)


def _thresholded_relu(x: Array, y: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    _above(x, alpha, out)


def _scaled_tanh(x: Array, y: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.multiply(x, beta, out=out)
    np.tanh(out, out=out)
    np.multiply(out, out, out=out)
    np.multiply(out, -alpha * beta, out=out)
    np.add(out, alpha * beta, out=out)


def _hard_sigmoid(x: Array, y: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    _above(y, 0, out)
    np.greater_equal(y, 1, out=scratch)
    np.subtract(out, scratch, out=out)
    np.multiply(out, alpha, out=out)


def _elu(x: Array, y: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.minimum(x, 0, out=out)
    np.exp(out, out=out)
    np.multiply(out, alpha, out=out)
    np.subtract(out, 1, out=out)
    np.less_equal(x, 0, out=scratch)
    np.multiply(out, scratch, out=out)
    np.add(out, 1, out=out)


def _softsign(x: Array, y: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.absolute(x, out=out)
    np.add(out, 1, out=out)
    np.multiply(out, out, out=out)
    np.reciprocal(out, out=out)


def _softplus(x: Array, y: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)  # infinite where the result is 0
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


_PLAIN: dict[str, Slope] = {"Relu": _relu, "Tanh": _tanh, "Sigmoid": _sigmoid}

_FORMULAS: dict[str, Callable[..., None]] = {
    "Affine": _affine,
    "LeakyRelu": _leaky_relu,
    "ThresholdedRelu": _thresholded_relu,
    "ScaledTanh": _scaled_tanh,
    "HardSigmoid": _hard_sigmoid,
    "Elu": _elu,
    "Softsign": _softsign,
    "Softplus": _softplus,
}
