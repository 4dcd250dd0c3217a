"""Dropout in training: Philox in pieces that stay in the cache, all of whose steps are calls on whole pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.random import Dropout

Array = np.ndarray[Any, Any]

_PIECE = 4096
"""Counters of a piece; each gives four words."""
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS, _KEY = 10, 3
_COUNTERS = np.arange(_PIECE, dtype=np.uint64)
_BITS = {4: np.uint32, 8: np.uint64}
_EACH, _CALL = 10e-9, 1e-6


def _supports(op: Dropout, *types: TensorType | None) -> str | None:
    if not op.training_mode or any(t is not None for t in types[1:_KEY]):
        return "needs a ratio that is known before the run, and training mode"
    x = types[0]
    return None if x is not None and x.is_static else "needs shapes that are known in numbers"


def _workspace(op: Dropout, x: TensorType, *others: TensorType | None) -> int:
    piece = min(_PIECE, -(-math.prod(x.static_shape) // 4))
    return piece * (6 * 8 + 4)


def _seconds(op: Dropout, x: TensorType, *others: TensorType | None) -> float:
    count = math.prod(x.static_shape)
    return count * _EACH + -(-count // (4 * _PIECE)) * 60 * _CALL


def _bind(op: Dropout, types: Sequence[TensorType | None], constants: Any) -> Callable[..., None]:
    ratio = 0.5 if op.ratio is None else op.ratio
    least = np.uint64(int(ratio * 2**32))

    def run(x: Array, *operands: Array | None, out: Any, workspace: Array) -> None:
        y, mask = out if op.mask else (out, None)
        key = operands[_KEY - 1]
        assert key is not None  # inference refuses training without one
        flat, target = x.reshape(-1), y.reshape(-1)
        kept = None if mask is None else mask.reshape(-1)
        keys, divisor = _round_keys(key), x.dtype.type(1 - ratio)
        for start in range(0, flat.size, 4 * _PIECE):
            part = slice(start, min(start + 4 * _PIECE, flat.size))
            dropped = _dropped(keys, op.stream, start // 4, part.stop - start, least, workspace)
            stays = dropped if kept is None else kept[part]
            np.logical_not(dropped, out=stays)
            np.divide(flat[part], divisor, out=target[part])
            bits = target[part].view(_BITS[x.dtype.itemsize])
            np.multiply(bits, stays.view(np.uint8), out=bits)  # 0 times infinity is NaN, but of bits it is 0

    return run


def _round_keys(key: Array) -> list[tuple[np.uint64, np.uint64]]:
    """For each round what is added to its two products."""
    first, second = (int(k) for k in key)
    return [
        (np.uint64((first + step * _WEYL[0]) & 0xFFFFFFFF), np.uint64((second + step * _WEYL[1]) & 0xFFFFFFFF))
        for step in range(_ROUNDS)
    ]


def _dropped(
    keys: Sequence[tuple[np.uint64, np.uint64]], stream: int, block: int, elements: int, least: np.uint64, room: Array
) -> Array:
    """Whether the word of each element is below `least`; the first of them is word 0 of this block.

    Calls are on one word of all blocks, with scalars beside it, which NumPy computes in half the time of two rows.
    """
    count = -(-elements // 4)
    size = count * 8
    words = [room[i * size : (i + 1) * size].view(np.uint64) for i in range(6)]
    c0, c1, c2, c3, p0, p1 = words
    dropped = room[6 * size : 6 * size + 4 * count].view(bool).reshape(count, 4)
    np.add(_COUNTERS[:count], np.uint64(block), out=c0)
    c2.fill(stream & 0xFFFFFFFF)
    c1.fill(0)
    c3.fill(0)
    for k0, k1 in keys:
        np.multiply(c0, _MULTIPLIERS[0], out=p0)
        np.multiply(c2, _MULTIPLIERS[1], out=p1)
        np.right_shift(p1, _HALF, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, k0, out=c0)
        np.right_shift(p0, _HALF, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, k1, out=c2)
        np.bitwise_and(p1, _LOW, out=c1)
        np.bitwise_and(p0, _LOW, out=c3)
    for word, drawn in enumerate((c0, c1, c2, c3)):
        np.less(drawn, least, out=dropped[:, word])
    return dropped.reshape(-1)[:elements]


@kernel(
    Dropout,
    device="cpu",
    variant="pieces",
    dtypes=frozenset({"float32", "float64"}),
    supports=_supports,
    workspace=_workspace,
    estimate=_seconds,
    bind=_bind,
)
def pieces(op: Dropout, *operands: Array | None, out: Any, workspace: Array) -> None:
    _bind(op, (), ())(*operands, out=out, workspace=workspace)


KERNELS: tuple[Kernel, ...] = (pieces,)
