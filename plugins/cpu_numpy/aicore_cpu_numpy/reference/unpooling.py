"""MaxUnpool: a scatter into zeros."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.unpooling import MaxUnpool
from aicore_cpu_numpy.reference._precision import Array


@kernel(MaxUnpool, device="cpu")
def max_unpool(op: MaxUnpool, x: Array, indices: Array, output_shape: Array | None = None) -> Any:
    if output_shape is not None:
        shape = tuple(output_shape.tolist())
    else:
        shape = op.output_shape or (*x.shape[:2], *op.dims(x.shape[2:]))
    y = np.zeros(math.prod(shape), x.dtype)
    if indices.size and not 0 <= indices.min() <= indices.max() < y.size:
        raise ExecutionError(f"an index is outside of the {y.size} elements of {shape}")
    y[indices.reshape(-1)] = x.reshape(-1)
    return y.reshape(shape)


KERNELS: tuple[Kernel, ...] = (max_unpool,)
