"""Einstein summation."""

from __future__ import annotations

import numpy as np

from aicore.kernels import Kernel, kernel
from aicore.ops.einsum import Einsum
from aicore_cpu_numpy.reference._precision import Array, widen


@kernel(Einsum, device="cpu")
def einsum(op: Einsum, *operands: Array) -> Array:
    result: Array = np.einsum(op.equation, *map(widen, operands))
    return result.astype(operands[0].dtype)  # a copy: a transpose or a diagonal would be a view of the operand


KERNELS: tuple[Kernel, ...] = (einsum,)
