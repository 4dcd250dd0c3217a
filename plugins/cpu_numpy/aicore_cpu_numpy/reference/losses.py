"""The loss of classes and its gradient, written out as the formulas in aicore/ops/losses.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.losses import INDICES, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad
from aicore_cpu_numpy.reference._precision import Array, widen


@kernel(SoftmaxCrossEntropy, device="cpu")
def softmax_cross_entropy(op: SoftmaxCrossEntropy, logits: Array, target: Array) -> Any:
    q, counts = _distribution(op, logits, target)
    shifted = _below_zero(op, logits)
    logs = shifted - np.log(np.sum(np.exp(shifted), axis=op.axis, keepdims=True))
    if target.dtype.name in INDICES:
        logs = np.where(q == 0, 0, logs)  # a class of probability 0 that is not the target must not give NaN
    loss = -np.sum(q * logs, axis=op.axis)
    return np.where(counts, loss, 0).astype(logits.dtype)


@kernel(SoftmaxCrossEntropyGrad, device="cpu")
def softmax_cross_entropy_grad(op: SoftmaxCrossEntropyGrad, logits: Array, target: Array, g: Array) -> Any:
    q, counts = _distribution(op, logits, target)
    powers = np.exp(_below_zero(op, logits))
    softmax = powers / np.sum(powers, axis=op.axis, keepdims=True)
    change = softmax * np.sum(q, axis=op.axis, keepdims=True) - q
    found = np.expand_dims(widen(g), op.axis) * change
    return np.where(np.expand_dims(counts, op.axis), found, 0).astype(logits.dtype)


def _distribution(op: Any, logits: Array, target: Array) -> tuple[Any, Any]:
    """(probabilities of the classes, which rows count)."""
    wide = widen(logits)
    classes = logits.shape[op.axis]
    if target.dtype.name not in INDICES:
        q, counts = widen(target), np.ones(np.delete(logits.shape, op.axis), bool)
    else:
        counts = np.ones(target.shape, bool) if op.ignore_index is None else target != op.ignore_index
        check_classes(target[counts], classes)
        along = [-1 if i == op.axis % logits.ndim else 1 for i in range(logits.ndim)]
        places = np.arange(classes).reshape(along)
        q = np.where(np.expand_dims(target, op.axis) == places, wide.dtype.type(1), wide.dtype.type(0))
    if op.label_smoothing:
        q = q * wide.dtype.type(1 - op.label_smoothing) + wide.dtype.type(op.label_smoothing / max(classes, 1))
    return q, counts


def check_classes(indices: Array, classes: int) -> None:
    """Raise ExecutionError for an index that is no class."""
    wrong = indices[(indices < 0) | (indices >= classes)]
    if wrong.size:
        raise ExecutionError(f"the target has class {wrong.flat[0]}, and there are {classes} classes")


def _below_zero(op: Any, logits: Array) -> Any:
    """The logits less the largest of the row, so that no exponential overflows."""
    wide = widen(logits)
    return wide - np.max(wide, axis=op.axis, keepdims=True, initial=-np.inf)


KERNELS: tuple[Kernel, ...] = (softmax_cross_entropy, softmax_cross_entropy_grad)
