"""What the pools mean, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.pooling import (
    AveragePool,
    GlobalAveragePool,
    GlobalLpPool,
    GlobalMaxPool,
    LpPool,
    MaxPool,
    settle_pool,
)
from aicore.ops.pooling_grad import AveragePoolGrad, MaxPoolGrad
from aicore.ops.window import W, Windowed, numbers, output_dims
from aicore_cpu_numpy.reference._precision import widen
from aicore_cpu_numpy.reference._windows import windows

Array = np.ndarray[Any, Any]


@kernel(MaxPool, device="cpu")
def max_pool(op: MaxPool, x: Array) -> Array | tuple[Array, Array]:
    op, dims = _settled(op, x)
    wide = widen(x)
    lowest = -np.inf if wide.dtype.kind == "f" else np.iinfo(wide.dtype).min
    taps = _flat_windows(wide, op, dims, lowest)
    y = taps.max(axis=-1)
    if not op.indices:
        return np.asarray(y, x.dtype)
    inside = _flat_windows(np.ones(x.shape, bool), op, dims, False)
    largest = inside & ((taps == y[..., None]) | (taps != taps))  # NaN, which is the largest then, differs from itself
    place = _flat_windows(_places(x.shape, op.storage_order), op, dims, 0)
    indices = np.take_along_axis(place, largest.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    return np.asarray(y, x.dtype), indices


@kernel(AveragePool, device="cpu")
def average_pool(op: AveragePool, x: Array) -> Array:
    op, dims = _settled(op, x)
    total = _flat_windows(widen(x), op, dims, 0).sum(axis=-1)
    return np.asarray(total / averaged_elements(op, x.shape[2:], dims), x.dtype)


@kernel(MaxPoolGrad, device="cpu")
def max_pool_grad(op: MaxPoolGrad, x: Array, dy: Array) -> Array:
    op, dims = _settled(op, x)
    taps = _flat_windows(widen(x), op, dims, -np.inf)
    inside = _flat_windows(np.ones(x.shape, bool), op, dims, False)
    largest = inside & ((taps == taps.max(axis=-1, keepdims=True)) | (taps != taps))  # NaN is not equal to itself
    first = largest.argmax(axis=-1)[..., None]
    place = np.take_along_axis(_flat_windows(_places(x.shape, 0), op, dims, 0), first, axis=-1)[..., 0]
    found = largest.any(axis=-1)
    dx = np.zeros(x.size, widen(dy).dtype)
    np.add.at(dx, place[found], widen(dy)[found])
    return dx.reshape(x.shape).astype(x.dtype, copy=False)


@kernel(AveragePoolGrad, device="cpu")
def average_pool_grad(op: AveragePoolGrad, dy: Array, shape: Array | None = None) -> Array:
    spatial = tuple(shape.tolist()) if op.shape is None and shape is not None else op.shape or ()
    op, dims = settle_pool(op, spatial), dy.shape[2:]
    share = widen(dy) / averaged_elements(op, spatial, dims)
    x_shape = (*dy.shape[:2], *spatial)
    inside = _flat_windows(np.ones(x_shape, bool), op, dims, False)
    place = _flat_windows(_places(x_shape, 0), op, dims, 0)
    dx = np.zeros(math.prod(x_shape), share.dtype)
    np.add.at(dx, place[inside], np.broadcast_to(share[..., None], place.shape)[inside])
    return dx.reshape(x_shape).astype(dy.dtype, copy=False)


@kernel(LpPool, device="cpu")
def lp_pool(op: LpPool, x: Array) -> Array:
    op, dims = _settled(op, x)
    powers = np.abs(_flat_windows(widen(x), op, dims, 0)) ** op.p
    return np.asarray(powers.sum(axis=-1) ** (1 / op.p), x.dtype)


@kernel(GlobalAveragePool, device="cpu")
def global_average_pool(op: GlobalAveragePool, x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # no elements: 0 / 0
        return (_over_spatial(np.sum, widen(x)) / np.float32(math.prod(x.shape[2:]))).astype(x.dtype)


@kernel(GlobalMaxPool, device="cpu")
def global_max_pool(op: GlobalMaxPool, x: Array) -> Array:
    return _over_spatial(lambda v, **how: np.max(v, initial=-np.inf, **how), widen(x)).astype(x.dtype, copy=False)


@kernel(GlobalLpPool, device="cpu")
def global_lp_pool(op: GlobalLpPool, x: Array) -> Array:
    return (_over_spatial(np.sum, np.abs(widen(x)) ** op.p) ** (1 / op.p)).astype(x.dtype)


def averaged_elements(op: AveragePool | AveragePoolGrad, spatial: Sequence[int], dims: Sequence[int]) -> Array:
    """How many elements each window's mean is over: of `x` alone, or of padding too, but never what lies beyond."""
    count = len(dims)
    along = []
    for i, (size, positions) in enumerate(zip(spatial, dims, strict=True)):
        low, high = (-op.pads[i], size + op.pads[count + i]) if op.count_include_pad else (0, size)
        first = np.arange(positions) * op.strides[i] - op.pads[i]
        # Offsets below ceil((end - first) / dilation) lie before `end`.
        before = [np.clip(-((first - end) // op.dilations[i]), 0, op.kernel_shape[i]) for end in (low, high)]
        along.append(before[1] - before[0])
    return reduce(np.multiply.outer, along)


def _settled(op: W, x: Array) -> tuple[W, tuple[int, ...]]:
    """The pool with its defaults, and the output's spatial dims."""
    op = settle_pool(op, x.shape[2:])
    dims = output_dims(op, x.shape[2:], op.kernel_shape, bool(getattr(op, "ceil_mode", 0)))
    return op, numbers(dims)


def _flat_windows(x: Array, op: Windowed, dims: Sequence[int], fill: Any) -> Array:
    """(N, C, dims..., elements of the window in row-major order)."""
    found = windows(x, op, dims, fill)
    return found.reshape(*found.shape[: 2 + len(dims)], math.prod(op.kernel_shape))


def _places(shape: Sequence[int], storage_order: int) -> Array:
    """For each element, its index in the flattened input; each channel column by column if `storage_order` is 1."""
    images, channels, *spatial = shape
    size = math.prod(spatial)
    within = np.arange(size).reshape(spatial, order="F" if storage_order else "C")
    starts = np.arange(images * channels).reshape(images, channels, *(1,) * len(spatial)) * size
    return (starts + within).astype(np.int64)


def _over_spatial(reduction: Callable[..., Any], x: Array) -> Array:
    result: Array = reduction(x, axis=tuple(range(2, x.ndim)), keepdims=True)
    return result


KERNELS: tuple[Kernel, ...] = (
    max_pool,
    average_pool,
    max_pool_grad,
    average_pool_grad,
    lp_pool,
    global_average_pool,
    global_max_pool,
    global_lp_pool,
)
