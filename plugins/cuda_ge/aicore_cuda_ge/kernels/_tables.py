"""Launches whose results lie at tabled places of an operand, axis by axis: graph_executor/kernels/resize.cu."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore_cuda_ge.calls import Compiled, compiled
from aicore_cuda_ge.kernels._memory_bound import need_words
from aicore_cuda_ge.kernels._packing import uploaded
from aicore_cuda_ge.kernels._resampling import Sampled
from aicore_cuda_ge.kernels._windows import ELEMENTS

_MOST_AXES = 3
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class _Axis:
    """sampled: None for axes that stay as they are. stride: of the operand, in elements."""

    size: int
    stride: int
    sampled: Sampled | None


def reason_against(dtype: str, x: Sequence[int], y: Sequence[int], axes: Sequence[Sampled | None]) -> str | None:
    """What cannot be launched; axes: of x, None for those that stay as they are."""
    if reason := need_words(dtype):
        return reason
    if max(math.prod(x), math.prod(y)) > _LARGEST:
        return "takes tensors of fewer than 2**31 elements"
    changed = sum(axis.sampled is not None for axis in _merged(x, axes))
    return None if changed <= _MOST_AXES else f"changes {_MOST_AXES} axes, here {changed}"


def launch(
    x: TensorType, y: Sequence[int], axes: Sequence[Sampled | None], filling: float, out: int, mixes: bool = False
) -> Compiled:
    """One launch, with the tables beside it.

    y: shape of the result, which has elements. filling: what lies outside. out: position of the result among pointers.
    mixes: elements are weighed and added up; otherwise each result is the element at its one place.
    """
    dtype = x.dtype
    copied, changed = _alternating(_merged(x.static_shape, axes))
    tables = [axis.sampled for axis in changed if axis.sampled is not None]
    places = np.concatenate([table.places.reshape(-1) for table in tables]).astype(np.int32)
    item = int(numpy_dtype(dtype).itemsize)
    params = [ELEMENTS[dtype] if mixes else item, math.prod(y), len(changed)]
    params += _padded([(axis.size, axis.stride) for axis in copied], _MOST_AXES + 1)
    params += _padded(list(_rows(changed)), _MOST_AXES)
    params.append(_bits(filling, dtype))
    extra, pick = [uploaded(places)], (0, out, out + 1)
    if not mixes:
        return compiled("resize_pick", params, extra, pick)
    wide = np.float64 if dtype == "float64" else np.float32
    extra.append(uploaded(np.concatenate([table.weights.reshape(-1) for table in tables]).astype(wide)))
    return compiled("resize_mix", params, extra, (*pick, out + 2))


def _merged(x: Sequence[int], axes: Sequence[Sampled | None]) -> list[_Axis]:
    """Neighbours that both stay as they are become one axis."""
    found: list[_Axis] = []
    for i, sampled in enumerate(axes):
        stride = math.prod(x[i + 1 :])
        if sampled is not None and not sampled.is_copy(x[i]):
            found.append(_Axis(len(sampled.places), stride, sampled))
        elif found and found[-1].sampled is None:
            found[-1] = _Axis(found[-1].size * x[i], stride, None)
        else:
            found.append(_Axis(x[i], stride, None))
    return found


def _alternating(axes: Sequence[_Axis]) -> tuple[list[_Axis], list[_Axis]]:
    """(copied, changed) in turns, copied ones first and last; at least one is changed."""
    nothing = _Axis(1, 0, None)
    copied, changed = [nothing], []
    for axis in axes:
        if axis.sampled is None:
            copied[-1] = axis
        else:
            changed.append(axis)
            copied.append(nothing)
    if not changed:
        changed.append(_Axis(1, 0, Sampled(np.zeros((1, 1), np.int64), np.ones((1, 1)))))
        copied.append(nothing)
    return copied, changed


def _rows(changed: Sequence[_Axis]) -> Iterator[tuple[int, ...]]:
    """The struct ResizedAxis of each."""
    begin = 0
    for axis in changed:
        if axis.sampled is not None:
            yield axis.size, axis.stride, axis.sampled.places.shape[1], begin
            begin += axis.sampled.places.size


def _padded(rows: list[tuple[int, ...]], count: int) -> list[int]:
    rows += [(0,) * len(rows[0])] * (count - len(rows))
    return [number for row in rows for number in row]


def _bits(value: float, dtype: str) -> int:
    """Of the value as an element, in the low bytes of a 64-bit integer."""
    raw = np.asarray(value).astype(numpy_dtype(dtype)).tobytes()
    return int.from_bytes(raw, "little", signed=len(raw) == 8)
