"""What is reported beside the loss, computed in the same graph: one number for each sample, averaged over the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from aicore.errors import ConfigError
from aicore.ir import FLOATS, Builder, Value
from aicore.ops.base import same_dim
from aicore.records import dataclass


class Metric:
    """A frozen dataclass with a name and a way to build it."""

    name: str = ""

    def build(self, op: Builder, prediction: Value, target: Value) -> Value:
        """One float32 number for each sample, of shape (batch,)."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is built")


@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of right classes. For sequences, of right classes among all steps of a sample.

    Predictions (batch, ..., classes) with more than one class: the largest is the class; targets are classes
    (batch, ...) or (batch, ..., 1), or probabilities or one-hot rows of the predictions' shape. Of one class: it is
    chosen above `threshold`, and targets above 0.5 say so.
    threshold: None means 0.5, or 0 where the loss says that predictions are logits.
    axis: that of the classes; None means the last one, or that of the loss.
    """

    threshold: float | None = None
    axis: int | None = None
    name: str = "accuracy"

    def build(self, op: Builder, prediction: Value, target: Value) -> Value:
        if prediction.shape is None or not prediction.shape:
            raise ConfigError(f"accuracy: predictions are {prediction.type}, want (batch, ..., classes)")
        axis = -1 if self.axis is None else self.axis
        if not -len(prediction.shape) <= axis < len(prediction.shape):
            raise ConfigError(f"accuracy: predictions are {prediction.type}, which have no axis {axis} of classes")
        if len(prediction.shape) == 1 or prediction.shape[axis] == 1:
            limit = 0.5 if self.threshold is None else self.threshold
            wanted = target if target.dtype in FLOATS else op.Cast(target, to=prediction.dtype)
            chosen = op.Greater(prediction, op.scalar(limit, prediction))
            right = op.Equal(chosen, op.Greater(_like(op, wanted, prediction), op.scalar(0.5, wanted)))
        else:
            right = op.Equal(op.ArgMax(prediction, axis=axis, keepdims=0), _classes(op, target, prediction, axis))
        return _mean_of_sample(op, op.Cast(right, to="float32"))


@dataclass(frozen=True)
class MeanAbsoluteError(Metric):
    """The mean of |prediction - target|."""

    name: str = "mean_absolute_error"

    def build(self, op: Builder, prediction: Value, target: Value) -> Value:
        return _mean_of_sample(op, op.Abs(op.Sub(prediction, _like(op, target, prediction))))


@dataclass(frozen=True)
class MeanSquaredError(Metric):
    """The mean of (prediction - target)²."""

    name: str = "mean_squared_error"

    def build(self, op: Builder, prediction: Value, target: Value) -> Value:
        difference = op.Sub(prediction, _like(op, target, prediction))
        return _mean_of_sample(op, op.Mul(difference, difference))


@dataclass(frozen=True)
class TopKAccuracy(Metric):
    """The share of samples whose class is among the k largest predictions (batch, ..., classes).

    Targets as for Accuracy.
    """

    k: int = 5
    name: str = "top_k_accuracy"

    def build(self, op: Builder, prediction: Value, target: Value) -> Value:
        _, classes = op.TopK(prediction, k=self.k, axis=-1)
        wanted = op.Unsqueeze(_classes(op, target, prediction, -1), axes=(-1,))
        hit = op.Cast(op.Equal(classes, wanted), to="float32")
        return _mean_of_sample(op, op.ReduceMax(hit, axes=(-1,), keepdims=0))


_NAMED: Mapping[str, type[Metric]] = {
    "accuracy": Accuracy,
    "acc": Accuracy,
    "mean_absolute_error": MeanAbsoluteError,
    "mae": MeanAbsoluteError,
    "mean_squared_error": MeanSquaredError,
    "mse": MeanSquaredError,
    "top_k_accuracy": TopKAccuracy,
}

MetricLike: TypeAlias = "Metric | str"


def metric_of(metric: MetricLike) -> Metric:
    """The metric of a name, or itself. Raises ConfigError, listing the names, for anything else."""
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric.lower() in _NAMED:
        return _NAMED[metric.lower()]()
    raise ConfigError(f"metric {metric!r} is none of {', '.join(_NAMED)}, and no aicore.nn.Metric")


def _classes(op: Builder, target: Value, prediction: Value, axis: int) -> Any:
    """Numbers of the target's classes, int64, of the predictions' shape without the axis of classes.

    Raises ConfigError for targets that are neither classes nor a number for each class.
    """
    found, wanted = target.shape or (), prediction.shape or ()
    told = f"targets are {target.type}, which are no classes of predictions {prediction.type}"
    if len(found) == len(wanted) and found[axis] == 1:
        target = op.Squeeze(target, axes=(axis,))
    elif len(found) == len(wanted) and same_dim(found[axis], wanted[axis]):
        target = op.ArgMax(target, axis=axis, keepdims=0)
    rest = [dim for i, dim in enumerate(wanted) if i != axis % len(wanted)]
    if target.rank != len(rest) or not all(map(same_dim, target.shape or (), rest)):
        raise ConfigError(told)
    return op.Cast(target, to="int64")


def _like(op: Builder, target: Value, prediction: Value) -> Any:
    """The target in the prediction's shape and type: a column beside a vector would be broadcast to a square."""
    cast = target if target.dtype == prediction.dtype else op.Cast(target, to=prediction.dtype)
    if target.rank != prediction.rank:
        return op.Reshape(cast, op.Shape(prediction))
    if not all(map(same_dim, target.shape or (), prediction.shape or ())):
        raise ConfigError(f"targets are {target.type}, and predictions {prediction.type}: the shapes differ")
    return cast


def _mean_of_sample(op: Builder, value: Value) -> Value:
    if value.rank is None or value.rank < 2:
        return value
    return op.ReduceMean(value, axes=tuple(range(1, value.rank)), keepdims=0)  # type: ignore[no-any-return]


def told_of(metric: Metric, loss: object) -> Metric:
    """Accuracy needs to know whether predictions are logits, and on which axis classes are: the loss says so."""
    if not isinstance(metric, Accuracy):
        return metric
    logits = metric.threshold is None and getattr(loss, "from_logits", False)
    axis = getattr(loss, "axis", None) if metric.axis is None else metric.axis
    return replace(metric, threshold=0.0 if logits else metric.threshold, axis=axis)
