"""Initialisers: where parameters start. Frozen configurations that draw float32 arrays from a generator of NumPy.

The fans of a weight [out, in, kernel...], the layout of Dense and convolutions: fan_in = in * kernel, fan_out =
out * kernel, where kernel is the number of elements of the window. Those of a vector are its length. The weight of a
transposed convolution is [in, out, kernel...], and its fans are read in the same way, as in PyTorch and Keras.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from aicore.errors import ConfigError
from aicore.nn._config import config

Array: TypeAlias = np.ndarray[Any, Any]
Mode: TypeAlias = Literal["fan_in", "fan_out", "fan_avg"]
Distribution: TypeAlias = Literal["uniform", "normal", "truncated_normal"]

CUT = 2.0
"""Where truncated normal distributions end, in deviations of the uncut one."""
CUT_DEVIATION = 0.8796256610342398
"""Deviation of the standard normal distribution cut there: sqrt(1 - 4 * density(2) / (mass between -2 and 2))."""


def fans(shape: Sequence[int]) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight [out, in, kernel...]: how many elements of x and of y each one sees."""
    if len(shape) < 2:
        size = math.prod(shape)
        return size, size
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


@config
class Initializer:
    """Base of all: called with a shape and a generator, they draw an array."""

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        """A float32 array of the shape; the same generator state gives the same numbers."""
        raise NotImplementedError


@config
class Constant(Initializer):
    """The same number everywhere."""

    value: float = 0.0

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        return np.full(tuple(shape), self.value, np.float32)


@config
class Zeros(Initializer):
    """0 everywhere."""

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        return np.zeros(tuple(shape), np.float32)


@config
class Ones(Initializer):
    """1 everywhere."""

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        return np.ones(tuple(shape), np.float32)


@config
class Uniform(Initializer):
    """Uniform from `low` to below `high`."""

    low: float = -0.05
    high: float = 0.05

    def check(self) -> None:
        _check(self.low <= self.high, f"Uniform: low {self.low} is above high {self.high}")

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        return np.asarray(rng.uniform(self.low, self.high, tuple(shape)), np.float32)


@config
class Normal(Initializer):
    """Normal, with the mean and the standard deviation given."""

    mean: float = 0.0
    stddev: float = 0.05

    def check(self) -> None:
        _check(self.stddev >= 0, f"Normal: stddev {self.stddev} is negative")

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        return np.asarray(self.mean + self.stddev * rng.standard_normal(tuple(shape)), np.float32)


@config
class TruncatedNormal(Initializer):
    """Normal, without what lies beyond two standard deviations from the mean.

    stddev: of the uncut distribution, as in Keras; what is left has 0.8796 of it.
    """

    mean: float = 0.0
    stddev: float = 0.05

    def check(self) -> None:
        _check(self.stddev >= 0, f"TruncatedNormal: stddev {self.stddev} is negative")

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        return np.asarray(self.mean + self.stddev * _truncated(shape, rng), np.float32)


@config
class VarianceScaling(Initializer):
    """Mean 0 and variance scale / fan, so that layers keep the size of what passes through them.

    mode: which fan: `fan_in`, `fan_out`, or their mean, `fan_avg`.
    distribution: `uniform`, `normal`, or `truncated_normal`, whose variance is that given after the cut.
    Source: Glorot and Bengio, 2010 (scale 1, fan_avg); He and others, 2015 (scale 2, fan_in); LeCun and others, 1998
    (scale 1, fan_in).
    """

    scale: float = 1.0
    mode: Mode = "fan_in"
    distribution: Distribution = "truncated_normal"

    def check(self) -> None:
        _check(self.scale > 0, f"VarianceScaling: scale {self.scale} is not above 0")
        _check(self.mode in _MODES, f"VarianceScaling: mode {self.mode!r} is none of {', '.join(_MODES)}")
        known = self.distribution in _DISTRIBUTIONS
        _check(known, f"VarianceScaling: distribution {self.distribution!r} is none of {', '.join(_DISTRIBUTIONS)}")

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        fan_in, fan_out = fans(shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        deviation = math.sqrt(self.scale / max(fan, 1))
        if self.distribution == "uniform":
            limit = math.sqrt(3.0) * deviation
            return np.asarray(rng.uniform(-limit, limit, tuple(shape)), np.float32)
        if self.distribution == "normal":
            return np.asarray(deviation * rng.standard_normal(tuple(shape)), np.float32)
        return np.asarray(deviation / CUT_DEVIATION * _truncated(shape, rng), np.float32)


@config
class Orthogonal(Initializer):
    """`gain` times a random matrix whose rows, or columns if these are fewer, are orthonormal.

    A weight [out, in, kernel...] counts as the matrix [out, in * kernel]. Raises ConfigError for a rank below 2.
    Source: Saxe and others, 2013; QR of a normal matrix, with the signs of R taken out (Mezzadri, 2007).
    """

    gain: float = 1.0

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        _check(len(shape) >= 2, f"Orthogonal: the shape {tuple(shape)} is no matrix, wants rank 2 or more")
        rows, columns = shape[0], math.prod(shape[1:])
        tall = rng.standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(tall)
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # else it depends on the signs that QR happens to choose
        matrix = q if rows >= columns else q.T
        return (self.gain * matrix).reshape(tuple(shape)).astype(np.float32)


@config
class Stacked(Initializer):
    """Each matrix of a stack [n, out, in, ...] by itself, in `parts` equal pieces along out.

    Recurrent layers need it: one weight holds the directions, and in each the gates, one below the other.
    """

    each: Initializer
    parts: int = 1

    def __call__(self, shape: Sequence[int], rng: np.random.Generator) -> Array:
        _check(len(shape) >= 3, f"Stacked: the shape {tuple(shape)} is no stack of matrices")
        _check(shape[1] % self.parts == 0, f"Stacked: {shape[1]} rows are not {self.parts} equal parts")
        piece = (shape[1] // self.parts, *shape[2:])
        drawn = [self.each(piece, rng) for _ in range(shape[0] * self.parts)]
        return np.concatenate(drawn).reshape(tuple(shape)) if drawn else np.zeros(tuple(shape), np.float32)


_MODES = ("fan_in", "fan_out", "fan_avg")
_DISTRIBUTIONS = ("uniform", "normal", "truncated_normal")

INITIALIZERS: Mapping[str, Initializer] = {
    "zeros": Zeros(),
    "ones": Ones(),
    "uniform": Uniform(),
    "normal": Normal(),
    "truncated_normal": TruncatedNormal(),
    "glorot_uniform": VarianceScaling(1.0, "fan_avg", "uniform"),
    "glorot_normal": VarianceScaling(1.0, "fan_avg", "normal"),
    "xavier_uniform": VarianceScaling(1.0, "fan_avg", "uniform"),
    "xavier_normal": VarianceScaling(1.0, "fan_avg", "normal"),
    "xavier": VarianceScaling(1.0, "fan_avg", "uniform"),
    "he_uniform": VarianceScaling(2.0, "fan_in", "uniform"),
    "he_normal": VarianceScaling(2.0, "fan_in", "normal"),
    "kaiming_uniform": VarianceScaling(2.0, "fan_in", "uniform"),
    "kaiming_normal": VarianceScaling(2.0, "fan_in", "normal"),
    "he": VarianceScaling(2.0, "fan_in", "normal"),
    "lecun_uniform": VarianceScaling(1.0, "fan_in", "uniform"),
    "lecun_normal": VarianceScaling(1.0, "fan_in", "normal"),
    "orthogonal": Orthogonal(),
}
"""Names that layers take. `glorot` and `xavier` are one thing, and so are `he` and `kaiming`; the normal ones are
not truncated, as in PyTorch. `he` alone is `he_normal`, `xavier` alone `xavier_uniform`."""


def initializer(found: Initializer | str) -> Initializer:
    """The initialiser of a name, or itself. Raises ConfigError for a name that there is not."""
    if isinstance(found, Initializer):
        return found
    if not isinstance(found, str) or found not in INITIALIZERS:
        raise ConfigError(f"initializer {found!r} is none of {', '.join(INITIALIZERS)}, and no Initializer")
    return INITIALIZERS[found]


def _truncated(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Standard normal numbers between -2 and 2: drawn anew where they are not, so that the form is exact."""
    flat = rng.standard_normal(math.prod(shape))
    outside = np.flatnonzero(np.abs(flat) > CUT)
    while outside.size:
        flat[outside] = rng.standard_normal(outside.size)
        outside = outside[np.abs(flat[outside]) > CUT]
    return flat.reshape(tuple(shape))
