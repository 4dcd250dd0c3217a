"""Element types by name. ml_dtypes supplies those that NumPy lacks, when asked for."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from aicore.errors import UnsupportedError

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
SIGNED = frozenset({"int8", "int16", "int32", "int64"})
UNSIGNED = frozenset({"uint8", "uint16", "uint32", "uint64"})
INTEGERS = SIGNED | UNSIGNED
NUMBERS = FLOATS | INTEGERS
COMPLEX = frozenset({"complex64", "complex128"})
NARROW = frozenset(
    {
        "int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
        "float8_e5m2fnuz", "float8_e8m0fnu",
    }
)  # fmt: skip
DTYPES = NUMBERS | COMPLEX | NARROW | {"bool", "string"}


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype that holds elements of the type called `name`; strings are objects.

    Raises UnsupportedError for a name that is not in DTYPES.
    """
    if name not in DTYPES:
        raise UnsupportedError(f"no element type is called {name!r}; known are {', '.join(sorted(DTYPES))}")
    if name == "string":
        return np.dtype(object)
    if name == "bfloat16" or name in NARROW:
        import ml_dtypes

        narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return narrow
    return np.dtype(name)


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a NumPy dtype.

    Raises UnsupportedError for dtypes that no tensor can have (dates, records, long doubles).
    """
    if dtype.kind in "OUST":
        return "string"
    name = dtype.newbyteorder("=").name
    if name not in DTYPES:
        raise UnsupportedError(f"NumPy dtype {dtype} has no counterpart; known are {', '.join(sorted(DTYPES))}")
    return name
