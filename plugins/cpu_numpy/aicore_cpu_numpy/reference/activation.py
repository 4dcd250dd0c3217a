"""Activation functions: each is its ONNX formula, written so that no exponential overflows and NaN passes through."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from aicore.ir import Op
from aicore.kernels import Kernel, kernel
from aicore.ops import activation as ops
from aicore_cpu_numpy.erf import erf
from aicore_cpu_numpy.reference._precision import Array, widen
from aicore_cpu_numpy.reference.cast import convert

OpT = TypeVar("OpT", bound=Op)


def activation(cls: type[OpT]) -> Callable[[Callable[[OpT, Array], Any]], Kernel]:
    """Make a kernel of a formula: narrow floats are computed in float32, and the result gets x's type."""

    def wrap(formula: Callable[[OpT, Array], Any]) -> Kernel:
        def compute(op: OpT, x: Array) -> Array:
            result: Array = formula(op, widen(x)).astype(x.dtype, copy=False)
            return result

        return kernel(cls, device="cpu")(compute)

    return wrap


@activation(ops.Relu)
def relu(op: ops.Relu, x: Array) -> Any:
    return np.maximum(x, 0)


@kernel(ops.Clip, device="cpu")
def clip(op: ops.Clip, x: Array, low: Array | None = None, high: Array | None = None) -> Any:
    low = low if op.min is None else np.asarray(op.min, x.dtype)
    high = high if op.max is None else np.asarray(op.max, x.dtype)
    y = widen(x)
    if low is not None:
        y = np.maximum(y, widen(low))
    if high is not None:
        y = np.minimum(y, widen(high))
    return y.astype(x.dtype)


@activation(ops.LeakyRelu)
def leaky_relu(op: ops.LeakyRelu, x: Array) -> Any:
    return np.where(x < 0, op.alpha * x, x)


@kernel(ops.PRelu, device="cpu")
def prelu(op: ops.PRelu, x: Array, slope: Array) -> Any:
    wide = widen(x)
    return np.where(wide < 0, widen(slope) * wide, wide).astype(x.dtype, copy=False)


@activation(ops.Elu)
def elu(op: ops.Elu, x: Array) -> Any:
    return np.where(x < 0, op.alpha * np.expm1(x), x)


@activation(ops.Selu)
def selu(op: ops.Selu, x: Array) -> Any:
    return op.gamma * np.where(x <= 0, op.alpha * np.expm1(x), x)


@activation(ops.Celu)
def celu(op: ops.Celu, x: Array) -> Any:
    return np.maximum(0, x) + np.minimum(0, op.alpha * np.expm1(x / op.alpha))


@activation(ops.Gelu)
def gelu(op: ops.Gelu, x: Array) -> Any:
    if op.approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


@activation(ops.Sigmoid)
def sigmoid(op: ops.Sigmoid, x: Array) -> Any:
    return logistic(x)


def logistic(x: Array) -> Any:
    """1 / (1 + exp(-x)), with the exponential of a negative number whatever the sign of x."""
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, decay) / (1 + decay)


@activation(ops.HardSigmoid)
def hard_sigmoid(op: ops.HardSigmoid, x: Array) -> Any:
    return np.maximum(0, np.minimum(1, op.alpha * x + op.beta))


@activation(ops.HardSwish)
def hard_swish(op: ops.HardSwish, x: Array) -> Any:
    return x * np.maximum(0, np.minimum(1, x / 6 + 0.5))


@activation(ops.Swish)
def swish(op: ops.Swish, x: Array) -> Any:
    return x * logistic(op.alpha * x)


@activation(ops.Mish)
def mish(op: ops.Mish, x: Array) -> Any:
    return x * np.tanh(np.logaddexp(0, x))


@activation(ops.Softplus)
def softplus(op: ops.Softplus, x: Array) -> Any:
    return np.logaddexp(0, x)


@activation(ops.Softsign)
def softsign(op: ops.Softsign, x: Array) -> Any:
    return x / (1 + np.abs(x))


@activation(ops.Tanh)
def tanh(op: ops.Tanh, x: Array) -> Any:
    return np.tanh(x)


@activation(ops.ThresholdedRelu)
def thresholded_relu(op: ops.ThresholdedRelu, x: Array) -> Any:
    return np.where(x <= op.alpha, 0, x)


@kernel(ops.Shrink, device="cpu")
def shrink(op: ops.Shrink, x: Array) -> Any:
    if x.dtype.kind in "iu":
        return convert(_shrunk(op, x.astype(np.float64)), x.dtype.name)
    return _shrunk(op, widen(x)).astype(x.dtype, copy=False)


def _shrunk(op: ops.Shrink, x: Array) -> Any:
    inner = np.where(np.isnan(x), x, 0)
    return np.where(x < -op.lambd, x + op.bias, np.where(x > op.lambd, x - op.bias, inner))


KERNELS: tuple[Kernel, ...] = (
    relu,
    clip,
    leaky_relu,
    prelu,
    elu,
    selu,
    celu,
    gelu,
    sigmoid,
    hard_sigmoid,
    hard_swish,
    swish,
    mish,
    softplus,
    softsign,
    tanh,
    thresholded_relu,
    shrink,
)
