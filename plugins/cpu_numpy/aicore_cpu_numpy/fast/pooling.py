"""Pooling over strided slices: a loop over the offsets of the window, on blocks of channels that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool, settle_pool
from aicore.ops.window import numbers, output_dims
from aicore_cpu_numpy.fast._taps import Geometry, taps
from aicore_cpu_numpy.reference.pooling import averaged_elements

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

FLOATS = frozenset({"float32", "float64"})
ORDERED = FLOATS | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
BLOCK_BYTES = 128 << 10
POINTWISE_RATE, CALL = 1.2e9, 3e-6
"""For estimates: elements per second, and seconds of one NumPy call."""


@lru_cache(maxsize=4096)
def geometry_of(op: MaxPool | AveragePool, spatial: Shape) -> Geometry:
    op = settle_pool(op, spatial)
    dims = output_dims(op, spatial, op.kernel_shape, bool(op.ceil_mode))
    return Geometry.of(op, spatial, numbers(dims))


@lru_cache(maxsize=1024)
def divisors(op: AveragePool, spatial: Shape, dtype: str) -> Array:
    """How many elements each window's mean is over, in the element type of the result; a scalar if all are the same."""
    geometry = geometry_of(op, spatial)
    counts = averaged_elements(settle_pool(op, spatial), spatial, geometry.dims).astype(dtype)
    same = counts.size > 0 and bool((counts == counts.flat[0]).all())
    return counts.ravel()[:1].reshape(()) if same else counts


def _static(op: object, x: TensorType) -> str | None:
    return None if x.is_static else "needs a shape that is known in numbers"


def _without_indices(op: MaxPool, x: TensorType) -> str | None:
    return "does not find indices" if op.indices else _static(op, x)


def _window_seconds(op: MaxPool | AveragePool, x: TensorType) -> float:
    geometry = geometry_of(op, x.static_shape[2:])
    channels = math.prod(x.static_shape[:2])
    blocks = -(-channels // _channels(geometry, channels, numpy_dtype(x.dtype).itemsize))
    return geometry.offsets * (channels * geometry.positions / POINTWISE_RATE + blocks * CALL)


def _global_seconds(op: object, x: TensorType) -> float:
    return math.prod(x.static_shape) / POINTWISE_RATE + CALL


def _channels(geometry: Geometry, channels: int, itemsize: int) -> int:
    """Channels of a block."""
    return min(max(BLOCK_BYTES // max(geometry.positions * itemsize, 1), 1), max(channels, 1))


def _blocks(geometry: Geometry, x: Array, out: Array) -> Iterator[tuple[Array, Array]]:
    """Blocks of channels of input and output, images being so many more channels."""
    channels = math.prod(x.shape[:2])
    source, target = x.reshape(channels, *geometry.spatial), out.reshape(channels, *geometry.dims)
    step = _channels(geometry, channels, x.itemsize)
    for start in range(0, channels, step):
        yield source[start : start + step], target[start : start + step]


@kernel(
    MaxPool,
    device="cpu",
    variant="strided",
    dtypes=ORDERED,
    supports=_without_indices,
    estimate=_window_seconds,
)
def max_pool_strided(op: MaxPool, x: Array, *, out: Array) -> None:
    geometry = geometry_of(op, x.shape[2:])
    found = taps(geometry, 0, geometry.dims[0])
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    for source, target in _blocks(geometry, x, out):
        target.fill(lowest)
        for tap in found:
            place = target[tap.target]
            np.maximum(place, source[tap.source], out=place)


@kernel(
    AveragePool,
    device="cpu",
    variant="strided",
    dtypes=FLOATS,
    supports=_static,
    estimate=_window_seconds,
)
def average_pool_strided(op: AveragePool, x: Array, *, out: Array) -> None:
    geometry = geometry_of(op, x.shape[2:])
    found = taps(geometry, 0, geometry.dims[0])
    counts = divisors(op, x.shape[2:], x.dtype.name)
    for source, target in _blocks(geometry, x, out):
        target.fill(0)
        for tap in found:
            place = target[tap.target]
            np.add(place, source[tap.source], out=place)
        np.divide(target, counts, out=target)


@kernel(GlobalAveragePool, device="cpu", variant="sum", dtypes=FLOATS, supports=_static, estimate=_global_seconds)
def global_average_pool_sum(op: GlobalAveragePool, x: Array, *, out: Array) -> None:
    size = math.prod(x.shape[2:])
    totals = out.reshape(x.shape[:2])
    np.add.reduce(x.reshape(*x.shape[:2], size), axis=2, out=totals)
    with np.errstate(invalid="ignore"):  # no elements: 0 / 0
        np.divide(totals, size, out=totals)


@kernel(GlobalMaxPool, device="cpu", variant="max", dtypes=FLOATS, supports=_static, estimate=_global_seconds)
def global_max_pool_max(op: GlobalMaxPool, x: Array, *, out: Array) -> None:
    flat = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))
    np.maximum.reduce(flat, axis=2, out=out.reshape(x.shape[:2]), initial=-np.inf)


KERNELS: tuple[Kernel, ...] = (
    max_pool_strided,
    average_pool_strided,
    global_average_pool_sum,
    global_max_pool_max,
)
