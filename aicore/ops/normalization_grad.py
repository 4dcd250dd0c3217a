"""Gradients of normalisations whose statistics depend on x: one op each, since it takes sums and then a second pass.

With h = (x - mean) * inverse_deviation, and means over the elements that share a statistic,
dx = inverse_deviation * (g - mean(g) - h * mean(g * h)), where g = dy * scale. Sums are in float32 at least.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types
from aicore.ir.value import Value
from aicore.ops._pointwise import SPECIAL, floats
from aicore.ops.base import ensure, need_dtype, normalize_axis, same_dim, same_dtype, shape_text
from aicore.ops.normalization import Normalization, check_per_channel, wide_dtype


@op_class
class BatchNormalizationGrad(Normalization):
    """(x, scale, mean, inverse_deviation, dy) -> (dx, dscale, dbias) of BatchNormalization in training.

    x and dy (n, c, ...), others (c,): statistics are those of the batch, in float32 (float64 for x in float64), as
    BatchNormalization gives them with `statistics`. A vector x is one channel. dscale and dbias are as scale.
    Source: Ioffe and Szegedy, 2015.
    """

    def n_outputs(self) -> int:
        return 3

    def infer(self, x: Value, scale: Value, mean: Value, inverse_deviation: Value, dy: Value) -> Types:
        same_dtype(x, dy)
        need_dtype(x, FLOATS)
        need_dtype(scale, FLOATS)
        ensure(x.rank != 0, "x has rank 0, wants (n, c, ...)")
        _check_same_shape(x, dy)
        channels = None if x.shape is None else x.shape[1] if len(x.shape) > 1 else 1
        for parameter in (scale, mean, inverse_deviation):
            check_per_channel(parameter, channels)
        _check_statistics(x, mean, inverse_deviation)
        return x.type, scale.type, scale.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def case(x: np.ndarray, note: str) -> Sample:
            axes = tuple(axis for axis in range(x.ndim) if axis != 1) if x.ndim > 1 else (0,)
            channels = x.shape[1] if x.ndim > 1 else 1
            mean, inverse = (statistic.reshape(channels) for statistic in _statistics(x, axes))
            operands = x, floats(rng, (channels,)), mean, inverse, floats(rng, x.shape).astype(x.dtype)
            return Sample(cls(), operands, note=note)

        yield case(floats(rng, (2, 3, 4, 5)), "")
        yield case(floats(rng, (6, 3)), "no spatial dims")
        yield case(floats(rng, (7,)), "a vector is one channel")
        yield case(floats(rng, (3, 2, 7)), "one spatial dim")
        yield case(floats(rng, (2, 1, 2, 3, 2)), "three spatial dims")
        yield case(floats(rng, (2, 3, 5)).astype(np.float16), "float16, statistics in float32")
        yield case(np.concatenate([SPECIAL.reshape(1, 1, 7), floats(rng, (1, 1, 7))], 1), "NaN in one channel")
        zero = floats(rng, (3,))
        yield Sample(cls(), (floats(rng, (0, 3, 4)), zero, zero, zero, floats(rng, (0, 3, 4))), note="zero size")


@op_class
class LayerNormalizationGrad(Normalization):
    """(x, scale, mean, inverse_deviation, dy) -> (dx, dscale, dbias) of LayerNormalization.

    scale has the shape of the normalised axes of x, from `axis` to the last; the statistics are those that
    LayerNormalization gives, in float32 (float64 for x in float64). dscale and dbias are as scale.
    Source: Ba, Kiros and Hinton, 2016.
    """

    axis: int = -1

    def n_outputs(self) -> int:
        return 3

    def resolve(self, x: Value, *others: Value) -> Op:
        return self if x.rank is None else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, scale: Value, mean: Value, inverse_deviation: Value, dy: Value) -> Types:
        same_dtype(x, scale, dy)
        need_dtype(x, FLOATS)
        _check_same_shape(x, dy)
        _check_tail(self.axis, x, scale)
        _check_statistics(x, mean, inverse_deviation)
        for statistic in (mean, inverse_deviation):
            ensure(statistic.rank == x.rank, f"%{statistic.name} is {statistic.type}, wants the rank of x, {x.rank}")
        return x.type, scale.type, scale.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def case(x: np.ndarray, axis: int, note: str) -> Sample:
            scale, dy = (floats(rng, shape).astype(x.dtype) for shape in (x.shape[axis:], x.shape))
            statistics = _statistics(x, tuple(range(axis % x.ndim, x.ndim)))
            return Sample(cls(axis), (x, scale, *statistics, dy), note=note)

        yield case(floats(rng, (2, 3, 5)), -1, "")
        yield case(floats(rng, (2, 3, 5)), 1, "two axes")
        yield case(floats(rng, (6,)), 0, "a vector")
        yield case(floats(rng, (3, 70)) + 100, 1, "a large mean")
        yield case(floats(rng, (3, 5)).astype(np.float16), 1, "float16, statistics in float32")
        yield case(np.stack([SPECIAL, floats(rng, (7,))]), 1, "NaN in one row")
        one = floats(rng, (0, 1))
        yield Sample(cls(), (floats(rng, (0, 4)), floats(rng, (4,)), one, one, floats(rng, (0, 4))), note="zero size")


@op_class
class RMSNormalizationGrad(Normalization):
    """(x, scale, dy) -> (dx, dscale) of RMSNormalization, with r = 1 / sqrt(mean(x * x) + epsilon) and h = x * r:

    dx = r * (g - h * mean(g * h)). scale has the shape of the normalised axes of x, from `axis` to the last; dy has the
    element type of scale, and dscale is as scale. Source: Zhang and Sennrich, 2019.
    """

    axis: int = -1
    epsilon: float = 1e-5

    def n_outputs(self) -> int:
        return 2

    def resolve(self, x: Value, *others: Value) -> Op:
        return self if x.rank is None else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, scale: Value, dy: Value) -> Types:
        same_dtype(scale, dy)
        need_dtype(x, FLOATS)
        need_dtype(scale, FLOATS)
        _check_same_shape(x, dy)
        _check_tail(self.axis, x, scale)
        return x.type, scale.type

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def case(x: np.ndarray, note: str, **fields: float) -> Sample:
            op = cls(**fields)  # type: ignore[arg-type]
            return Sample(op, (x, floats(rng, x.shape[op.axis :]), floats(rng, x.shape)), note=note)

        yield case(floats(rng, (2, 3, 5)), "")
        yield case(floats(rng, (2, 3, 5)), "two axes", axis=-2, epsilon=0.1)
        yield case(floats(rng, (3, 70)), "longer rows", axis=1)
        yield case(np.stack([SPECIAL, floats(rng, (7,))]), "NaN in one row")
        yield case(floats(rng, (0, 4)), "zero size")


def _statistics(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and inverse deviation in float32, with epsilon 0.01."""
    wide = x.astype(np.float32)
    with np.errstate(all="ignore"):
        deviation = np.sqrt(wide.var(axes, keepdims=True) + np.float32(0.01))
        return wide.mean(axes, keepdims=True), 1 / deviation


def _check_same_shape(x: Value, dy: Value) -> None:
    if x.shape is None or dy.shape is None:
        return
    fits = len(x.shape) == len(dy.shape) and all(map(same_dim, x.shape, dy.shape))
    ensure(fits, f"%{dy.name} has shape {shape_text(dy.shape)}, x has {shape_text(x.shape)}")


def _check_tail(axis: int, x: Value, scale: Value) -> None:
    if x.shape is None or scale.shape is None:
        return
    tail = x.shape[normalize_axis(axis, len(x.shape)) :]
    fits = len(tail) == len(scale.shape) and all(map(same_dim, tail, scale.shape))
    ensure(fits, f"%{scale.name} has shape {shape_text(scale.shape)}, wants that of the axes, {shape_text(tail)}")


def _check_statistics(x: Value, *statistics: Value) -> None:
    for statistic in statistics:
        need_dtype(statistic, (wide_dtype(x.dtype),))
