"""DeformConv: the moved windows are read into columns, and the rest is a matrix product."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv
from aicore.ops.deformable import DeformConv
from aicore.ops.window import numbers, output_dims
from aicore_cpu_numpy.reference._precision import Array, widen


@kernel(DeformConv, device="cpu")
def deform_conv(
    op: DeformConv, x: Array, w: Array, offset: Array, b: Array | None = None, mask: Array | None = None
) -> Any:
    conv = op.as_conv().settled(x.shape[2:], w.shape[2:], x.ndim - 2)
    dims = numbers(output_dims(conv, x.shape[2:], w.shape[2:]))
    images, count = widen(x), math.prod(w.shape[2:])
    places = _places(conv, dims) + widen(offset).reshape(len(x), op.offset_group, count, len(dims), *dims)
    channels = images.reshape(len(x), op.offset_group, x.shape[1] // op.offset_group, *x.shape[2:])
    columns = _read(channels, np.moveaxis(places, 3, 0))
    if mask is not None:
        columns = columns * widen(mask).reshape(len(x), op.offset_group, 1, count, *dims)
    columns = columns.reshape(len(x), op.group, w.shape[1] * count, math.prod(dims))
    weights = widen(w).reshape(op.group, w.shape[0] // op.group, w.shape[1] * count)
    y = np.matmul(weights, columns).reshape(len(x), w.shape[0], *dims)
    if b is not None:
        y = y + widen(b).reshape(-1, *(1,) * len(dims))
    return y.astype(x.dtype, copy=False)


def _places(op: Conv, dims: tuple[int, ...]) -> Array:
    """Where the windows of a plain convolution read: (kernel elements, spatial dims, *dims)."""
    count = len(dims)
    windows = np.indices(dims).reshape(1, count, *dims)
    elements = np.indices(op.kernel_shape).reshape(count, -1).T.reshape(-1, count, *(1,) * count)
    strides, dilations, begins = (
        np.array(found).reshape(1, count, *(1,) * count) for found in (op.strides, op.dilations, op.pads[:count])
    )
    return np.asarray(windows * strides + elements * dilations - begins)


def _read(x: Array, places: Array) -> Array:
    """Numbers of x (N, G, C, spatial...) at places (spatial dims, N, G, ...), interpolated: (N, G, C, ...)."""
    sizes, (batch, groups, channels), shape = x.shape[3:], x.shape[:3], places.shape[3:]
    flat = x.reshape(batch, groups, channels, math.prod(sizes))
    found = np.zeros((batch, groups, channels, math.prod(shape)), x.dtype)
    if not flat.size:
        return found.reshape(batch, groups, channels, *shape)
    low, whole = np.floor(places), (batch, groups, 1, math.prod(shape))
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        share, index, inside = np.ones(places.shape[1:], x.dtype), np.zeros(places.shape[1:], np.int64), True
        for axis, (step, size) in enumerate(zip(corner, sizes, strict=True)):
            place = low[axis] + step
            share = share * (1 - np.abs(places[axis] - place))
            inside = inside & (place >= 0) & (place < size)
            index = index * size + np.clip(np.nan_to_num(place), 0, size - 1).astype(np.int64)
        taken = np.take_along_axis(flat, index.reshape(whole), axis=3)
        found += np.where(inside, share, 0).reshape(whole).astype(x.dtype) * taken
    return found.reshape(batch, groups, channels, *shape)


KERNELS: tuple[Kernel, ...] = (deform_conv,)
