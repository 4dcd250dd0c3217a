"""Losses: frozen configurations that build one number for each sample, which training averages over the batch.

The first axis is the batch. A sample's loss is the mean over all that is left of its elements, so that the mean over
the batch is the mean over everything, as in Keras and with reduction "mean" in PyTorch: for sequences (batch, time,
classes), over batch and time. `reduction="sum"` adds a sample's elements up instead.
Losses of classes sum over `axis`, the last one unless told otherwise; images as in PyTorch, (batch, classes, height,
width), want axis=1. Where predictions may be logits or probabilities, `from_logits` is True by default, unlike in
Keras: the softmax or sigmoid is then part of the loss, which is exact for large logits, and the model ends without one.
Predictions are floating point. Targets are converted to their type, unless they are class indices; predictions
(batch, 1) take targets (batch,) too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from aicore.errors import ConfigError
from aicore.ir import FLOATS, Builder, Value
from aicore.ops.losses import INDICES

Reduction: TypeAlias = Literal["mean", "sum"]

EPSILON = 1e-7
"""Probabilities are kept this far from 0 and 1 before a logarithm is taken, as in Keras."""
LEAST_NORM = 1e-12
"""The least sum of squares that a vector is divided by the root of."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Base of all. Raises ConfigError for settings, and for operands, that do not fit."""

    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        self.ensure(self.reduction in ("mean", "sum"), f"reduction {self.reduction!r} is neither 'mean' nor 'sum'")

    def ensure(self, condition: bool, message: str) -> None:
        if not condition:
            raise ConfigError(f"{type(self).__name__}: {message}")

    def build(self, op: Builder, prediction: Value, target: Value) -> Value:
        """The loss of each sample: (batch,), in the predictions' type."""
        self.ensure(prediction.dtype in FLOATS, f"predictions are {prediction.dtype}, want floating point")
        known = prediction.shape is not None and target.shape is not None
        self.ensure(known and bool(prediction.shape), f"predictions are {prediction.type}, want (batch, ...)")
        return self.per_sample(op, self.elements(op, prediction, target))

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        """The loss of each element, or of each position where classes are summed over."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is built")

    def per_sample(self, op: Builder, elements: Value) -> Value:
        """What `reduction` says, over all axes but the first."""
        axes = tuple(range(1, len(elements.shape or ())))
        if not axes:
            return elements
        reduce = op.ReduceMean if self.reduction == "mean" else op.ReduceSum
        return reduce(elements, axes=axes, keepdims=0)  # type: ignore[no-any-return]

    def matching(self, op: Builder, prediction: Value, target: Value) -> Value:
        """The target in the predictions' type and shape; a last axis of 1 is added. Nothing else is broadcast."""
        target = target if target.dtype == prediction.dtype else op.Cast(target, to=prediction.dtype)
        wanted, found = prediction.shape or (), target.shape or ()
        if len(found) == len(wanted) - 1 and wanted[-1] == 1:
            target = op.Unsqueeze(target, axes=(-1,))
            found = (*found, 1)
        numbers = [(a, b) for a, b in zip(wanted, found, strict=False) if isinstance(a, int) and isinstance(b, int)]
        fits = len(wanted) == len(found) and all(a == b for a, b in numbers)
        self.ensure(fits, f"targets are {target.type}, and predictions {prediction.type}: the shapes differ")
        may_broadcast = any(1 in (a, b) and a != b for a, b in zip(wanted, found, strict=True))
        return op.Reshape(target, op.Shape(prediction)) if may_broadcast else target  # which fails for another size


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """(prediction - target)^2. PyTorch: MSELoss."""

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        difference = op.Sub(prediction, self.matching(op, prediction, target))
        return op.Mul(difference, difference)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class MeanAbsoluteError(Loss):
    """|prediction - target|, with derivative 0 where they are equal. PyTorch: L1Loss."""

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        return op.Abs(op.Sub(prediction, self.matching(op, prediction, target)))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Huber(Loss):
    """Of e = prediction - target: e^2 / 2 up to |e| = delta, and delta (|e| - delta / 2) beyond. PyTorch: HuberLoss."""

    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensure(self.delta > 0, f"delta {self.delta} is not above 0")

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        size = op.Abs(op.Sub(prediction, self.matching(op, prediction, target)))
        near = op.Min(size, op.scalar(self.delta, size))
        return op.Mul(near, op.Sub(size, op.Mul(near, op.scalar(0.5, size))))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class BinaryCrossentropy(Loss):
    """-z log(p) - (1 - z) log(1 - p), for targets z from 0 to 1. PyTorch: BCEWithLogitsLoss, or BCELoss.

    p is the sigmoid of a logit x, and then z softplus(-x) + (1 - z) softplus(x) is what is computed: it neither
    overflows nor cancels. label_smoothing s takes z to z (1 - s) + s / 2.
    """

    from_logits: bool = True
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensure(0 <= self.label_smoothing <= 1, f"label_smoothing {self.label_smoothing} is not between 0 and 1")

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        z = self.matching(op, prediction, target)
        if self.label_smoothing:
            smaller = op.Mul(z, op.scalar(1 - self.label_smoothing, z))
            z = op.Add(smaller, op.scalar(self.label_smoothing / 2, z))
        rest = op.Sub(op.scalar(1.0, z), z)
        if self.from_logits:
            missed, wrong = op.Softplus(op.Neg(prediction)), op.Softplus(prediction)
        else:
            p = _probability(op, prediction)
            missed, wrong = op.Neg(op.Log(p)), op.Neg(op.Log(op.Sub(op.scalar(1.0, p), p)))
        return op.Add(op.Mul(z, missed), op.Mul(rest, wrong))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Classes(Loss):
    """axis: that of the classes."""

    from_logits: bool = True
    label_smoothing: float = 0.0
    axis: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ensure(0 <= self.label_smoothing <= 1, f"label_smoothing {self.label_smoothing} is not between 0 and 1")

    def checked_axis(self, prediction: Value) -> int:
        """The axis counted from the front; that of the batch is none for classes."""
        rank = len(prediction.shape or ())
        fits = -rank <= self.axis < rank and self.axis % rank > 0
        self.ensure(fits, f"predictions {prediction.type} have no axis {self.axis} for classes beside the batch")
        return self.axis % rank


@dataclass(frozen=True)
class CategoricalCrossentropy(_Classes):
    """-sum over classes of q log(p), for targets q: probabilities or one-hot rows. PyTorch: CrossEntropyLoss.

    p is the softmax of the logits. label_smoothing s takes q to q (1 - s) + s / classes.
    """

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        axis, q = self.checked_axis(prediction), self.matching(op, prediction, target)
        if self.from_logits:
            return op.SoftmaxCrossEntropy(prediction, q, axis=axis, label_smoothing=self.label_smoothing)  # type: ignore[no-any-return]
        logs = op.Log(_probability(op, prediction))
        picked = op.ReduceSum(op.Mul(q, logs), axes=(axis,), keepdims=0)
        return op.Neg(_smoothed(op, picked, logs, axis, self.label_smoothing))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SparseCategoricalCrossentropy(_Classes):
    """-log(p of the target's class), for targets that are class indices. PyTorch: CrossEntropyLoss, or NLLLoss.

    Targets are integers of the predictions' shape without `axis`, or with 1 there. Positions whose index is
    `ignore_index` have no loss, and a sample's mean is over its other positions; 0 if there is none. (PyTorch's mean is
    over all positions of the batch that count.)
    """

    ignore_index: int | None = None

    def build(self, op: Builder, prediction: Value, target: Value) -> Value:
        loss = super().build(op, prediction, target)
        rank = len(prediction.shape or ())
        if self.ignore_index is None or self.reduction == "sum" or rank < 3:
            return loss
        target = self._indices(op, prediction, target)
        counted = op.Cast(op.Not(op.Equal(target, op.scalar(self.ignore_index, target))), to=prediction.dtype)
        share = op.ReduceMean(counted, axes=tuple(range(1, rank - 1)), keepdims=0)
        least = op.Where(op.Equal(share, op.scalar(0.0, share)), op.scalar(1.0, share), share)
        return op.Div(loss, least)  # type: ignore[no-any-return]

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        axis, target = self.checked_axis(prediction), self._indices(op, prediction, target)
        smoothing, ignored = self.label_smoothing, self.ignore_index
        if self.from_logits:
            fields = {"axis": axis, "label_smoothing": smoothing, "ignore_index": ignored}
            return op.SoftmaxCrossEntropy(prediction, target, **fields)  # type: ignore[no-any-return]
        is_ignored = None if ignored is None else op.Equal(target, op.scalar(ignored, target))
        known = target if is_ignored is None else op.Where(is_ignored, op.scalar(0, target), target)
        logs = op.Log(_probability(op, prediction))
        places = op.Unsqueeze(known, axes=(axis,))
        picked = op.Squeeze(op.GatherElements(logs, places, axis=axis), axes=(axis,))
        loss = op.Neg(_smoothed(op, picked, logs, axis, smoothing))
        return loss if is_ignored is None else op.Where(is_ignored, op.scalar(0.0, loss), loss)  # type: ignore[no-any-return]

    def _indices(self, op: Builder, prediction: Value, target: Value) -> Value:
        axis, rank = self.checked_axis(prediction), len(prediction.shape or ())
        is_float = target.dtype in FLOATS
        self.ensure(not is_float, f"targets are {target.dtype}, want class indices; see CategoricalCrossentropy")
        target = target if target.dtype in INDICES else op.Cast(target, to="int64")
        shape = target.shape or ()
        if len(shape) == rank and shape[axis] == 1:
            return op.Squeeze(target, axes=(axis,))  # type: ignore[no-any-return]
        fits = len(shape) == rank - 1
        self.ensure(
            fits, f"targets are {target.type}, want the shape of predictions {prediction.type} without axis {axis}"
        )
        return target


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - z prediction), where z is 1 for targets above 0 and else -1: targets may be 0 and 1, or -1 and 1."""

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        target = self.matching(op, prediction, target)
        z = op.Where(op.Greater(target, op.scalar(0.0, target)), op.scalar(1.0, target), op.scalar(-1.0, target))
        return op.Relu(op.Sub(op.scalar(1.0, z), op.Mul(z, prediction)))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class CategoricalHinge(Loss):
    """max(0, 1 + largest of (1 - q) prediction - sum of q prediction), over classes on the last axis; q one-hot rows.

    As in Keras: where all other predictions are negative, the largest is the 0 that stands for the right class.
    """

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        q = self.matching(op, prediction, target)
        right = op.ReduceSum(op.Mul(q, prediction), axes=(-1,), keepdims=0)
        others = op.ReduceMax(op.Mul(op.Sub(op.scalar(1.0, q), q), prediction), axes=(-1,), keepdims=0)
        return op.Relu(op.Add(op.Sub(others, right), op.scalar(1.0, q)))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class KLDivergence(Loss):
    """sum over classes of q (log(q) - log(p)), for targets q; a q of 0 adds nothing. Classes are on the last axis.

    p is the softmax of the logits. PyTorch: KLDivLoss of log(p), with reduction "batchmean" for (batch, classes).
    """

    from_logits: bool = True

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        q = self.matching(op, prediction, target)
        logs = op.LogSoftmax(prediction, axis=-1) if self.from_logits else op.Log(_probability(op, prediction))
        present = op.Where(op.Equal(q, op.scalar(0.0, q)), op.scalar(1.0, q), q)
        return op.ReduceSum(op.Mul(q, op.Sub(op.Log(present), logs)), axes=(-1,), keepdims=0)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class CosineSimilarity(Loss):
    """Less the cosine of the angle between prediction and target along the last axis, so that -1 is best. As in Keras.

    A vector of zeros gives 0, and derivative 0 with it.
    """

    def elements(self, op: Builder, prediction: Value, target: Value) -> Value:
        target = self.matching(op, prediction, target)
        products = op.ReduceSum(op.Mul(_unit(op, prediction), _unit(op, target)), axes=(-1,), keepdims=0)
        return op.Neg(products)  # type: ignore[no-any-return]


LOSSES: Mapping[str, Loss] = {
    "mse": MeanSquaredError(),
    "mean_squared_error": MeanSquaredError(),
    "mae": MeanAbsoluteError(),
    "mean_absolute_error": MeanAbsoluteError(),
    "huber": Huber(),
    "bce": BinaryCrossentropy(),
    "binary_crossentropy": BinaryCrossentropy(),
    "cce": CategoricalCrossentropy(),
    "categorical_crossentropy": CategoricalCrossentropy(),
    "cross_entropy": SparseCategoricalCrossentropy(),
    "sparse_categorical_crossentropy": SparseCategoricalCrossentropy(),
    "hinge": Hinge(),
    "categorical_hinge": CategoricalHinge(),
    "kl_divergence": KLDivergence(),
    "cosine_similarity": CosineSimilarity(),
}
"""Losses by name, with default settings: those of classes take logits. Capitals do not matter."""


def loss_of(found: Loss | str) -> Loss:
    """The loss of a name, or itself. Raises ConfigError for a name that there is not."""
    if isinstance(found, Loss):
        return found
    if not isinstance(found, str) or found.lower() not in LOSSES:
        raise ConfigError(f"loss {found!r} is none of {', '.join(LOSSES)}, and no Loss")
    return LOSSES[found.lower()]


def _probability(op: Builder, x: Value) -> Value:
    return op.Clip(x, op.scalar(EPSILON, x), op.scalar(1 - EPSILON, x))  # type: ignore[no-any-return]


def _smoothed(op: Builder, picked: Value, logs: Value, axis: int, smoothing: float) -> Any:
    if not smoothing:
        return picked
    mean = op.ReduceMean(logs, axes=(axis,), keepdims=0)
    return op.Add(op.Mul(picked, op.scalar(1 - smoothing, picked)), op.Mul(mean, op.scalar(smoothing, mean)))


def _unit(op: Builder, x: Value) -> Value:
    squares = op.ReduceSumSquare(x, axes=(-1,), keepdims=1)
    return op.Div(x, op.Sqrt(op.Max(squares, op.scalar(LEAST_NORM, x))))  # type: ignore[no-any-return]
