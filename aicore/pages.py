"""Memory in large pages, for what a first run fills: weights, and the arena of the CPU.

The system makes a page when it is first touched. With pages of 4 KiB that takes longer than to fill them, and was a
fifth of the time from a model's file to its first result; Linux hands out 2 MiB in the time of a few of them, where it
is asked to. NumPy asks for arrays of 4 MiB or more.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

ALIGNMENT = 64
"""Bytes of a cache line, and of the widest vector register."""
LARGE_PAGE = 2 << 20
_SHARED = 4 << 20
"""Bytes that small pieces share; they are given back together with the last of them."""

_lock = threading.Lock()
_left: np.ndarray[Any, Any] = np.empty(0, np.uint8)


def aligned_bytes(nbytes: int) -> np.ndarray[Any, Any]:
    """Memory of no content, a uint8 array that begins with a cache line, or with a large page if it fills one.

    What is allocated beside it and never touched takes no memory. Raises MemoryError.
    """
    alignment = ALIGNMENT if nbytes < LARGE_PAGE else LARGE_PAGE
    memory = np.empty(-(-nbytes // alignment) * alignment + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + nbytes]


def shared_bytes(nbytes: int) -> np.ndarray[Any, Any]:
    """The same for arrays that live about as long as others that are made now, such as the weights of a model."""
    global _left  # noqa: PLW0603  # what is left is one per process
    if nbytes >= _SHARED:
        return aligned_bytes(nbytes)
    whole = -(-nbytes // ALIGNMENT) * ALIGNMENT
    with _lock:
        if whole > _left.nbytes:
            _left = aligned_bytes(_SHARED)
        taken, _left = _left[:nbytes], _left[whole:]
    return taken


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array of no content in such memory, in C order."""
    return shared_bytes(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def dense_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in such memory, in C order."""
    copy = empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy
