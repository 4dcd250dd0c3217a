"""Softmax and LogSoftmax, in place on the output, a few rows at a time."""

from __future__ import annotations

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.softmax import LogSoftmax, Softmax
from aicore_cpu_numpy.fast._rows import Array, carve, carved_bytes, row_blocks, rows_of_block, split_axis

FLOATS = frozenset({"float32", "float64"})


def _shapes(axis: int, shape: tuple[int, ...]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Of a block of rows, and of what is left of it when the axis is reduced."""
    outer, along, inner = split_axis(shape, axis % len(shape))
    rows = rows_of_block(outer, along * inner)
    return (rows, along, inner), (rows, 1, inner)


def _softmax_bytes(op: Softmax, x: TensorType) -> int:
    _, reduced = _shapes(op.axis, x.static_shape)
    return carved_bytes(int(np.prod(reduced)) * numpy_dtype(x.dtype).itemsize)


def _log_softmax_bytes(op: LogSoftmax, x: TensorType) -> int:
    itemsize = numpy_dtype(x.dtype).itemsize
    return carved_bytes(*(int(np.prod(shape)) * itemsize for shape in _shapes(op.axis, x.static_shape)))


def _as_rows(op: Softmax | LogSoftmax, x: Array) -> tuple[int, int, int]:
    return split_axis(x.shape, op.axis % x.ndim)


@kernel(Softmax, device="cpu", variant="rows", dtypes=FLOATS, workspace=_softmax_bytes, inplace=True)
def softmax_rows(op: Softmax, x: Array, *, out: Array, workspace: Array) -> None:
    outer, along, inner = _as_rows(op, x)
    source, target = x.reshape(outer, along, inner), out.reshape(outer, along, inner)
    (reduced,) = carve(workspace, x.dtype, _shapes(op.axis, x.shape)[1])
    for block in row_blocks(outer, along * inner) if x.size else ():
        y, part = target[block], reduced[: block.stop - block.start]
        np.maximum.reduce(source[block], axis=1, out=part, keepdims=True)
        np.subtract(source[block], part, out=y)
        np.exp(y, out=y)
        np.add.reduce(y, axis=1, out=part, keepdims=True)
        np.divide(y, part, out=y)


@kernel(LogSoftmax, device="cpu", variant="rows", dtypes=FLOATS, workspace=_log_softmax_bytes, inplace=True)
def log_softmax_rows(op: LogSoftmax, x: Array, *, out: Array, workspace: Array) -> None:
    outer, along, inner = _as_rows(op, x)
    source, target = x.reshape(outer, along, inner), out.reshape(outer, along, inner)
    exponentials, reduced = carve(workspace, x.dtype, *_shapes(op.axis, x.shape))
    for block in row_blocks(outer, along * inner) if x.size else ():
        rows = block.stop - block.start
        y, part, powers = target[block], reduced[:rows], exponentials[:rows]
        np.maximum.reduce(source[block], axis=1, out=part, keepdims=True)
        np.subtract(source[block], part, out=y)
        np.exp(y, out=powers)
        np.add.reduce(powers, axis=1, out=part, keepdims=True)
        np.log(part, out=part)
        np.subtract(y, part, out=y)


KERNELS: tuple[Kernel, ...] = (softmax_rows, log_softmax_rows)
