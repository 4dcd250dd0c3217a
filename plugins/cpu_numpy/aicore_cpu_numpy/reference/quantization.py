"""What QuantizeLinear and DequantizeLinear mean; the steps that the quantised products share."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import FLOATS, dtype_name, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.quantization import (
    EXPONENTS,
    QUANTIZED_INTEGERS,
    DequantizeLinear,
    Quantization,
    QuantizeLinear,
    quantized_axis,
)
from aicore_cpu_numpy.reference._precision import Array, widen
from aicore_cpu_numpy.reference.cast import convert, integer_limits


@kernel(QuantizeLinear, device="cpu")
def quantize_linear(op: QuantizeLinear, x: Array, y_scale: Array, y_zero_point: Array | None = None) -> Any:
    to = op.output_dtype or ("uint8" if y_zero_point is None else dtype_name(y_zero_point.dtype))
    quotient = _divide(x, spread(op, y_scale, x.shape), op.precision or dtype_name(y_scale.dtype))
    zero_point = None if y_zero_point is None else spread(op, y_zero_point, x.shape)
    if to in QUANTIZED_INTEGERS:
        return round_and_saturate(quotient, zero_point, to)
    moved = quotient if zero_point is None else quotient + zero_point.astype(np.float32)
    return convert(moved, to, bool(op.saturate))


@kernel(DequantizeLinear, device="cpu")
def dequantize_linear(op: DequantizeLinear, x: Array, x_scale: Array, x_zero_point: Array | None = None) -> Any:
    to = numpy_dtype(op.output_dtype or dtype_name(x_scale.dtype))
    working = np.float64 if to == np.float64 else np.float32
    exact = np.int64 if dtype_name(x.dtype) in QUANTIZED_INTEGERS | {"int32"} else np.float32
    difference = _plain(x).astype(exact)
    if x_zero_point is not None:
        difference = difference - _plain(spread(op, x_zero_point, x.shape)).astype(exact)
    return (difference.astype(working) * spread(op, x_scale, x.shape).astype(working)).astype(to)


def spread(op: Quantization, parameter: Array, shape: tuple[int, ...]) -> Array:
    """Scales or zero points in a shape that broadcasts to `shape`."""
    if op.block_size:
        axis = quantized_axis(op.axis, len(shape))
        return np.repeat(parameter, op.block_size, axis).take(range(shape[axis]), axis)
    if parameter.size == 1:
        return parameter.reshape(())
    axis = quantized_axis(op.axis, len(shape))
    return parameter.reshape(-1, *(1,) * (len(shape) - axis - 1))


def round_and_saturate(x: Array, zero_point: Array | None, to: str) -> Array:
    """Halves to even, then the zero point, then what is in range of the integer type `to`; NaN counts as 0."""
    low, high = integer_limits(to)
    whole = np.rint(np.where(np.isnan(x), 0, x)).astype(np.float64)  # in which no sum below saturation is rounded
    if zero_point is not None:
        whole = whole + _plain(zero_point)
    return convert(np.clip(whole, low, high), to)


def _divide(x: Array, scale: Array, precision: str) -> Array:
    """The quotient, rounded to the type called `precision` but held in one that NumPy computes in."""
    if precision not in FLOATS:  # int32 needs 53 bits for a quotient that rounds as the exact one; a power of two none
        precision = "float32" if precision == EXPONENTS else "float64"
    to = numpy_dtype(precision)
    left, right = (widen(_plain(a).astype(to)) for a in (x, scale))
    return widen(np.asarray(left / right).astype(to))


def _plain(x: Array) -> Array:
    """Types that NumPy lacks as one that it has and that holds their numbers."""
    name = dtype_name(x.dtype)
    if x.dtype.isbuiltin == 1:
        return x
    return x.astype(np.int8 if name.startswith("int") else np.uint8 if name.startswith("uint") else np.float32)


KERNELS: tuple[Kernel, ...] = (quantize_linear, dequantize_linear)
