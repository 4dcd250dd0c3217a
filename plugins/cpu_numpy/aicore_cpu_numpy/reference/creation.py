"""Tensors made out of a shape or a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicore.errors import ExecutionError
from aicore.ir import dtype_name, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.creation import ConstantOfShape, EyeLike, OneHot, Range, Trilu, range_length
from aicore_cpu_numpy.reference._indices import numbers_of

Array = np.ndarray[Any, Any]


@kernel(ConstantOfShape, device="cpu")
def constant_of_shape(op: ConstantOfShape, shape: Array | None = None) -> Array:
    dims = numbers_of(op.shape, shape)
    if any(dim < 0 for dim in dims):
        raise ExecutionError(f"shape {dims} has a negative dim")
    return np.full(dims, 0 if op.value is None else op.value.array.reshape(()), numpy_dtype(op.dtype))


@kernel(Range, device="cpu")
def range_(op: Range, start: Array, limit: Array, delta: Array) -> Array:
    first, last, step = (bound.item() for bound in (start, limit, delta))
    if step == 0:
        raise ExecutionError("delta is 0")
    wide = np.float32 if dtype_name(start.dtype) in ("float16", "bfloat16") else start.dtype
    places = np.arange(range_length(first, last, step)).astype(wide)
    y: Array = start.astype(wide).reshape(()) + places * delta.astype(wide).reshape(())
    return y.astype(start.dtype)


@kernel(EyeLike, device="cpu")
def eye_like(op: EyeLike, x: Array) -> Array:
    dtype = numpy_dtype(op.dtype or dtype_name(x.dtype))
    rows, columns = x.shape
    return np.eye(rows, columns, op.k).astype(dtype)


@kernel(OneHot, device="cpu")
def one_hot(op: OneHot, indices: Array, depth: Array | None, values: Array) -> Array:
    size = op.depth if op.depth is not None else int(depth.item()) if depth is not None else 0
    axis = op.axis % (indices.ndim + 1)
    places = np.arange(size).reshape(-1, *(1,) * (indices.ndim - axis))
    wanted = np.expand_dims(indices, axis)
    hit = (wanted == places) | (wanted == places - size)
    y: Array = np.where(hit, values[1], values[0]).astype(values.dtype)
    return y


@kernel(Trilu, device="cpu")
def trilu(op: Trilu, x: Array, k: Array | None = None) -> Array:
    diagonal = op.k if op.k is not None else 0 if k is None else int(k.item())
    offsets = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]
    keep = offsets >= diagonal if op.upper else offsets <= diagonal
    return np.where(keep, x, np.zeros((), x.dtype)).astype(x.dtype, copy=False)


KERNELS: tuple[Kernel, ...] = (constant_of_shape, range_, eye_like, one_hot, trilu)
