"""Copies that put elements in another order, cut into pieces that suit the cache and the workers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from aicore_cpu_numpy.fast._parallel import MOVED, Array, Call, parts_of, shares, side_by_side

FEW = 8
"""A last axis of so few elements is no loop to run over."""
CACHE_BYTES = 32 << 10
_LONG = 16
"""An axis of so many elements can be cut."""


def copy_seconds(nbytes: int) -> float:
    """Of a copy of so many bytes by one thread."""
    return 2 * nbytes * MOVED


def merge_axes(shape: Sequence[int], perm: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dims and permutation of the same transpose with few axes: none of 1, and neighbours that stay together as one."""
    axes = [axis for axis in perm if shape[axis] != 1]
    runs: list[list[int]] = []
    place = {axis: i for i, axis in enumerate(sorted(axes))}
    for axis in axes:
        if runs and place[axis] == place[runs[-1][-1]] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    order = sorted(range(len(runs)), key=lambda i: runs[i][0])
    dims = tuple(math.prod(shape[axis] for axis in runs[i]) for i in order)
    return dims, tuple(order.index(i) for i in range(len(runs)))


def transposing(x: Array, perm: Sequence[int], out: Array) -> Call:
    """The call that copies transpose(x, perm) to `out`."""
    if x.flags.c_contiguous and out.flags.c_contiguous:
        dims, order = merge_axes(x.shape, perm)
        view = x.reshape(dims).transpose(order)
        target = out.reshape(view.shape)
    else:  # axes of rows that lie apart may not merge
        view, target = x.transpose(perm), out
    if target.size == 0 or target.ndim < 2:
        return copying([(out.reshape(-1), x.reshape(-1))])
    axis = 0 if target.shape[0] >= target.shape[1] or target.ndim == 2 else 1
    before = (slice(None),) * axis
    tasks: list[list[Call]] = []
    seconds = copy_seconds(out.nbytes)
    for start, stop in shares(target.shape[axis], parts_of(seconds), seconds):
        part = (*before, slice(start, stop))
        tasks.append([partial(np.copyto, y, v) for y, v in _pieces(target[part], view[part])])
    return side_by_side(tasks)


def _pieces(target: Array, view: Array) -> Iterator[tuple[Array, Array]]:
    """Pieces of a copy: by the last axis where it is short, else so that what they read stays in the cache."""
    count, stride = target.shape[-1], abs(view.strides[-1])
    if stride == view.itemsize:
        yield target, view
    elif count <= FEW:
        for i in range(count):
            yield target[..., i], view[..., i]
    else:
        step = min(max(CACHE_BYTES // max(stride, 1), 32), 512)
        for start in range(0, count, step):
            yield target[..., start : start + step], view[..., start : start + step]


def copying(pairs: Sequence[tuple[Array, Array]]) -> Call:
    """The call that copies each second array to the first one, which is of the same shape; by all workers if large."""
    pairs = [pair for pair in pairs if pair[0].size]
    parts = parts_of(copy_seconds(sum(target.nbytes for target, _ in pairs)))
    if parts == 1:
        return side_by_side([[partial(np.copyto, target, source) for target, source in pairs]])
    return side_by_side([[partial(np.copyto, *pair) for pair in share] for share in _shares(pairs, parts)])


def _shares(pairs: Sequence[tuple[Array, Array]], parts: int) -> list[list[tuple[Array, Array]]]:
    """The pairs, each cut along its first long axis, in shares of about equal bytes."""
    found: list[list[tuple[Array, Array]]] = [[] for _ in range(parts)]
    total, start = sum(target.size for target, _ in pairs), 0
    for target, source in pairs:
        axis = next((i for i, dim in enumerate(target.shape) if dim >= _LONG), target.ndim - 1)
        for i in range(parts):
            low, high = (min(max(total * k // parts - start, 0), target.size) for k in (i, i + 1))
            cut = slice(*(target.shape[axis] * at // target.size for at in (low, high)))
            part = (*(slice(None),) * axis, cut)
            if cut.start < cut.stop:
                found[i].append((target[part], source[part]))
        start += target.size
    return found
