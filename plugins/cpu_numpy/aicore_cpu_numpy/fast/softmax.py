"""Softmax and LogSoftmax, in place on the output, a few rows at a time; workers take rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.softmax import LogSoftmax, Softmax
from aicore_cpu_numpy.fast._parallel import PASS, Array, Call, Placing, parts_of, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carve, carved_bytes, row_blocks, rows_of_block, split_axis

FLOATS = frozenset({"float32", "float64"})
_PASSES = 14
"""Of which the exponential takes eight."""

Shape = tuple[int, int, int]


def _rooms(op: Any, shape: Sequence[int]) -> list[Shape]:
    """What a worker needs for a block of rows: the reduced block; for LogSoftmax, the exponentials before it."""
    outer, along, inner = split_axis(shape, op.axis % len(shape))
    rows = rows_of_block(outer, along * inner)
    reduced = (rows, 1, inner)
    return [(rows, along, inner), reduced] if isinstance(op, LogSoftmax) else [reduced]


def _parts(shape: Sequence[int]) -> int:
    return parts_of(math.prod(shape) * PASS * _PASSES)


def _workspace(op: Any, x: TensorType) -> int:
    itemsize = numpy_dtype(x.dtype).itemsize
    sizes = [math.prod(room) * itemsize for room in _rooms(op, x.static_shape)]
    return carved_bytes(*sizes * _parts(x.static_shape))


def _softmax_calls(x: Array, y: Array, part: Array) -> list[Call]:
    return [
        partial(np.maximum.reduce, x, axis=1, out=part, keepdims=True),
        partial(np.subtract, x, part, out=y),
        partial(np.exp, y, out=y),
        partial(np.add.reduce, y, axis=1, out=part, keepdims=True),
        partial(np.divide, y, part, out=y),
    ]


def _log_softmax_calls(x: Array, y: Array, powers: Array, part: Array) -> list[Call]:
    return [
        partial(np.maximum.reduce, x, axis=1, out=part, keepdims=True),
        partial(np.subtract, x, part, out=y),
        partial(np.exp, y, out=powers),
        partial(np.add.reduce, powers, axis=1, out=part, keepdims=True),
        partial(np.log, part, out=part),
        partial(np.subtract, y, part, out=y),
    ]


def _make(cls: type[Op], calls: Callable[..., list[Call]]) -> Kernel:
    def place(op: Any, parts: int, x: Array, *, out: Array, workspace: Array) -> Call:
        outer, along, inner = split_axis(x.shape, op.axis % x.ndim)
        source, target = x.reshape(outer, along, inner), out.reshape(outer, along, inner)
        shapes = _rooms(op, x.shape)
        rooms = carve(workspace, x.dtype, *shapes * parts)
        tasks: list[list[Call]] = []
        for i, (start, stop) in enumerate(spans(outer, parts) if x.size else ()):
            own, task = rooms[i * len(shapes) : (i + 1) * len(shapes)], list[Call]()
            for rows in row_blocks(stop - start, along * inner):
                block = slice(start + rows.start, start + rows.stop)
                task += calls(source[block], target[block], *(room[: rows.stop - rows.start] for room in own))
            tasks.append(task)
        return side_by_side(tasks)

    def bind(op: Op, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Placing:
        return Placing(partial(place, op, 1 if types[0] is None else _parts(types[0].static_shape)))

    def run(op: Op, x: Array, *, out: Array, workspace: Array) -> None:
        place(op, _parts(x.shape), x, out=out, workspace=workspace)()

    return kernel(cls, device="cpu", variant="rows", dtypes=FLOATS, workspace=_workspace, bind=bind, inplace=True)(run)


KERNELS: tuple[Kernel, ...] = (_make(Softmax, _softmax_calls), _make(LogSoftmax, _log_softmax_calls))
