"""Softmax and its kin, along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.softmax import Hardmax, LogSoftmax, Softmax
from aicore_cpu_numpy.reference._precision import Array, widen


@kernel(Softmax, device="cpu")
def softmax(op: Softmax, x: Array) -> Any:
    exponentials = np.exp(_below_zero(x, op.axis))
    return (exponentials / np.sum(exponentials, axis=op.axis, keepdims=True)).astype(x.dtype, copy=False)


@kernel(LogSoftmax, device="cpu")
def log_softmax(op: LogSoftmax, x: Array) -> Any:
    shifted = _below_zero(x, op.axis)
    return (shifted - np.log(np.sum(np.exp(shifted), axis=op.axis, keepdims=True))).astype(x.dtype, copy=False)


@kernel(Hardmax, device="cpu")
def hardmax(op: Hardmax, x: Array) -> Any:
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.argmax(widen(x), axis=op.axis, keepdims=True), 1, axis=op.axis)
    return y


def _below_zero(x: Array, axis: int) -> Any:
    """x less its largest element along the axis, so that no exponential overflows."""
    wide = widen(x)
    return wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf)


KERNELS: tuple[Kernel, ...] = (softmax, log_softmax, hardmax)
