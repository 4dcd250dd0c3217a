"""Results that have as many elements as the data say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.selection import Compress, NonZero, Unique

Array = np.ndarray[Any, Any]


@kernel(NonZero, device="cpu")
def non_zero(op: NonZero, x: Array) -> Array:
    if x.ndim == 0:
        return np.zeros((0, int(x != 0)), np.int64)
    return np.stack(np.nonzero(x != np.zeros((), x.dtype) if x.dtype != object else x)).astype(np.int64)


@kernel(Unique, device="cpu")
def unique(op: Unique, x: Array) -> tuple[Array, Array, Array, Array]:
    if op.axis is None:
        _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    else:
        first, inverse, counts = _distinct_slices(np.moveaxis(x, op.axis, 0))
    if not op.sorted:
        order = np.argsort(first)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    values = x.reshape(-1)[first] if op.axis is None else np.take(x, first, op.axis)
    return values, *(found.astype(np.int64).reshape(-1) for found in (first, inverse, counts))  # type: ignore[return-value]


@kernel(Compress, device="cpu")
def compress(op: Compress, x: Array, condition: Array) -> Array:
    length = x.size if op.axis is None else x.shape[op.axis]
    if len(condition) > length:
        raise ExecutionError(f"the condition has {len(condition)} elements for {length}")
    return np.compress(condition, x, op.axis)


def _distinct_slices(slices: Array) -> tuple[Array, Array, Array]:
    """(first occurrence, number of each slice's value, occurrences), the distinct slices in lexicographic order."""
    keys = [tuple(row) for row in slices.reshape(len(slices), math.prod(slices.shape[1:])).tolist()]
    first: dict[tuple[Any, ...], int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    number = {key: i for i, key in enumerate(sorted(first))}
    inverse = np.array([number[key] for key in keys], np.int64)
    counts = np.bincount(inverse, minlength=len(number))
    return np.array([first[key] for key in number], np.int64), inverse, counts


KERNELS: tuple[Kernel, ...] = (non_zero, unique, compress)
