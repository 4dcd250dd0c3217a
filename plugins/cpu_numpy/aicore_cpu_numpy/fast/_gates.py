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

_ONE = np.ones((), np.float32)
"""Exact in every floating-point type; ufuncs take it faster than a Python number."""


def gate(activation: Activated, clip: float | None) -> Gate:
    """The activation with its parameters; `clip` bounds what goes into it."""
    whole = PLAIN.get(activation.name)
    if whole is None:
        whole = partial(FORMULAS[activation.name], alpha=activation.alpha, beta=activation.beta)
    return whole if clip is None else partial(_clipped, whole, clip)


def _clipped(inner: Gate, clip: float, x: Array, out: Array, scratch: Array) -> None:
    np.maximum(x, -clip, out=out)
    np.minimum(out, clip, out=out)
    inner(out, out, scratch)


def _relu(x: Array, out: Array, scratch: Array) -> None:
    np.maximum(x, 0, out=out)


def _tanh(x: Array, out: Array, scratch: Array) -> None:
    np.tanh(x, out)


def _sigmoid(x: Array, out: Array, scratch: Array) -> None:
    np.negative(x, out)
    sigmoid_of_negated(out, out, scratch)


def sigmoid_of_negated(x: Array, out: Array, scratch: Array) -> None:
    """out = sigmoid(-x)."""
    np.exp(x, out)  # infinite where the result is 0
    np.add(out, _ONE, out)
    np.reciprocal(out, out)


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


PLAIN: dict[str, Gate] = {"Relu": _relu, "Tanh": _tanh, "Sigmoid": _sigmoid}
"""Activations without parameters. What parameters cost at each step, however small, adds up."""

FORMULAS: dict[str, Callable[..., None]] = {
    "Affine": _affine,
    "LeakyRelu": _leaky_relu,
    "ThresholdedRelu": _thresholded_relu,
    "ScaledTanh": _scaled_tanh,
    "HardSigmoid": _hard_sigmoid,
    "Elu": _elu,
    "Softsign": _softsign,
    "Softplus": _softplus,
}
