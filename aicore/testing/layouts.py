"""The same numbers, laid out in memory as views of other arrays have them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LAYOUTS = ("reversed", "transposed", "every_other", "unaligned")


def lay_out(array: Array, layout: str) -> Array:
    """A copy of the array with the strides that the layout names.

    dense: in C order. reversed: negative strides along every axis. transposed: in Fortran order. every_other: twice the
    stride along the last axis. unaligned: dense, at an odd address.
    """
    if layout == "dense" or array.dtype.hasobject or not array.ndim:
        return np.array(array, order="C")
    match layout:
        case "reversed":
            back = (slice(None, None, -1),) * array.ndim
            return np.array(array[back], order="C")[back]
        case "transposed":
            return np.array(array, order="F")
        case "every_other":
            room = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
            room[..., ::2] = array
            return room[..., ::2]
        case "unaligned":
            view: Array = np.ndarray(array.shape, array.dtype, np.zeros(array.nbytes + 1, np.uint8), offset=1)
            view[...] = array
            return view
    raise ValueError(f"layout {layout!r} is none of dense, {', '.join(LAYOUTS)}")


def same_bytes(a: Array, b: Array) -> bool:
    """Whether both hold the same bits, NaN payloads and signs of zeros included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.hasobject:
        return bool(np.array_equal(a, b))
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
