"""Arrays in .npy and .npz files without pickle, whatever their element type."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import dtype_name, numpy_dtype

Array = np.ndarray[Any, Any]


def to_plain(array: Array) -> tuple[Array, str]:
    """(an array that .npy holds without pickle, the name of the element type that it stands for)."""
    name = dtype_name(array.dtype)
    if array.dtype.hasobject:
        return np.array([str(x) for x in array.ravel()], np.str_).reshape(array.shape), name
    if array.dtype.kind == "V" or array.dtype.name not in np.sctypeDict:  # types that ml_dtypes adds
        return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape), name
    return array, name


def from_plain(array: Array, name: str) -> Array:
    """The array that `to_plain` was given."""
    dtype = numpy_dtype(name)
    if name == "string":
        return array.astype(object)
    return array if array.dtype == dtype else array.view(dtype)
