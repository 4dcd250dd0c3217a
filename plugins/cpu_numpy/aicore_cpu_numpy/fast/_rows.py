"""Kernels that treat a tensor as rows take a few at a time, so that several passes over them stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BLOCK_ELEMENTS = 32768
_ALIGNMENT = 64


def rows_of_block(rows: int, columns: int) -> int:
    """How many rows to take at a time: at least one, at most all."""
    return max(1, min(rows, BLOCK_ELEMENTS // max(columns, 1)))


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows, the largest first."""
    step = rows_of_block(rows, columns)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def view_as(array: Array, shape: Sequence[int]) -> Array:
    """The array in another shape. Raises ValueError where that takes a copy, which no kernel may read or write."""
    view = array.reshape(shape)
    if not array.flags.c_contiguous and view.size and not np.may_share_memory(view, array):
        raise ValueError(f"{array.shape} with strides {array.strides} cannot be seen as {tuple(shape)}")
    return view


def split_axis(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """(elements before the axis, along it, after it)."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def carved_bytes(*sizes: int) -> int:
    """Workspace for several arrays of so many bytes."""
    return sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)


def carve(workspace: Array, dtype: np.dtype[Any], *shapes: tuple[int, ...]) -> list[Array]:
    """Arrays of these shapes, one after another in the workspace."""
    arrays, start = [], 0
    for shape in shapes:
        size = math.prod(shape) * dtype.itemsize
        arrays.append(workspace[start : start + size].view(dtype).reshape(shape))
        start += -(-size // _ALIGNMENT) * _ALIGNMENT
    return arrays
