"""The losses of LOSS records."""

from __future__ import annotations

from aicore.errors import ModelError
from aicore.ir import Builder, Node, Value
from aicore.ops.activation import Sigmoid
from aicore.ops.softmax import Softmax

EPSILON = 1e-7
"""Probabilities are kept so far from 0 and 1 before their logarithm is taken."""

KINDS = ("mse", "bce", "cce")


def loss(op: Builder, place: str, kind: str, prediction: Value, target: Value, from_logits: bool) -> Value:
    """A scalar: the mean over the batch, and over the elements of each sample for mse and bce.

    mse: (y - t)^2. bce: -(t log y + (1 - t) log(1 - y)). cce: -sum over the last axis of t log y.
    The predictions of bce and cce are probabilities, or with `from_logits` what a sigmoid or softmax would make them.
    Where a SIGMOID or SOFTMAX record made them, the loss is computed from its operand: the same number without its
    overflow, whose gradient is the difference of prediction and target.
    Raises ModelError for another kind, or a target of another shape.
    """
    if kind not in KINDS:
        raise ModelError(f"{place}: loss_type is {kind!r}, wants one of {', '.join(KINDS)}")
    _check(place, prediction, target)
    if kind == "mse":
        difference = op.Sub(prediction, target)
        return op.ReduceMean(op.Mul(difference, difference), keepdims=0)  # type: ignore[no-any-return]
    if kind == "bce":
        return op.ReduceMean(_binary(op, prediction, target, from_logits), keepdims=0)  # type: ignore[no-any-return]
    return op.ReduceMean(_categorical(op, prediction, target, from_logits), keepdims=0)  # type: ignore[no-any-return]


def _binary(op: Builder, prediction: Value, target: Value, from_logits: bool) -> Value:
    node = _maker(op, prediction, Sigmoid)
    logits = prediction if from_logits else node and node.inputs[0]
    if logits is not None:
        return op.Sub(op.Softplus(logits), op.Mul(logits, target))  # type: ignore[no-any-return]
    y, one = _kept_apart(op, prediction), op.scalar(1.0, prediction)
    hit = op.Mul(target, op.Log(y))
    miss = op.Mul(op.Sub(one, target), op.Log(op.Sub(one, y)))
    return op.Neg(op.Add(hit, miss))  # type: ignore[no-any-return]


def _categorical(op: Builder, prediction: Value, target: Value, from_logits: bool) -> Value:
    node = _maker(op, prediction, Softmax)
    is_last = node is not None and getattr(node.op, "axis", None) == (prediction.rank or 0) - 1
    logits = prediction if from_logits else node.inputs[0] if node is not None and is_last else None
    if logits is not None:
        return op.SoftmaxCrossEntropy(logits, target, axis=-1)  # type: ignore[no-any-return]
    logs = op.Log(_kept_apart(op, prediction))
    return op.Neg(op.ReduceSum(op.Mul(target, logs), axes=(-1,), keepdims=0))  # type: ignore[no-any-return]


def _maker(op: Builder, value: Value, kind: type) -> Node | None:
    """The node of that kind which made the value."""
    return next((node for node in op.nodes if value in node.outputs and isinstance(node.op, kind)), None)


def _kept_apart(op: Builder, probability: Value) -> Value:
    return op.Clip(probability, min=EPSILON, max=1 - EPSILON)  # type: ignore[no-any-return]


def _check(place: str, prediction: Value, target: Value) -> None:
    if prediction.dtype != target.dtype:
        raise ModelError(f"{place}: the prediction is {prediction.type} and the target {target.type}; wants one type")
    if prediction.shape is None or target.shape is None:
        return
    same = len(prediction.shape) == len(target.shape)
    pairs = zip(prediction.shape, target.shape, strict=False)
    if not same or any(a != b and isinstance(a, int) and isinstance(b, int) for a, b in pairs):
        raise ModelError(f"{place}: the prediction is {prediction.type} and the target {target.type}; wants one shape")
