"""What Conv, ConvTranspose and the gradient of their weight mean."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv, ConvTranspose
from aicore.ops.convolution_grad import ConvWeightGrad
from aicore.ops.window import numbers, output_dims
from aicore_cpu_numpy.reference._precision import widen
from aicore_cpu_numpy.reference._windows import windows

Array = np.ndarray[Any, Any]
Index = tuple[Any, ...]


@kernel(Conv, device="cpu")
def conv(op: Conv, x: Array, w: Array, b: Array | None = None) -> Array:
    op = op.settled(x.shape[2:], w.shape[2:], x.ndim - 2)
    dims = numbers(output_dims(op, x.shape[2:], w.shape[2:]))
    patches = windows(widen(x), op, dims, fill=0)
    axes = range(1, w.ndim)  # channels and kernel
    patch_axes = (1, *range(2 + len(dims), patches.ndim))
    parts = [
        np.tensordot(patch, weight, axes=(patch_axes, axes))
        for patch, weight in zip(np.split(patches, op.group, 1), np.split(widen(w), op.group, 0), strict=True)
    ]
    y = np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)
    return np.ascontiguousarray(_biased(y, b)).astype(x.dtype, copy=False)


@kernel(ConvTranspose, device="cpu")
def conv_transpose(op: ConvTranspose, x: Array, w: Array, b: Array | None = None) -> Array:
    kernel_dims = w.shape[2:]
    op = op.settled(kernel_dims, x.ndim - 2)
    out = numbers(op.output_dims(x.shape[2:], kernel_dims))
    begins = op.padding(x.shape[2:], kernel_dims)[: len(out)]
    reach = [
        max((d - 1) * s + (k - 1) * step + 1, begin + o)
        for d, s, k, step, begin, o in zip(x.shape[2:], op.strides, kernel_dims, op.dilations, begins, out, strict=True)
    ]
    groups, maps = op.group, w.shape[1]
    images = widen(x).reshape(x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:]))
    weights = widen(w).reshape(groups, w.shape[0] // groups, maps, *kernel_dims)
    y = np.zeros((x.shape[0], groups * maps, *reach), images.dtype)
    for offset in itertools.product(*map(range, kernel_dims)):
        tap: Index = (..., *offset)
        products = weights[tap].swapaxes(1, 2) @ images
        places: Index = (
            ...,
            *(
                slice(k * step, k * step + (d - 1) * s + 1, s)
                for k, step, d, s in zip(offset, op.dilations, x.shape[2:], op.strides, strict=True)
            ),
        )
        y[places] += products.reshape(x.shape[0], groups * maps, *x.shape[2:])
    kept: Index = (..., *(slice(begin, begin + o) for begin, o in zip(begins, out, strict=True)))
    return np.ascontiguousarray(_biased(y[kept], b)).astype(x.dtype, copy=False)


@kernel(ConvWeightGrad, device="cpu")
def conv_weight_grad(op: ConvWeightGrad, x: Array, dy: Array) -> Array:
    op, dims = op.settled(x.shape[2:]), dy.shape[2:]
    patches = windows(widen(x), op, dims, fill=0)
    summed = (0, *range(2, 2 + len(dims)))  # images and positions
    parts = [
        np.tensordot(gradient, patch, axes=(summed, summed))
        for patch, gradient in zip(np.split(patches, op.group, 1), np.split(widen(dy), op.group, 1), strict=True)
    ]
    return np.concatenate(parts).astype(x.dtype, copy=False)


def _biased(y: Array, b: Array | None) -> Array:
    return y if b is None else y + widen(b).reshape(-1, *(1,) * (y.ndim - 2))


KERNELS: tuple[Kernel, ...] = (conv, conv_transpose, conv_weight_grad)
