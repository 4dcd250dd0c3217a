"""BitCast: a view, but for types that fill only a part of their byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.ir import numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.bits import BitCast, bits_of
from aicore_cpu_numpy.reference._precision import Array


@kernel(BitCast, device="cpu")
def bit_cast(op: BitCast, x: Array) -> Any:
    to, bits = numpy_dtype(op.to), bits_of(op.to)
    dense = np.array(x, order="C")
    if op.to == "bool":
        return dense.view(np.uint8) != 0
    if bits >= 8:
        return dense.view(to)
    codes = dense.view(np.uint8) & np.uint8(2**bits - 1)
    if op.to.startswith("uint"):
        return codes.astype(to)
    if op.to.startswith("int"):  # the upper half of the codes are the negative numbers
        return np.where(codes < 2 ** (bits - 1), codes, codes - 2.0**bits).astype(np.int8).astype(to)
    return codes.view(to)


KERNELS: tuple[Kernel, ...] = (bit_cast,)
