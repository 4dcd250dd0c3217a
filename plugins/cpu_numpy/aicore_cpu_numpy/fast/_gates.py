"""The activations of recurrent layers, computed into given memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from aicore.ops.recurrent import Activated

Array = np.ndarray[Any, Any]
Gate: TypeAlias = Callable[[Array, Array, Array], None]
"""`(x, out, scratch)`: out = activation(x); out may be x, scratch is another array of their shape."""


def gate(activation: Activated, clip: float | None) -> Gate:
    """The activation with its parameters; `clip` bounds what goes into it."""
    formula = FORMULAS[activation.name]
    whole = partial(formula, alpha=activation.alpha, beta=activation.beta)
    return whole if clip is None else partial(_clipped, whole, clip)


def _clipped(inner: Gate, clip: float, x: Array, out: Array, scratch: Array) -> None:
    np.maximum(x, -clip, out=out)
    np.minimum(out, clip, out=out)
    inner(out, out, scratch)


def _relu(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.maximum(x, 0, out=out)


def _tanh(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.tanh(x, out=out)


def _sigmoid(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)  # infinite where the result is 0
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def _affine(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.multiply(x, alpha, out=out)
    np.add(out, beta, out=out)


def _leaky_relu(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.minimum(x, 0, out=scratch)
    np.multiply(scratch, alpha, out=scratch)
    np.maximum(x, 0, out=out)
    np.add(out, scratch, out=out)


def _thresholded_relu(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.copyto(scratch, x)
    out.fill(0)
    np.copyto(out, scratch, where=~(scratch < alpha))  # NaN is not below alpha


def _scaled_tanh(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.multiply(x, beta, out=out)
    np.tanh(out, out=out)
    np.multiply(out, alpha, out=out)


def _hard_sigmoid(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    _affine(x, out, scratch, alpha, beta)
    np.maximum(out, 0, out=out)
    np.minimum(out, 1, out=out)


def _elu(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.minimum(x, 0, out=scratch)
    np.expm1(scratch, out=scratch)
    np.multiply(scratch, alpha, out=scratch)
    np.maximum(x, 0, out=out)
    np.add(out, scratch, out=out)


def _softsign(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.absolute(x, out=scratch)
    np.add(scratch, 1, out=scratch)
    np.divide(x, scratch, out=out)


def _softplus(x: Array, out: Array, scratch: Array, alpha: Any, beta: Any) -> None:
    np.logaddexp(x, 0, out=out)


FORMULAS: dict[str, Callable[..., None]] = {
    "Relu": _relu,
    "Tanh": _tanh,
    "Sigmoid": _sigmoid,
    "Affine": _affine,
    "LeakyRelu": _leaky_relu,
    "ThresholdedRelu": _thresholded_relu,
    "ScaledTanh": _scaled_tanh,
    "HardSigmoid": _hard_sigmoid,
    "Elu": _elu,
    "Softsign": _softsign,
    "Softplus": _softplus,
}
