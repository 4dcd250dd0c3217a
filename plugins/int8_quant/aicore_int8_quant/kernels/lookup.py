"""Int8Lookup by NumPy's take."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.quantized_linear import EIGHT_BITS
from aicore_int8_quant.ops.lookup import Int8Lookup

Array = np.ndarray[Any, Any]

_RATE, _CALL = 1e9, 3e-6
"""For estimates: elements per second of one core, and seconds of one NumPy call."""


def _seconds(op: Int8Lookup, x: TensorType, table: TensorType) -> float:
    return float(np.prod(x.static_shape)) / _RATE + 2 * _CALL


@kernel(
    Int8Lookup,
    device="cpu",
    variant="take",
    dtypes=EIGHT_BITS,
    supports=lambda op, x, table: None if x.is_static else "needs shapes that are known in numbers",
    estimate=_seconds,
)
def int8_lookup_take(op: Int8Lookup, x: Array, table: Array, *, out: Array) -> None:
    if x.dtype == np.int8:  # as unsigned bytes, codes from 0 come first
        x, table = x.view(np.uint8), np.roll(table, 128)
    np.take(table, x, out=out, mode="clip")


KERNELS: tuple[Kernel, ...] = (int8_lookup_take,)
