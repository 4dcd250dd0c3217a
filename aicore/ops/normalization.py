"""Normalisation layers: subtract a mean, divide by a deviation, scale and shift.

Floating point only. Statistics and formula are computed in float32 at least, also for float16 and bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from aicore.ir.attributes import op_class
from aicore.ir.builder import Builder
from aicore.ir.dims import Dim
from aicore.ir.dtypes import FLOATS
from aicore.ir.op import Op, Sample, Types, as_tuple, moved_bytes
from aicore.ir.types import TensorType
from aicore.ir.value import Value
from aicore.ops import _normalization_gradients as gradient
from aicore.ops._pointwise import SPECIAL, floats
from aicore.ops.base import (
    ensure,
    need_dtype,
    need_rank,
    normalize_axes,
    normalize_axis,
    same_dim,
    same_dtype,
    shape_text,
)
from aicore.ops.gradients import Given, Gradients


class Normalization(Op):
    """About eight operations for each element."""

    flops: ClassVar[int] = 8

    def cost(self, *inputs: Value | None) -> tuple[Dim, Dim]:
        types = as_tuple(self.infer(*inputs))
        return types[0].size * self.flops, moved_bytes(types, inputs)


@op_class
class BatchNormalization(Normalization):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, for each channel: axis 1, or all of a vector.

    Operands x (n, c, ...), scale, bias, mean, variance (c,). With training_mode 1 the statistics are those of x (the
    population's variance), and the outputs are y, and the operands mean and variance moved towards them:
    mean * momentum + batch_mean * (1 - momentum). y does not depend on momentum.
    statistics: whether the batch's mean and inverse deviation follow, (c,) in float32, or float64 for x in float64.
    Raises InferenceError when a parameter's shape is not (c,), or for `statistics` without training_mode.
    Source: ONNX BatchNormalization; Ioffe and Szegedy, 2015.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: int = 0
    statistics: bool = False
    inplace: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0),)

    def n_outputs(self) -> int:
        return 1 if not self.training_mode else 5 if self.statistics else 3

    def infer(self, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Types:
        need_dtype(x, FLOATS)
        same_dtype(scale, bias)
        same_dtype(mean, variance)
        need_dtype(scale, FLOATS)
        need_dtype(mean, FLOATS)
        ensure(x.rank != 0, "x has rank 0, wants (n, c, ...)")
        channels = None if x.shape is None else x.shape[1] if len(x.shape) > 1 else 1
        for parameter in (scale, bias, mean, variance):
            check_per_channel(parameter, channels)
        ensure(self.training_mode or not self.statistics, "there are statistics of the batch in training only")
        if not self.training_mode:
            return x.type
        statistic = TensorType(wide_dtype(x.dtype), mean.shape)
        kept = (statistic, statistic) if self.statistics else ()
        return x.type, mean.type, variance.type, *kept

    def with_residuals(self, *inputs: Value | None) -> Op:
        return replace(self, statistics=True) if self.training_mode else self

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        if self.training_mode:
            return gradient.of_training(op, self, inputs, outputs, grads)
        return gradient.of_inference(op, self, inputs, grads[0])

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        def operands(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
            c = (shape[1] if len(shape) > 1 else 1,)
            return floats(rng, shape), floats(rng, c), floats(rng, c), floats(rng, c), floats(rng, c, 0.1, 2.0)

        yield Sample(cls(), operands((2, 3, 4, 5)), constant=(1, 2, 3, 4), note="constant parameters")
        yield Sample(cls(epsilon=0.1), operands((2, 3, 4, 5)))
        yield Sample(cls(), operands((4, 3)), note="no spatial dims")
        yield Sample(cls(), operands((7,)), note="a vector is one channel")
        yield Sample(cls(), operands((2, 3, 0)), note="zero size")
        yield Sample(cls(), (SPECIAL.reshape(1, 7, 1), *operands((1, 7))[1:]), note="NaN, infinity")
        yield Sample(cls(training_mode=1), operands((2, 3, 4, 5)), note="training")
        yield Sample(cls(training_mode=1, momentum=0.25, epsilon=0.1), operands((6, 3)), note="training, momentum")
        yield Sample(cls(training_mode=1, statistics=True), operands((3, 2, 5)), note="training, all outputs")
        yield Sample(cls(training_mode=1, statistics=True), operands((7,)), note="training, a vector is one channel")


@op_class
class LayerNormalization(Normalization):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` to the last.

    Operands x, scale, bias (or absent), which broadcast to the shape of x. With `statistics`, the mean and the inverse
    deviation follow as outputs 1 and 2: x's shape with 1 for the reduced dims, in the type named by `stash_type`. The
    first stage is computed in the wider of stash_type, float32 and x's type. (float64 is no stash_type of ONNX: x in
    float64 alone may have it.)
    Raises InferenceError for an axis out of range or parameters that do not broadcast. Source: ONNX LayerNormalization.
    """

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: str = "float32"
    statistics: bool = False
    inplace: ClassVar[tuple[tuple[int, int], ...]] = ((0, 0),)

    def n_outputs(self) -> int:
        return 3 if self.statistics else 1

    def resolve(self, x: Value, scale: Value, bias: Value | None = None) -> Op:
        return self if x.rank is None else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, scale: Value, bias: Value | None = None) -> Types:
        need_dtype(x, FLOATS)
        same_dtype(x, scale, bias)
        allowed = ("float32", "bfloat16", wide_dtype(x.dtype))
        ensure(self.stash_type in allowed, f"stash_type is {self.stash_type}, wants float32 or bfloat16")
        for parameter in (scale, bias):
            if parameter is not None:
                check_broadcasts(parameter, x)
        statistics = TensorType(self.stash_type, None)
        if x.shape is not None:
            axis = normalize_axis(self.axis, len(x.shape))
            statistics = TensorType(self.stash_type, x.shape[:axis] + (1,) * (len(x.shape) - axis))
        return (x.type, statistics, statistics) if self.statistics else x.type

    def with_residuals(self, *inputs: Value | None) -> Op:
        if self.statistics or inputs[0] is None:
            return self
        return replace(self, statistics=True, stash_type=wide_dtype(inputs[0].dtype))

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return gradient.of_layer(op, self, inputs, outputs, grads)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = floats(rng, (2, 3, 5))
        yield Sample(cls(), (x, floats(rng, (5,)), floats(rng, (5,))), constant=(1, 2), note="constant parameters")
        yield Sample(cls(), (x, floats(rng, (5,))), note="no bias")
        yield Sample(cls(1, 0.1), (x, floats(rng, (3, 5)), floats(rng, (3, 5))), note="two axes")
        yield Sample(cls(-3), (x, floats(rng, (2, 3, 5)), floats(rng, (1,))), note="negative axis, all axes")
        yield Sample(cls(0), (floats(rng, (6,)), floats(rng, (6,)), floats(rng, (6,))), note="a vector")
        yield Sample(cls(statistics=True), (x, floats(rng, (5,)), floats(rng, (5,))), note="all outputs")
        yield Sample(cls(), (x + 1000, floats(rng, (5,)), floats(rng, (5,))), note="a large mean")
        yield Sample(cls(), (floats(rng, (0, 4)), floats(rng, (4,)), floats(rng, (4,))), note="zero size")
        yield Sample(cls(), (np.stack([SPECIAL, floats(rng, (7,))]), floats(rng, (7,))), note="NaN in one row")


@op_class
class RMSNormalization(Normalization):
    """x / sqrt(mean(x * x) + epsilon) * scale over the axes from `axis` to the last, in the type of scale.

    The scale broadcasts to the shape of x. The first stage is computed in the wider of stash_type, float32 and x's
    type.
    Source: ONNX RMSNormalization; Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
    """

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: str = "float32"
    flops: ClassVar[int] = 5

    def resolve(self, x: Value, scale: Value) -> Op:
        return self if x.rank is None else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value, scale: Value) -> Types:
        need_dtype(x, FLOATS)
        need_dtype(scale, FLOATS)
        ensure(self.stash_type in FLOATS, f"stash_type is {self.stash_type}, wants a floating-point type")
        check_broadcasts(scale, x)
        if x.rank is not None:
            normalize_axis(self.axis, x.rank)
        return TensorType(scale.dtype, x.shape)

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return gradient.of_root_mean_square(op, self, inputs, grads[0])

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = floats(rng, (2, 3, 5))
        yield Sample(cls(), (x, floats(rng, (5,))), constant=(1,), note="constant scale")
        yield Sample(cls(1, 0.1), (x, floats(rng, (3, 5))), note="two axes")
        yield Sample(cls(-3), (x, floats(rng, (1,))), note="negative axis, all axes")
        yield Sample(cls(), (floats(rng, (0, 4)), floats(rng, (4,))), note="zero size")


@op_class
class InstanceNormalization(Normalization):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the spatial axes of each instance and channel.

    Operands x (n, c, d1, ...), scale (c,), bias (c,). Source: ONNX InstanceNormalization; Ulyanov and others, 2016.
    """

    epsilon: float = 1e-5

    def infer(self, x: Value, scale: Value, bias: Value) -> Types:
        need_dtype(x, FLOATS)
        same_dtype(x, scale, bias)
        check_channels(x, scale, bias)
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return gradient.of_groups(op, 0, self.epsilon, inputs, grads[0])

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (2, 3, 4, 5)), floats(rng, (3,)), floats(rng, (3,))), constant=(1, 2))
        yield Sample(cls(0.1), (floats(rng, (2, 3, 7)), floats(rng, (3,)), floats(rng, (3,))), note="one spatial dim")
        yield Sample(cls(), (floats(rng, (0, 3, 4)), floats(rng, (3,)), floats(rng, (3,))), note="zero size")


@op_class
class GroupNormalization(Normalization):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over each instance's groups of neighbouring channels.

    Operands x (n, c, d1, ...), scale (c,), bias (c,); num_groups divides c.
    Source: ONNX GroupNormalization of opset 21 (scale for each channel); Wu and He, 2018.
    """

    num_groups: int = 1
    epsilon: float = 1e-5
    stash_type: str = "float32"

    def infer(self, x: Value, scale: Value, bias: Value) -> Types:
        need_dtype(x, FLOATS)
        same_dtype(x, scale, bias)
        ensure(self.stash_type in FLOATS, f"stash_type is {self.stash_type}, wants a floating-point type")
        check_channels(x, scale, bias)
        ensure(self.num_groups > 0, f"num_groups is {self.num_groups}")
        channels = 0 if x.shape is None else x.shape[1]
        even = not isinstance(channels, int) or channels % self.num_groups == 0
        ensure(even, f"{channels} channels do not form {self.num_groups} equal groups")
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return gradient.of_groups(op, self.num_groups, self.epsilon, inputs, grads[0])

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(2), (floats(rng, (2, 6, 4, 5)), floats(rng, (6,)), floats(rng, (6,))), constant=(1, 2))
        yield Sample(cls(3, 0.1), (floats(rng, (2, 3, 7)), floats(rng, (3,)), floats(rng, (3,))), note="group of one")
        yield Sample(cls(1), (floats(rng, (2, 4)), floats(rng, (4,)), floats(rng, (4,))), note="no spatial dims")
        yield Sample(cls(2), (floats(rng, (0, 4, 3)), floats(rng, (4,)), floats(rng, (4,))), note="zero size")


@op_class
class LpNormalization(Normalization):
    """x divided by its L1 or L2 norm (p = 1 or 2) along an axis; 0 where the norm is 0.

    Source: ONNX LpNormalization.
    """

    axis: int = -1
    p: int = 2
    flops: ClassVar[int] = 3

    def resolve(self, x: Value) -> Op:
        return self if x.rank is None else replace(self, axis=normalize_axis(self.axis, x.rank))

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS)
        ensure(self.p in (1, 2), f"p is {self.p}, wants 1 or 2")
        if x.rank is not None:
            normalize_axis(self.axis, x.rank)
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (gradient.of_norm(op, self, inputs[0], grads[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = floats(rng, (3, 4, 5))
        for p in (1, 2):
            yield Sample(cls(1, p), (x,))
            yield Sample(cls(p=p), (np.array([[0, 0], [3, -4]], np.float32),), note="the norm is 0")
        yield Sample(cls(), (floats(rng, (3, 0)),), note="zero size")


@op_class
class LRN(Normalization):
    """x / (bias + alpha / size * square_sum) ** beta, where square_sum runs over `size` neighbouring channels.

    The window of channel c reaches from c - (size - 1) // 2 to c + size // 2, inside the tensor. x is (n, c, ...).
    Source: ONNX LRN; Krizhevsky and others, 2012.
    """

    size: int = 1
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS)
        ensure(self.size > 0, f"size is {self.size}")
        ensure(x.rank is None or x.rank >= 2, f"x is {x.type}, wants (n, c, ...)")
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (gradient.of_local_response(op, self, inputs[0], grads[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        x = floats(rng, (2, 7, 3, 4))
        yield Sample(cls(3), (x,))
        yield Sample(cls(4, 0.1, 0.5, 2.0), (x,), note="even size, all attributes")
        yield Sample(cls(31), (x,), note="larger than the tensor")


@op_class
class MeanVarianceNormalization(Normalization):
    """(x - mean) / (deviation + 1e-9) over `axes`. Source: the function body of ONNX MeanVarianceNormalization."""

    axes: tuple[int, ...] = (0, 2, 3)

    def infer(self, x: Value) -> Types:
        need_dtype(x, FLOATS)
        if x.rank is not None:
            normalize_axes(self.axes, x.rank)
        return x.type

    def grad(self, op: Builder, inputs: Given, outputs: Given, grads: Given) -> Gradients:
        return (gradient.of_mean_variance(op, self, inputs[0], grads[0]),)

    @classmethod
    def samples(cls, rng: np.random.Generator) -> Iterable[Sample]:
        yield Sample(cls(), (floats(rng, (2, 3, 4, 5)),))
        yield Sample(cls((-1,)), (floats(rng, (3, 7)),), note="negative axis")


def wide_dtype(dtype: str) -> str:
    """What statistics of tensors of this type are computed in."""
    return "float64" if dtype == "float64" else "float32"


def check_per_channel(parameter: Value, channels: Dim | None) -> None:
    """Raise InferenceError unless the parameter is a vector with an element for each channel."""
    need_rank(parameter, 1)
    if parameter.shape is not None and channels is not None:
        fits = same_dim(parameter.shape[0], channels)
        ensure(fits, f"%{parameter.name} has shape {shape_text(parameter.shape)}, x has {channels} channels")


def check_channels(x: Value, *parameters: Value) -> None:
    """Raise InferenceError unless x is (n, c, ...) and every parameter (c,)."""
    ensure(x.rank is None or x.rank >= 2, f"x is {x.type}, wants (n, c, ...)")
    for parameter in parameters:
        check_per_channel(parameter, None if x.shape is None else x.shape[1])


def check_broadcasts(parameter: Value, x: Value) -> None:
    """Raise InferenceError unless the parameter broadcasts to the shape of x without changing it."""
    small, large = parameter.shape, x.shape
    if small is None or large is None:
        return
    fits = len(small) <= len(large) and all(
        p == 1 or same_dim(p, d) for p, d in zip(small[::-1], large[::-1], strict=False)
    )
    ensure(fits, f"%{parameter.name} {shape_text(small)} does not broadcast to {shape_text(large)}")
