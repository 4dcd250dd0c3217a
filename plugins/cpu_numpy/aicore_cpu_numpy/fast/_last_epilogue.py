"""What follows a convolution, on one block of positions while it is in the cache: bias, residual, activation.

A block is (..., channels). `finish` gives the calls for it, made once: they read `source`, where the products lie, and
leave the result in `target`. Both may be the same memory, unless `needs_two(activation)`: activations that multiply x
by f(x) compute f(x) in the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from aicore.ir import Op
from aicore.ops.activation import Clip, HardSigmoid, HardSwish, LeakyRelu, Relu, Sigmoid, Swish, Tanh
from aicore.records import dataclass
from aicore_cpu_numpy.fast._bounds import CLIP

Array = np.ndarray[Any, Any]
Call: TypeAlias = Callable[[], Any]
Calls: TypeAlias = list[Call]

_TILE = 8192
"""Elements over which a bias is repeated: NumPy takes twice as long to add it to rows that are shorter."""


@dataclass(frozen=True, eq=False)
class Bias:
    """One number for each channel.

    values: (channels,).
    tile: the same numbers for many positions, one after another; None where they are not known before the run.
    """

    values: Array
    tile: Array | None = None

    @classmethod
    def constant(cls, values: Array) -> Bias:
        """A bias that stays as it is, which takes a copy."""
        values = np.ascontiguousarray(values)
        tile = np.empty((max(1, _TILE // max(values.size, 1)), values.size), values.dtype)
        tile[:] = values  # what np.tile does, without its tenfold overhead
        return cls(values, tile.reshape(-1))

    def part(self, channels: slice) -> Bias:
        """The bias of some of the channels."""
        if channels.stop - channels.start == self.values.size:
            return self
        values = self.values[channels]
        return Bias(values) if self.tile is None else Bias.constant(values)


def reason_against(activation: Op) -> str | None:
    """Why the activation cannot be computed by `finish`, or None."""
    if type(activation) in _ACTIVATIONS:
        return None
    known = ", ".join(sorted(cls.__name__ for cls in _ACTIVATIONS))
    return f"has no form of {type(activation).__name__} in blocks, only of {known}"


def needs_two(activation: Op | None) -> bool:
    """Whether `finish` needs a source that is not the target."""
    return type(activation) in _WITH_FACTOR


def finish(
    source: Array, target: Array, bias: Bias | None = None, residual: Array | None = None, activation: Op | None = None
) -> Calls:
    """Calls that compute target = activation(source + bias + residual), and spoil the source.

    source, target, residual: (..., channels) of the same shape and type, each strided as it likes.
    """
    flat = all(a is None or a.flags.c_contiguous for a in (source, target, residual))
    kinds = [kind for kind, given in enumerate((bias, residual, activation)) if given is not None]
    calls: Calls = []
    if not kinds:
        return calls if _is_same(source, target) else [partial(np.copyto, target, source)]
    for kind in kinds:
        result = target if kind == kinds[-1] else source
        if kind == 0 and bias is not None:
            calls += with_channels(np.add, source, bias, result)
        elif kind == 1 and residual is not None:
            calls.append(_on(np.add, flat, source, residual, out=result))
        elif activation is not None:
            x, y = (a.reshape(-1) if flat else a for a in (source, result))
            calls += _ACTIVATIONS[type(activation)](activation, x, y)
    return calls


def _on(function: Callable[..., Any], flat: bool, *operands: Array, out: Array) -> Call:
    """The call of a function of equal shapes, in one loop where everything is contiguous."""
    if flat:
        return partial(function, *[a.reshape(-1) for a in operands], out=out.reshape(-1))
    return partial(function, *operands, out=out)


def with_channels(function: Callable[..., Any], source: Array, bias: Bias, target: Array) -> Calls:
    """Calls of target = function(source, one number for each channel)."""
    tile, channels = bias.tile, bias.values.size
    contiguous = source.flags.c_contiguous and target.flags.c_contiguous
    if tile is None or not contiguous or tile.size == channels:
        return [partial(function, source, bias.values, out=target)]
    x, y = source.reshape(-1), target.reshape(-1)
    whole = x.size // tile.size * tile.size
    calls: Calls = []
    if whole:
        rows = (-1, tile.size)
        calls.append(partial(function, x[:whole].reshape(rows), tile, out=y[:whole].reshape(rows)))
    if whole < x.size:
        calls.append(partial(function, x[whole:], tile[: x.size - whole], out=y[whole:]))
    return calls


def _is_same(x: Array, y: Array) -> bool:
    return x.ctypes.data == y.ctypes.data and x.strides == y.strides


def _relu(op: Relu, x: Array, y: Array) -> Calls:
    return [_clip_to(x, 0, math.inf, y)]


def _clip(op: Clip, x: Array, y: Array) -> Calls:
    low, high = -math.inf if op.min is None else op.min, math.inf if op.max is None else op.max
    return [_clip_to(x, low, high, y)]


def _hard_sigmoid(op: HardSigmoid, x: Array, y: Array) -> Calls:
    return _ramp(x, op.alpha, op.beta, y)


def _sigmoid(op: Sigmoid, x: Array, y: Array) -> Calls:
    return [partial(np.negative, x, out=y), *_logistic_of_negated(y)]


def _tanh(op: Tanh, x: Array, y: Array) -> Calls:
    return [partial(np.tanh, x, out=y)]


def _leaky_relu(op: LeakyRelu, x: Array, y: Array) -> Calls:
    scaled = partial(np.multiply, x, _number(op.alpha, x), out=y)
    if 0 < op.alpha <= 1:
        return [scaled, partial(np.maximum, x, y, out=y)]
    positive = _clip_to(x, 0, math.inf, x)
    negative = _clip_to(x, -math.inf, 0, y)
    return [negative, partial(np.multiply, y, _number(op.alpha, y), out=y), positive, partial(np.add, x, y, out=y)]


def _hard_swish(op: HardSwish, x: Array, y: Array) -> Calls:
    return [*_ramp(x, 1 / 6, 0.5, y), partial(np.multiply, x, y, out=y)]


def _swish(op: Swish, x: Array, y: Array) -> Calls:
    negated = partial(np.multiply, x, _number(-op.alpha, x), out=y)
    return [negated, *_logistic_of_negated(y), partial(np.multiply, x, y, out=y)]


def _ramp(x: Array, alpha: float, beta: float, y: Array) -> Calls:
    """y = alpha * x + beta between 0 and 1."""
    return [
        partial(np.multiply, x, _number(alpha, x), out=y),
        partial(np.add, y, _number(beta, y), out=y),
        _clip_to(y, 0, 1, y),
    ]


def _logistic_of_negated(y: Array) -> Calls:
    """y = 1 / (1 + exp(y)); where exp(y) is infinite the result is 0."""
    return [
        partial(np.exp, y, out=y),
        partial(np.add, y, _number(1, y), out=y),
        partial(np.reciprocal, y, out=y),
    ]


def _clip_to(x: Array, low: float, high: float, y: Array) -> Call:
    return partial(CLIP, x, _number(low, x), _number(high, x), out=y)


def _number(value: float, like: Array) -> Array:
    """The number as an array without dims, which ufuncs take faster than a Python number."""
    return np.asarray(value, like.dtype)


_ACTIVATIONS: dict[type[Op], Callable[[Any, Array, Array], Calls]] = {
    Relu: _relu,
    Clip: _clip,
    LeakyRelu: _leaky_relu,
    HardSigmoid: _hard_sigmoid,
    HardSwish: _hard_swish,
    Sigmoid: _sigmoid,
    Swish: _swish,
    Tanh: _tanh,
}
"""The calls that compute each activation of x into y; y may be x, but for those with a factor."""

_WITH_FACTOR = frozenset({LeakyRelu, HardSwish, Swish})
