"""Random numbers as functions of a key: Philox4x32-10, so that every backend draws the same ones."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.ir import numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.random import Draw, DrawKey, DrawNormal, DrawUniform, Dropout
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


@kernel(DrawUniform, device="cpu")
def draw_uniform(op: DrawUniform, key: Array, shape: Array | None = None) -> Any:
    dims = _dims(op, shape)
    working = _working(op)
    drawn = uniform(key, op.stream, math.prod(dims)).astype(working).reshape(dims)
    scaled = working(op.low) + drawn * working(op.high - op.low)
    return np.asarray(scaled).astype(numpy_dtype(op.dtype))


@kernel(DrawNormal, device="cpu")
def draw_normal(op: DrawNormal, key: Array, shape: Array | None = None) -> Any:
    dims = _dims(op, shape)
    count, working = math.prod(dims), _working(op)
    u, v = uniform(key, op.stream, count + count % 2).reshape(-1, 2).T.astype(working)
    radius, angle = np.sqrt(-2 * np.log(1 - u)), working(2 * np.pi) * v
    normal = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(-1)[:count]
    return (working(op.mean) + working(op.scale) * normal).reshape(dims).astype(numpy_dtype(op.dtype))


@kernel(DrawKey, device="cpu")
def draw_key(op: DrawKey) -> Any:
    return np.frombuffer(os.urandom(8), np.uint32)


def uniform(key: Array, stream: int, count: int) -> Array:
    """`count` multiples of 2^-24 from 0 to below 1, in float32, which holds them exactly."""
    return (philox(key, stream, count) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _working(op: Draw) -> Any:
    return np.float64 if op.dtype == "float64" else np.float32


def _dims(op: Draw, shape: Array | None) -> tuple[int, ...]:
    dims = tuple(op.shape or ()) if shape is None else tuple(shape.tolist())
    if any(dim < 0 for dim in dims):
        raise ExecutionError(f"shape {dims} has a negative dim")
    return dims


KERNELS: tuple[Kernel, ...] = (dropout, draw_uniform, draw_normal, draw_key)
