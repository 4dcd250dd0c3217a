"""Conversions between element types, with the choices that aicore makes where ONNX leaves them open."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import FLOATS, INTEGERS, dtype_name, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.cast import Cast, CastLike
from aicore_cpu_numpy.reference._precision import Array

NARROW_INTEGERS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4}
"""Bits of the integer types that NumPy lacks."""
LARGEST_FLOAT8 = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0, "float8_e5m2fnuz": 57344.0}


@kernel(Cast, device="cpu")
def cast(op: Cast, x: Array) -> Array:
    return convert(x, op.to, bool(op.saturate), op.round_mode)


@kernel(CastLike, device="cpu")
def cast_like(op: CastLike, x: Array, target_type: Array) -> Array:
    return convert(x, dtype_name(target_type.dtype), bool(op.saturate), op.round_mode)


def convert(x: Array, to: str, saturate: bool = True, round_mode: str = "up") -> Array:
    """The elements of x as the type called `to`; see the op Cast for what happens at the limits.

    Raises ValueError for a string that is no number.
    """
    source = dtype_name(x.dtype)
    if source == to:
        return x.copy()
    if source == "string":
        return _parse(x, to)
    if source not in FLOATS | INTEGERS | {"bool"}:  # each of those fits in a type of NumPy without loss
        x = x.astype(np.int8 if source.startswith("int") else np.uint8 if source.startswith("uint") else np.float32)
    if to == "string":
        return _print(x)
    if to == "bool":
        return np.asarray(x != 0)
    if to in INTEGERS or to in NARROW_INTEGERS:
        return _to_integer(x, to)
    if to == "float8_e8m0fnu":
        return _to_exponent(x, saturate, round_mode)
    if to.startswith("float8") and saturate:
        x = _within_float8(x, to)
    return np.asarray(x.astype(numpy_dtype(to)))


def integer_limits(name: str) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    bits = NARROW_INTEGERS.get(name) or np.iinfo(name).bits
    return (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _to_integer(x: Array, to: str) -> Array:
    wide = np.uint64 if to == "uint64" else np.int64
    low, high = integer_limits("int64" if to in NARROW_INTEGERS else to)
    if x.dtype.kind in "iub":
        return _keep_low_bits(x.astype(wide), to)
    whole = np.trunc(x.astype(np.float64))  # NaN stays, and fails every comparison
    above, below = whole >= float(high + 1), whole < float(low)  # powers of two: exact in float64
    inside = np.where(above | below | np.isnan(whole), 0, whole).astype(wide)
    saturated = np.where(above, wide(high), np.where(below, wide(low), inside))
    return _keep_low_bits(saturated, to)


def _keep_low_bits(x: Array, to: str) -> Array:
    if to not in NARROW_INTEGERS:
        return np.asarray(x.astype(numpy_dtype(to)))
    low, high = integer_limits(to)
    wrapped = (x - low) % (high - low + 1) + low
    return np.asarray(wrapped.astype(np.int8).astype(numpy_dtype(to)))


def _within_float8(x: Array, to: str) -> Array:
    largest = LARGEST_FLOAT8[to]
    return np.asarray(np.clip(x.astype(np.float64), -largest, largest))


def _to_exponent(x: Array, saturate: bool, round_mode: str) -> Array:
    """float8_e8m0fnu holds a power of two from 2**-127 to 2**127, or NaN as 255; no sign and no zero."""
    wide = np.asarray(x, np.float64)
    mantissa, exponent = np.frexp(wide)  # 0.5 <= mantissa < 1
    step = {"up": mantissa > 0.5, "down": np.zeros_like(mantissa, bool), "nearest": mantissa >= 0.75}[round_mode]
    power = np.where(wide == 0, -128, np.where(np.isinf(wide), 128, exponent - 1 + step))
    code = np.clip(power + 127, 0, 254) if saturate else np.where((power < -127) | (power > 127), 255, power + 127)
    code = np.where(np.isnan(wide) | (wide < 0), 255, code)
    return np.asarray(code.astype(np.uint8).view(numpy_dtype("float8_e8m0fnu")))


def _parse(x: Array, to: str) -> Array:
    parsed = [_number(text, to) for text in x.ravel().tolist()]
    if to in INTEGERS and all(isinstance(number, int) for number in parsed):
        return np.array(parsed, numpy_dtype(to)).reshape(x.shape)
    return convert(np.array(parsed, np.float64).reshape(x.shape), to)


def _number(text: Any, to: str) -> Any:
    text = text.decode() if isinstance(text, bytes) else text
    try:
        return int(text) if to in INTEGERS else float(text)
    except ValueError:
        return float(text)


def _print(x: Array) -> Array:
    """Shortest text that reads back as the same number in its own type."""
    texts = np.empty(x.shape, object)
    for index, number in np.ndenumerate(x):
        texts[index] = str(number)
    return texts


KERNELS: tuple[Kernel, ...] = (cast, cast_like)
