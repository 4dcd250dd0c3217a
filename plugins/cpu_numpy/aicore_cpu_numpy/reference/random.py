"""Random numbers as functions of a key: Philox4x32-10, so that every backend draws the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.kernels import Kernel, kernel
from aicore.ops.random import Dropout
from aicore_cpu_numpy.reference._precision import widen

Array = np.ndarray[Any, Any]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(key: Array, stream: int, count: int) -> Array:
    """`count` uniform uint32 numbers: the words of Philox4x32-10 blocks with the counters (block, 0, stream, 0).

    key: two uint32. Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011), section 3.4.
    """
    blocks = -(-count // 4)
    c0 = np.arange(blocks, dtype=np.uint64)
    c1, c3 = np.zeros_like(c0), np.zeros_like(c0)
    c2 = np.full_like(c0, stream & 0xFFFFFFFF)
    k0, k1 = (int(k) for k in key)
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack((c0, c1, c2, c3), axis=1).reshape(-1)[:count].astype(np.uint32)


@kernel(Dropout, device="cpu")
def dropout(
    op: Dropout, x: Array, ratio: Array | None = None, training_mode: Array | None = None, key: Array | None = None
) -> Any:
    trains = bool(op.training_mode) if training_mode is None else bool(training_mode.item())
    chance = float(ratio.item()) if ratio is not None else 0.5 if op.ratio is None else op.ratio
    if not 0 <= chance < 1:
        raise ExecutionError(f"ratio is {chance}, wants 0 to below 1")
    if not trains or key is None:
        kept, y = np.ones(x.shape, bool), x
    else:
        kept = philox(key, op.stream, x.size).reshape(x.shape) >= np.uint32(chance * 2**32)
        wide = widen(x)
        y = np.where(kept, wide / wide.dtype.type(1 - chance), wide.dtype.type(0)).astype(x.dtype)
    return (y, kept) if op.mask else y


KERNELS: tuple[Kernel, ...] = (dropout,)
