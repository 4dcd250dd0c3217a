"""Real numbers as 8-bit integers: real = (code - zero point) * scale. Scales, zero points, and the way there and back.

The arithmetic is that of QuantizeLinear: divide, round halves to even, add the zero point, clamp while the number is
still a float, then convert.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore_int8_quant.errors import QuantizationError

Array = np.ndarray[Any, Any]

_MOST = float(np.finfo(np.float32).max)
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


@dataclass(frozen=True)
class Format:
    """How a tensor is to be quantised.

    dtype: `int8` or `uint8`. symmetric: the zero point is 0, or 128 for uint8, and the code -128 is not used.
    axis: the axis along which scales differ; None for one scale.
    Raises QuantizationError for another dtype.
    """

    dtype: str = "int8"
    symmetric: bool = False
    axis: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ("int8", "uint8"):
            raise QuantizationError(f"a tensor cannot be quantised to {self.dtype!r}; choose int8 or uint8")

    @property
    def codes(self) -> tuple[int, int]:
        """The smallest and the largest code that is used."""
        low, high = (0, 255) if self.dtype == "uint8" else (-128, 127)
        return (low + 1 if self.symmetric else low), high


ACTIVATION = Format()
"""Asymmetric int8: codes from -128 to 127."""


def weight_format(axis: int | None) -> Format:
    """Symmetric int8: codes from -127 to 127."""
    return Format("int8", symmetric=True, axis=axis)


@dataclass(frozen=True, eq=False)
class QParams:
    """Scale and zero point of a tensor.

    scale: float32, of rank 0, or of rank 1 with one number for each index of `axis`.
    zero_point: of the shape of the scale and of the dtype of the codes.
    """

    scale: Array
    zero_point: Array
    axis: int | None = None

    @property
    def dtype(self) -> str:
        """Of the codes."""
        return str(self.zero_point.dtype)

    def same_as(self, other: QParams) -> bool:
        """Whether both give the same codes for every number."""
        return (
            self.axis == other.axis
            and self.dtype == other.dtype
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )

    def quantize(self, x: Array) -> Array:
        """The codes of x. NaN has none: raises QuantizationError."""
        if np.isnan(x).any():
            raise QuantizationError("NaN cannot be quantised")
        scale, zero_point = self._spread(x.ndim)
        limits = np.iinfo(self.zero_point.dtype)
        with np.errstate(over="ignore"):  # what overflows is saturated
            codes = np.rint(x.astype(np.float32) / scale) + zero_point.astype(np.float32)
        found: Array = np.clip(codes, limits.min, limits.max).astype(self.zero_point.dtype)
        return found

    def dequantize(self, codes: Array) -> Array:
        """The numbers that codes stand for, in float32."""
        scale, zero_point = self._spread(codes.ndim)
        found: Array = (codes.astype(np.int32) - zero_point).astype(np.float32) * scale
        return found

    def round_trip(self, x: Array) -> Array:
        """What is left of x."""
        return self.dequantize(self.quantize(x))

    def real_range(self) -> tuple[Array, Array]:
        """What the smallest and the largest code of the type stand for, in float64."""
        limits, zero_point = np.iinfo(self.zero_point.dtype), self.zero_point.astype(np.int64)
        scale = self.scale.astype(np.float64)
        return (limits.min - zero_point) * scale, (limits.max - zero_point) * scale

    def _spread(self, rank: int) -> tuple[Array, Array]:
        """Scale and zero point, the latter in int32, in shapes that broadcast to a tensor of that rank."""
        if self.axis is None:
            return self.scale, self.zero_point.astype(np.int32)
        shape = [1] * rank
        shape[self.axis] = -1
        return self.scale.reshape(shape), self.zero_point.astype(np.int32).reshape(shape)


def qparams_of(low: Array, high: Array, to: Format) -> QParams:
    """Scale and zero point for numbers from `low` to `high`, which are widened to include 0, so that 0 has a code.

    low, high: float64 of rank 0 or 1, finite.
    A tensor of zeros gets the scale 1. The scale is never 0 and never infinite: where the ideal one is below the
    smallest float32, it is that; where float32 must round it, ranges at the end of float32 stay finite.
    Raises QuantizationError when a range is not finite or empty.
    """
    low, high = np.minimum(low, 0.0).astype(np.float64), np.maximum(high, 0.0).astype(np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise QuantizationError("a range from or to infinity or NaN has no scale")
    least, most = to.codes
    if to.symmetric:
        span, steps = np.maximum(-low, high), (most - least) // 2
        middle = (least + most) // 2
        scale = _scale(span, steps)
        zero_point = np.full(scale.shape, middle)
    else:
        scale = _scale(high - low, most - least)
        zero_point = np.clip(np.rint(least - low / scale.astype(np.float64)), least, most)
    return QParams(_within_float32(scale, zero_point, to), zero_point.astype(to.dtype), to.axis)


def _scale(span: Array, steps: int) -> Array:
    """`span` in `steps` steps, as float32."""
    ideal = span / steps
    with np.errstate(under="ignore"):
        scale = np.asarray(ideal).astype(np.float32)
    tiny = scale < np.finfo(np.float32).tiny  # float32 has few bits there: round up, so that nothing is cut off
    scale = np.where(tiny & (scale < ideal), np.nextafter(scale, np.float32(np.inf)), scale)
    found: Array = np.where(span == 0, np.float32(1), np.maximum(scale, np.float32(_LEAST)))
    return found.astype(np.float32)


def _within_float32(scale: Array, zero_point: Array, to: Format) -> Array:
    """The scale, or a little less where a code would stand for infinity."""
    limits = np.iinfo(to.dtype)
    steps = np.maximum(zero_point - limits.min, limits.max - zero_point)
    too_large = scale.astype(np.float64) * steps > _MOST
    most = np.nextafter((_MOST / steps).astype(np.float32), np.float32(0))
    found: Array = np.where(too_large, most, scale).astype(np.float32)
    return found
