"""Indices as ONNX takes them: from -dim to dim - 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicore.errors import ExecutionError

Array = np.ndarray[Any, Any]


def counted_from_front(indices: Array, dim: int, axis: int, what: str = "indices") -> Array:
    """The indices as int64 from 0 to dim - 1; raises ExecutionError naming the first that is out of range."""
    need_in_range(indices, dim, axis, what)
    wide = indices.astype(np.int64)
    return np.where(wide < 0, wide + dim, wide)


def need_in_range(indices: Array, dim: int, axis: int, what: str = "indices") -> None:
    """Raise ExecutionError naming the first index that is below -dim or above dim - 1."""
    if indices.size == 0 or (indices.min() >= -dim and indices.max() < dim):
        return
    place = np.unravel_index(np.argmax((indices < -dim) | (indices >= dim)), indices.shape)
    where = ", ".join(str(int(i)) for i in place)
    raise ExecutionError(f"{what}[{where}] is {indices[place]}, out of range for axis {axis}, which has {dim} elements")


def numbers_of(field: Sequence[int] | None, operand: Array | None) -> tuple[int, ...]:
    """Numbers that are a field, or else an operand of this run."""
    if field is not None:
        return tuple(field)
    if operand is None:
        raise ExecutionError("neither a field nor an operand gives the numbers")
    return tuple(int(n) for n in operand.reshape(-1))
