"""Normalisation layers, and dropout."""

from __future__ import annotations

from typing import Any

from aicore.ir import Value
from aicore.nn._config import config
from aicore.nn.initializers import Ones, Zeros
from aicore.nn.layer import Layer
from aicore.nn.layers._fields import above_zero, fraction, is_int, known_dim, need_floats, positive, require
from aicore.nn.scope import Scope


@config
class BatchNormalization(Layer):
    """Each channel (axis 1, the features of (batch, features)) with mean 0 and variance 1 over the batch, then scaled.

    Training uses the batch's statistics, and moves the running ones: running = momentum * running + (1 - momentum) *
    batch. Inference uses the running ones. PyTorch's `momentum` is 1 minus this one, which is Keras's. The running
    variance is that of the population (divided by n), as ONNX defines it; PyTorch keeps the sample's (n - 1).

    Parameters: weight [channels], bias [channels]; state: running_mean, running_var [channels].

    momentum: from 0 to below 1. epsilon: added to the variance.
    center, scale: False leaves out bias or weight.
    Source: Ioffe and Szegedy, 2015.
    """

    momentum: float = 0.9
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True
    name: str = ""

    def check(self) -> None:
        fraction("momentum", self.momentum)
        above_zero("epsilon", self.epsilon)

    def build(self, scope: Scope, x: Value) -> Any:
        need_floats(x)
        require(x.rank is not None and x.rank >= 2, f"the input is {x.type}, wants (batch, channels, ...)")
        shape = (known_dim(x, 1, "channels"),)
        weight = scope.parameter("weight", shape, Ones()) if self.scale else _filled(scope, 1.0, shape, x)
        bias = scope.parameter("bias", shape, Zeros()) if self.center else _filled(scope, 0.0, shape, x)
        mean = scope.state("running_mean", shape, Zeros())
        variance = scope.state("running_var", shape, Ones())
        operands = (x, weight, bias, mean, variance)
        if not scope.training:
            return scope.op.BatchNormalization(*operands, epsilon=self.epsilon)
        y, new_mean, new_variance = scope.op.BatchNormalization(
            *operands, epsilon=self.epsilon, momentum=self.momentum, training_mode=1
        )
        scope.update(mean, new_mean)
        scope.update(variance, new_variance)
        return y


@config
class LayerNormalization(Layer):
    """Mean 0 and variance 1 over the axes from `axis` to the last, then scaled, for each sample by itself.

    Parameters: weight and bias, of the shape of these axes, as in PyTorch.

    axis: the first of the axes; -1 for the last one alone. epsilon: added to the variance.
    center, scale: False leaves out bias or weight. Source: Ba and others, 2016.
    """

    axis: int = -1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True
    name: str = ""

    def check(self) -> None:
        _check_axis(self.axis)
        above_zero("epsilon", self.epsilon)

    def build(self, scope: Scope, x: Value) -> Any:
        shape = _trailing(x, self.axis)
        weight = scope.parameter("weight", shape, Ones()) if self.scale else _filled(scope, 1.0, shape, x)
        bias = scope.parameter("bias", shape, Zeros()) if self.center else None
        return scope.op.LayerNormalization(x, weight, bias, axis=-len(shape), epsilon=self.epsilon)


@config
class RMSNormalization(Layer):
    """x / sqrt(mean(x * x) + epsilon) * weight over the axes from `axis` to the last.

    Parameter: weight, of the shape of these axes. axis, epsilon, scale: as in LayerNormalization.
    Source: Zhang and Sennrich, 2019.
    """

    axis: int = -1
    epsilon: float = 1e-6
    scale: bool = True
    name: str = ""

    def check(self) -> None:
        _check_axis(self.axis)
        above_zero("epsilon", self.epsilon)

    def build(self, scope: Scope, x: Value) -> Any:
        shape = _trailing(x, self.axis)
        weight = scope.parameter("weight", shape, Ones()) if self.scale else _filled(scope, 1.0, shape, x)
        return scope.op.RMSNormalization(x, weight, axis=-len(shape), epsilon=self.epsilon)


@config
class GroupNormalization(Layer):
    """Mean 0 and variance 1 over groups of neighbouring channels of each sample: (batch, channels, ...).

    Parameters: weight [channels], bias [channels].

    groups: how many; it divides the channels. 1 is a layer normalisation over all but the batch, as many as channels
    an instance normalisation. epsilon, center, scale: as in LayerNormalization. Source: Wu and He, 2018.
    """

    groups: int = 32
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True
    name: str = ""

    def check(self) -> None:
        positive("groups", self.groups)
        above_zero("epsilon", self.epsilon)

    def build(self, scope: Scope, x: Value) -> Any:
        need_floats(x)
        require(x.rank is not None and x.rank >= 2, f"the input is {x.type}, wants (batch, channels, ...)")
        channels = known_dim(x, 1, "channels")
        require(channels % self.groups == 0, f"{channels} channels do not divide into {self.groups} groups")
        shape = (channels,)
        weight = scope.parameter("weight", shape, Ones()) if self.scale else _filled(scope, 1.0, shape, x)
        bias = scope.parameter("bias", shape, Zeros()) if self.center else _filled(scope, 0.0, shape, x)
        return scope.op.GroupNormalization(x, weight, bias, num_groups=self.groups, epsilon=self.epsilon)


@config
class Dropout(Layer):
    """In training, each element is 0 with probability `rate`, and the others are divided by 1 - rate; else x itself.

    rate: from 0 to below 1. Which elements these are follows from the model's seed and the step alone.
    Source: Srivastava and others, 2014.
    """

    rate: float = 0.5
    name: str = ""

    def check(self) -> None:
        fraction("rate", self.rate)

    def build(self, scope: Scope, x: Value) -> Any:
        need_floats(x)
        return dropped(scope, x, self.rate)


def dropped(scope: Scope, x: Value, rate: float) -> Value:
    """x after dropout, in training; x itself in inference, or for a rate of 0."""
    if not scope.training or rate == 0:
        return x
    return scope.op.Dropout(  # type: ignore[no-any-return]
        x, None, None, scope.key(), ratio=rate, training_mode=True, stream=scope.stream()
    )


def _filled(scope: Scope, number: float, shape: tuple[int, ...], x: Value) -> Value:
    return scope.op.Expand(scope.op.scalar(number, x), shape=shape)  # type: ignore[no-any-return]


def _check_axis(axis: object) -> None:
    require(is_int(axis), f"axis is {axis!r}, wants an integer")


def _trailing(x: Value, axis: int) -> tuple[int, ...]:
    """The dims from `axis` to the last."""
    need_floats(x)
    rank = x.rank
    fits = rank is not None and rank >= 2 and -rank < axis < rank and axis != 0
    require(fits, f"the input is {x.type}, which has no axes from {axis} on beside the batch")
    first = axis % (rank or 1)
    return tuple(known_dim(x, i, "features") for i in range(first, rank or 1))
