"""Losses that are worth a kernel: those of classes, with the softmax inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from aicore.errors import UnsupportedError
from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim, Shape
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops._pointwise import Array, floats
from aicore.ops.base import ensure, need_dtype, normalize_axis, same_dim, same_dtype, shape_text

INDICES = frozenset({"int32", "int64"})


@op_class
class _ClassLoss(Op):
    """axis: that of the classes. label_smoothing: how much of the target is spread over all classes, 0 to 1.

    ignore_index: rows with this class index count for nothing.
    """

    axis: int = -1
    label_smoothing: float = 0.0
    ignore_index: int | None = None

    flops: ClassVar[int] = 8

    def resolve(self, logits: Value, *others: Value) -> Op:
        return self if logits.rank is None else replace(self, axis=normalize_axis(self.axis, logits.rank))

    def row_shape(self, logits: Value, target: Value) -> Shape | None:
        """The shape of the loss: the logits' without the axis. Raises InferenceError for operands that do not fit."""
        need_dtype(logits, FLOATS)
        ensure(0 <= self.label_smoothing <= 1, f"label_smoothing {self.label_smoothing} is not between 0 and 1")
        has_indices = target.dtype in INDICES
        if not has_indices:
            same_dtype(logits, target)
            ensure(self.ignore_index is None, "ignore_index is for targets that are indices")
        if logits.shape is None:
            return target.shape if has_indices else None
        axis = normalize_axis(self.axis, len(logits.shape))
        rows = (*logits.shape[:axis], *logits.shape[axis + 1 :])
        wanted = rows if has_indices else logits.shape
        found = target.shape
        fits = found is None or (len(found) == len(wanted) and all(map(same_dim, found, wanted)))
        ensure(fits, f"the target is {shape_text(found)}, wants {shape_text(wanted)}")
        return rows

    def cost(self, logits: Value, *others: Value | None) -> tuple[Dim, Dim]:
        return logits.type.size * self.flops, moved_bytes(self.infer(logits, *others), (logits, *others))

    def smoothed(self, op: Any, of_target: Any, of_all: Any) -> Any:
        """What belongs to the target, with what belongs to all classes alike mixed in."""
        if not self.label_smoothing:
            return of_target
        part = op.scalar(self.label_smoothing, of_target)
        return op.Add(op.Mul(of_target, op.scalar(1 - self.label_smoothing, of_target)), op.Mul(of_all, part))

    def kept(self, op: Any, target: Any, result: Any) -> Any:
        """0 in place of the results of rows that are ignored; the target has the result's rank."""
        if self.ignore_index is None:
            return result
        ignored = op.Equal(target, op.scalar(self.ignore_index, target))
        return op.Where(ignored, op.scalar(0.0, result), result)


@op_class
class SoftmaxCrossEntropy(_ClassLoss):
    """(logits, target) -> loss of each row: -sum over classes of q log(softmax(logits)).

    logits: floating point, with the classes along `axis`. target: class indices, int64 or int32, of the logits' shape
    without the axis; or probabilities q of the logits' shape and type. q is 1 at the index, and with label_smoothing s
    q (1 - s) + s / classes. An index outside of the classes is an error, but for ignore_index, whose rows give 0; where
    a target has no kernel for this op, one below 0 counts from the end instead.
    Source: torch.nn.functional.cross_entropy with reduction "none" and without weights.
    """

    def infer(self, logits: Value, target: Value) -> Types:
        return TensorType(logits.dtype, self.row_shape(logits, target))

    def decompose(self, op: Any, logits: Any, target: Any) -> Any:
        logs = op.LogSoftmax(logits, axis=self.axis)
        mean = op.ReduceMean(logs, axes=(self.axis,), keepdims=0) if self.label_smoothing else None
        if target.dtype not in INDICES:
            picked = op.ReduceSum(op.Mul(target, logs), axes=(self.axis,), keepdims=0)
            return op.Neg(self.smoothed(op, picked, mean))
        known = target
        if self.ignore_index is not None:  # it need not be a class
            known = op.Where(op.Equal(target, op.scalar(self.ignore_index, target)), op.scalar(0, target), target)
        places = op.Unsqueeze(known, axes=(self.axis,))
        picked = op.Squeeze(op.GatherElements(logs, places, axis=self.axis), axes=(self.axis,))
        return self.kept(op, target, op.Neg(self.smoothed(op, picked, mean)))

    def grad(
        self, op: Builder, inputs: Sequence[Value | None], outputs: Sequence[Value], grads: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        logits, target = inputs
        (g,) = grads
        if logits is None or target is None or g is None:
            raise UnsupportedError("SoftmaxCrossEntropy lacks an operand")
        found = op.apply(SoftmaxCrossEntropyGrad(self.axis, self.label_smoothing, self.ignore_index), logits, target, g)
        if target.dtype in INDICES:
            return found, None
        weight = op.Unsqueeze(op.Mul(g, op.scalar(self.label_smoothing - 1, g)), axes=(self.axis,))
        return found, op.Mul(op.LogSoftmax(logits, axis=self.axis), weight)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for op, logits, target, note in _cases(cls, rng):
            yield Sample(op, (logits, target), note=note)


@op_class
class SoftmaxCrossEntropyGrad(_ClassLoss):
    """(logits, target, g) -> the gradient of SoftmaxCrossEntropy by the logits: g (sum(q) softmax(logits) - q).

    g: gradient of the loss, of its shape, in the logits' type. Rows that are ignored get 0, whatever they hold.
    """

    inplace = ((0, 0),)

    def infer(self, logits: Value, target: Value, g: Value) -> Types:
        same_dtype(logits, g)
        rows = self.row_shape(logits, target)
        fits = g.shape is None or rows is None or (len(g.shape) == len(rows) and all(map(same_dim, g.shape, rows)))
        ensure(fits, f"the gradient is {shape_text(g.shape)}, wants {shape_text(rows)}")
        return logits.type

    def decompose(self, op: Any, logits: Any, target: Any, g: Any) -> Any:
        softmax = op.Softmax(logits, axis=self.axis)
        g = op.Unsqueeze(g, axes=(self.axis,))
        share = op.Reciprocal(op.CastLike(self._classes(op, logits), logits)) if self.label_smoothing else None
        if target.dtype not in INDICES:
            total = op.ReduceSum(target, axes=(self.axis,), keepdims=1)
            total = self.smoothed(op, total, op.scalar(1.0, logits))
            return op.Mul(g, op.Sub(op.Mul(softmax, total), self.smoothed(op, target, share)))
        depth = self._classes(op, logits)
        ends = op.CastLike(op.constant(np.array([0, 1], np.int64)), logits)
        q = self.smoothed(op, op.OneHot(target, depth, ends, axis=self.axis), share)
        return self.kept(op, op.Unsqueeze(target, axes=(self.axis,)), op.Mul(g, op.Sub(softmax, q)))

    def _classes(self, op: Any, logits: Any) -> Any:
        return op.Gather(op.Shape(logits), op.constant(np.array(self.axis, np.int64)))

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        for op, logits, target, note in _cases(cls, rng):
            rows = np.delete(np.array(logits.shape), op.axis)
            yield Sample(op, (logits, target, floats(rng, tuple(rows.tolist()))), note=note)


def _cases(cls: type[_ClassLoss], rng: np.random.Generator) -> Iterable[tuple[_ClassLoss, Array, Array, str]]:
    """(op, logits, target, what is special) of the loss and its gradient."""

    def indices(*shape: int, classes: int) -> Array:
        return rng.integers(0, classes, shape)

    def probabilities(*shape: int) -> Array:
        q = rng.uniform(0.1, 1, shape)
        return np.asarray(q / q.sum(-1, keepdims=True), np.float32)

    yield cls(), floats(rng, (6, 5)), indices(6, classes=5), "indices"
    yield cls(), floats(rng, (6, 5)), indices(6, classes=5).astype(np.int32), "int32 indices"
    yield cls(), floats(rng, (3, 7)), probabilities(3, 7), "probabilities"
    yield cls(), floats(rng, (2, 3, 7)), probabilities(2, 3, 7) * np.float32(0.5), "weights that are no distribution"
    yield cls(axis=1), floats(rng, (2, 5, 3, 4)), indices(2, 3, 4, classes=5), "classes on axis 1"
    yield cls(axis=1), floats(rng, (2, 5, 3)), probabilities(2, 3, 5).transpose(0, 2, 1).copy(), "axis 1, probabilities"
    yield cls(axis=0, label_smoothing=0.2), floats(rng, (5, 3)), indices(3, classes=5), "axis 0, smoothed"
    yield cls(label_smoothing=0.1), floats(rng, (4, 9)), indices(4, classes=9), "smoothed indices"
    yield cls(label_smoothing=0.3), floats(rng, (4, 9)), probabilities(4, 9), "smoothed probabilities"
    yield cls(ignore_index=-100), floats(rng, (4, 5)), np.array([1, -100, 4, -100]), "rows that are ignored"
    yield cls(ignore_index=2, label_smoothing=0.1), floats(rng, (4, 5)), np.array([1, 2, 4, 2]), "an ignored class"
    yield cls(), floats(rng, (5,)), np.array(3), "one row"
    yield cls(), floats(rng, (3, 2049)), indices(3, classes=2049), "long rows"
    yield cls(label_smoothing=0.1), floats(rng, (2, 40007)), indices(2, classes=40007), "very long rows"
    yield cls(), floats(rng, (4, 1)), np.zeros(4, np.int64), "one class"
    yield cls(), floats(rng, (0, 5)), np.zeros(0, np.int64), "zero size"
    yield cls(), floats(rng, (3, 6)) * np.float32(1000), indices(3, classes=6), "large: exp must not overflow"
    special = np.array([[np.nan, 0, 1], [-np.inf, 0, 1], [np.inf, 0, 1], [0, 0, 0]], np.float32)
    yield cls(), special, np.array([1, 2, 1, 0]), "NaN, infinities, ties"
    yield cls(ignore_index=0), special, np.array([0, 2, 0, 1]), "NaN in a row that is ignored"
