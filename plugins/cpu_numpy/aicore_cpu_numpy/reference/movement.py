"""Moving and repeating whole elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.movement import Concat, Expand, Split, Tile, Transpose, equal_pieces
from aicore_cpu_numpy.reference._indices import numbers_of

Array = np.ndarray[Any, Any]


@kernel(Transpose, device="cpu")
def transpose(op: Transpose, x: Array) -> Array:
    return x.transpose(op.perm)


@kernel(Expand, device="cpu")
def expand(op: Expand, x: Array, shape: Array | None = None) -> Array:
    wanted = numbers_of(op.shape, shape)
    try:
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, wanted))
    except ValueError as error:
        raise ExecutionError(f"{x.shape} does not broadcast with the shape {wanted}") from error


@kernel(Tile, device="cpu")
def tile(op: Tile, x: Array, repeats: Array | None = None) -> Array:
    times = numbers_of(op.repeats, repeats)
    if len(times) != x.ndim or any(n < 0 for n in times):
        raise ExecutionError(f"repeats are {times}, want {x.ndim} numbers from 0")
    return np.tile(x, times)


@kernel(Concat, device="cpu")
def concat(op: Concat, *xs: Array) -> Array:
    return np.concatenate(xs, op.axis)


@kernel(Split, device="cpu")
def split(op: Split, x: Array, split: Array | None = None) -> tuple[Array, ...]:
    sizes = _sizes(op, x.shape[op.axis], split)
    ends = np.cumsum(sizes)
    if any(size < 0 for size in sizes) or ends[-1] != x.shape[op.axis]:
        raise ExecutionError(f"sizes {sizes} do not add up to {x.shape[op.axis]}, the dim of axis {op.axis}")
    return tuple(np.split(x, ends[:-1], op.axis))


def _sizes(op: Split, dim: int, split: Array | None) -> tuple[int, ...]:
    if op.split is not None or split is not None:
        return numbers_of(op.split, split)
    return tuple(size for size in equal_pieces(dim, op.n_outputs()) if isinstance(size, int))


KERNELS: tuple[Kernel, ...] = (transpose, expand, tile, concat, split)
