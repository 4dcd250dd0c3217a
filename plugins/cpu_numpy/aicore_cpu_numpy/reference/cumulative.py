"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aicore.ir import Op
from aicore.kernels import Kernel, kernel
from aicore.ops.cumulative import CumProd, CumSum
from aicore_cpu_numpy.reference._precision import Array, widen


def cumulative(cls: type[Op], function: Callable[..., Any], neutral: int) -> Kernel:
    """The reference kernel of CumSum or CumProd; `neutral` stands before the first element."""

    def compute(op: Any, x: Array, axis: Array | None = None) -> Any:
        along = op.axis if axis is None else int(axis.ravel()[0])
        wide = np.flip(widen(x), along) if op.reverse else widen(x)
        y = function(wide, axis=along, dtype=wide.dtype)
        if op.exclusive and y.shape[along]:
            before = np.full_like(np.take(y, [0], axis=along), neutral)
            y = np.concatenate([before, np.take(y, np.arange(y.shape[along] - 1), axis=along)], axis=along)
        return (np.flip(y, along) if op.reverse else y).astype(x.dtype)

    return kernel(cls, device="cpu")(compute)


KERNELS: tuple[Kernel, ...] = (cumulative(CumSum, np.cumsum, 0), cumulative(CumProd, np.cumprod, 1))
