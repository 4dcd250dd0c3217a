"""Recurrent layers on several threads: sequences do not depend on each other, so that each thread takes some of them.

A step is too short to be shared, and a hand-over for the whole walk costs nothing beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from aicore.ir import TensorType
from aicore.ops.recurrent import LSTM, Recurrent
from aicore.records import dataclass
from aicore.runtime import thread_count
from aicore_cpu_numpy.workers import run_tasks

Array = np.ndarray[Any, Any]
Types = Sequence["TensorType | None"]
Axes = Sequence["int | None"]
"""For each array the axis of sequences; None where there is none."""

_LEAST = 16
"""Sequences of a share: products of fewer rows take almost as long."""
_WORTH = 2e-3
"""Seconds of one thread that are worth sharing: threads stand in each other's way at each of the many calls."""
GAIN = 0.75
"""How much of a further thread is gained."""


class Bound(Protocol):
    """What one share is bound to."""

    def place(self, *operands: Array | None, out: tuple[Array, ...], workspace: Array) -> Callable[[], None]: ...


@dataclass(frozen=True)
class Share:
    """Some sequences, what computes them, and where its part of the workspace is."""

    sequences: slice
    bound: Bound
    memory: slice


class Shares:
    """A layer whose shares run side by side."""

    def __init__(self, shares: Sequence[Share], operands: Axes, results: Axes) -> None:
        self._shares, self._operands, self._results = shares, operands, results

    def __call__(self, *operands: Array | None, out: tuple[Array, ...], workspace: Array) -> None:
        self.place(*operands, out=out, workspace=workspace)()

    def place(self, *operands: Array | None, out: tuple[Array, ...], workspace: Array) -> Callable[[], None]:
        calls = []
        for share in self._shares:
            given = [_part(a, axis, share.sequences) for a, axis in zip(operands, self._operands, strict=False)]
            results = tuple(_part(a, axis, share.sequences) for a, axis in zip(out, self._results, strict=True))
            calls.append(share.bound.place(*given, out=results, workspace=workspace[share.memory]))
        return lambda: run_tasks(calls)


def sequences_of(batch: int, seconds: float) -> list[slice]:
    """Of each share: one for each thread, where that is worth it."""
    count = min(thread_count(), batch // _LEAST) if seconds > _WORTH else 1
    bounds = [batch * i // max(count, 1) for i in range(max(count, 1) + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def types_of(types: Types, axes: Axes, sequences: slice) -> list[TensorType | None]:
    """Types of operands with these sequences alone."""
    found: list[TensorType | None] = []
    for tensor, axis in zip(types, axes, strict=False):
        if tensor is None or axis is None:
            found.append(tensor)
            continue
        shape = list(tensor.static_shape)
        shape[axis] = sequences.stop - sequences.start
        found.append(TensorType(tensor.dtype, tuple(shape)))
    return found


def in_shares(
    make: Callable[[list[TensorType | None]], Bound],
    types: Types,
    parts: Sequence[slice],
    memory: Sequence[int],
    axes: tuple[Axes, Axes],
) -> Shares:
    """What `make` binds for the types of each share; memory: bytes of the workspace that each of them takes."""
    shares, start = [], 0
    for sequences, nbytes in zip(parts, memory, strict=True):
        shares.append(Share(sequences, make(types_of(types, axes[0], sequences)), slice(start, start + nbytes)))
        start += nbytes
    return Shares(shares, *axes)


def laid_out(workspace: Array, dtype: np.dtype[Any], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Arrays of these shapes, one after another."""
    start, parts = 0, []
    for shape in shapes:
        end = start + math.prod(shape) * dtype.itemsize
        parts.append(workspace[start:end].view(dtype).reshape(shape))
        start = end
    return parts


def side_by_side(arrays: Sequence[Array]) -> Array:
    """One array (L, ...) of one or two that lie anywhere in one piece of memory, with equal shapes and strides."""
    first, *others = arrays
    if not others:
        return first[None]
    apart = others[0].ctypes.data - first.ctypes.data
    return np.lib.stride_tricks.as_strided(first, (2, *first.shape), (apart, *first.strides))


def axes_of_layer(layer: Recurrent) -> tuple[Axes, Axes]:
    """Of operands and results of a recurrent layer."""
    rows, state = (0, 0) if layer.layout else (1, 1)
    residual, y = (1, 0) if layer.layout else (2, 2)
    states = [state] * layer.states
    kept = [residual] * layer.kept if layer.residuals else []
    return (rows, None, None, None, 0, *states, None), (y, *states, *kept)


def axes_of_gradient(layer: Recurrent, peepholes: bool, linear: bool) -> tuple[Axes, Axes]:
    """Of operands and results of RecurrentGrad."""
    residual, y, state = (1, 0, 0) if layer.layout else (2, 2, 1)
    operands = (None, residual, residual, residual, 0, None, y, state, state)
    states = [state] * (2 if isinstance(layer, LSTM) else 1)
    return operands, (residual, *states, *([1] if peepholes else []), *([residual] if linear else []))


def _part(array: Any, axis: int | None, sequences: slice) -> Any:
    if array is None or axis is None:
        return array
    return array[(slice(None),) * axis + (sequences,)]
