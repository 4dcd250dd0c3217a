"""Writing elements to computed places of a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.scatter import Col2Im, ScatterElements, ScatterND, TensorScatter
from aicore_cpu_numpy.reference._indices import counted_from_front, numbers_of
from aicore_cpu_numpy.reference._precision import widen

Array = np.ndarray[Any, Any]

REDUCE: dict[str, Callable[..., Any]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


@kernel(ScatterElements, device="cpu")
def scatter_elements(op: ScatterElements, x: Array, indices: Array, updates: Array) -> Array:
    y = x.copy()
    write_elements(op, y, indices, updates)
    return y


@kernel(ScatterND, device="cpu")
def scatter_nd(op: ScatterND, x: Array, indices: Array, updates: Array) -> Array:
    y = x.copy()
    write_slices(op, y, indices, updates)
    return y


@kernel(TensorScatter, device="cpu")
def tensor_scatter(op: TensorScatter, x: Array, update: Array, write_indices: Array | None = None) -> Array:
    y = x.copy()
    write_update(op, y, update, write_indices)
    return y


def write_elements(op: ScatterElements, y: Array, indices: Array, updates: Array) -> None:
    axis = op.axis % y.ndim
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = counted_from_front(indices, y.shape[axis], axis)
    _write(y, tuple(places), updates, op.reduction)


def write_slices(op: ScatterND, y: Array, indices: Array, updates: Array) -> None:
    columns = [
        counted_from_front(indices[..., i], y.shape[i], i, f"indices[..., {i}]") for i in range(indices.shape[-1])
    ]
    _write(y, tuple(columns), updates, op.reduction)


def write_update(op: TensorScatter, y: Array, update: Array, write_indices: Array | None) -> None:
    axis = op.axis % y.ndim
    length = y.shape[axis]
    for batch in range(y.shape[0]):
        start = 0 if write_indices is None else int(write_indices[batch])
        places = np.arange(start, start + update.shape[axis])
        if op.mode == "circular":
            places %= length
        elif start < 0 or start + update.shape[axis] > length:
            raise ExecutionError(
                f"write_indices[{batch}] is {start}: an update of {update.shape[axis]} does not fit into {length}"
            )
        y[batch].swapaxes(0, axis - 1)[places] = update[batch].swapaxes(0, axis - 1)


@kernel(Col2Im, device="cpu")
def col2im(op: Col2Im, x: Array, image_shape: Array | None = None, block_shape: Array | None = None) -> Array:
    image, block = numbers_of(op.image_shape, image_shape), numbers_of(op.block_shape, block_shape)
    rank = len(image)
    strides, pads, dilations = op.window(rank)
    padded = [image[i] + pads[i] + pads[rank + i] for i in range(rank)]
    counts = [(padded[i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    wide = widen(x)
    y = np.zeros((x.shape[0], x.shape[1] // int(np.prod(block)), *padded), wide.dtype)
    columns = wide.reshape(*y.shape[:2], *block, *counts)
    for offset in np.ndindex(*block):
        covered = tuple(
            slice(place * dilation, place * dilation + (count - 1) * stride + 1, stride)
            for place, dilation, count, stride in zip(offset, dilations, counts, strides, strict=True)
        )
        y[:, :, *covered] += columns[:, :, *offset]
    inner = tuple(slice(pads[i], pads[i] + image[i]) for i in range(rank))
    return y[:, :, *inner].astype(x.dtype, copy=False)


def _write(y: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> None:
    if reduction == "none":
        y[places] = updates
    else:
        REDUCE[reduction](y, places, updates)


KERNELS: tuple[Kernel, ...] = (scatter_elements, scatter_nd, tensor_scatter, col2im)
