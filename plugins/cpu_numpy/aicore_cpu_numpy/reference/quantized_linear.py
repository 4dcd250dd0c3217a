"""What products and convolutions of 8-bit integers mean: differences, sums that wrap in int32, and requantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import dtype_name
from aicore.kernels import Kernel, kernel
from aicore.ops.quantized_linear import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul, as_conv
from aicore.ops.window import numbers, output_dims
from aicore_cpu_numpy.reference._precision import Array
from aicore_cpu_numpy.reference._windows import windows
from aicore_cpu_numpy.reference.quantization import round_and_saturate


@kernel(MatMulInteger, device="cpu")
def matmul_integer(
    op: MatMulInteger, a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None
) -> Any:
    return _matmul(a, a_zero_point, b, b_zero_point)


@kernel(QLinearMatMul, device="cpu")
def qlinear_matmul(
    op: QLinearMatMul,
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Any:
    sums = _matmul(a, a_zero_point, b, b_zero_point)
    return requantize(sums, matmul_multiplier(a, a_scale, b, b_scale, y_scale), y_zero_point)


@kernel(ConvInteger, device="cpu")
def conv_integer(
    op: ConvInteger, x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None
) -> Any:
    return _convolve(op, x, x_zero_point, w, w_zero_point)


@kernel(QLinearConv, device="cpu")
def qlinear_conv(
    op: QLinearConv,
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    b: Array | None = None,
) -> Any:
    sums = _convolve(op, x, x_zero_point, w, w_zero_point)
    if b is not None:
        sums = sums + b.reshape(-1, *(1,) * (x.ndim - 2))
    multiplier = multiplier_of(x_scale, w_scale, y_scale).reshape(-1, *(1,) * (x.ndim - 2))
    return requantize(sums, multiplier, y_zero_point)


def multiplier_of(x_scale: Array, w_scale: Array, y_scale: Array) -> Array:
    """By what a sum is multiplied: float32, rounded once."""
    product = x_scale.astype(np.float64) * w_scale.astype(np.float64)
    return np.asarray(product / y_scale.astype(np.float64).reshape(())).astype(np.float32)


def matmul_multiplier(a: Array, a_scale: Array, b: Array, b_scale: Array, y_scale: Array) -> Array:
    """The same for a matrix product, in a shape that broadcasts to the result's."""
    multiplier = multiplier_of(by_row(a_scale, a), by_column(b_scale, b), y_scale)
    return multiplier.reshape(()) if multiplier.size == 1 else multiplier


def requantize(sums: Array, multiplier: Array, zero_point: Array) -> Array:
    """The int32 sums as integers of the zero point's type."""
    scaled = sums.astype(np.float32) * multiplier
    return round_and_saturate(scaled, zero_point.reshape(()), dtype_name(zero_point.dtype))


def by_row(parameter: Array, a: Array) -> Array:
    """Scales or zero points of a, in a shape that broadcasts to its."""
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape(-1, 1) if parameter.ndim == 1 else parameter


def by_column(parameter: Array, b: Array) -> Array:
    """Those of b, in the same way."""
    return parameter.reshape(()) if parameter.size == 1 else parameter


def _matmul(a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None) -> Any:
    left, right = a.astype(np.int32), b.astype(np.int32)
    if a_zero_point is not None:
        left = left - by_row(a_zero_point, a).astype(np.int32)
    if b_zero_point is not None:
        right = right - by_column(b_zero_point, b).astype(np.int32)
    return np.matmul(left, right)


def _convolve(
    op: ConvInteger | QLinearConv, x: Array, x_zero_point: Array | None, w: Array, w_zero_point: Array | None
) -> Array:
    conv = as_conv(op).settled(x.shape[2:], w.shape[2:], x.ndim - 2)
    dims = numbers(output_dims(conv, x.shape[2:], w.shape[2:]))
    images, weights = x.astype(np.int32), w.astype(np.int32)
    if x_zero_point is not None:
        images = images - x_zero_point.astype(np.int32).reshape(())
    if w_zero_point is not None:
        weights = weights - w_zero_point.astype(np.int32).reshape(-1, *(1,) * (w.ndim - 1))
    patches = windows(images, conv, dims, fill=0)
    axes = range(1, w.ndim)  # channels and kernel
    patch_axes = (1, *range(2 + len(dims), patches.ndim))
    parts = [
        np.tensordot(patch, weight, axes=(patch_axes, axes))
        for patch, weight in zip(np.split(patches, op.group, 1), np.split(weights, op.group, 0), strict=True)
    ]
    return np.ascontiguousarray(np.moveaxis(np.concatenate(parts, axis=-1), -1, 1))


KERNELS: tuple[Kernel, ...] = (matmul_integer, qlinear_matmul, conv_integer, qlinear_conv)
