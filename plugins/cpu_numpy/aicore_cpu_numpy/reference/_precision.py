"""Narrow floating point is computed in float32 and rounded once, at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import dtype_name

Array = np.ndarray[Any, Any]

_NARROW = frozenset({"float16", "bfloat16"})


def widen(x: Array) -> Array:
    """float16 and bfloat16 as float32; everything else as it is."""
    return x.astype(np.float32) if dtype_name(x.dtype) in _NARROW else x
