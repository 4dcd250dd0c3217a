"""BatchNormalization in training and its gradient, with channels first or last.

Each worker takes images (or positions) of its own, block by block, and waits for the others where a statistic needs
all of them. Sums of workers are added in their order, so that runs agree bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.normalization import BatchNormalization
from aicore.ops.normalization_grad import BatchNormalizationGrad
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_rates import shared
from aicore_cpu_numpy.fast._parallel import Array, parts_of, spans
from aicore_cpu_numpy.fast._rows import carve, carved_bytes
from aicore_cpu_numpy.workers import run_tasks

FLOATS = frozenset({"float32", "float64"})
BLOCK_BYTES = 2048 << 10
"""Beyond the second cache, for calls on less are so short that threads wait for each other at the interpreter's lock:
two of them take 1.0 ms for 800 thousand elements forwards, 3.0 with blocks of 256 KiB and 4.2 with 64.
"""
ROW = 1024
"""Elements of a loop that hide what it costs to begin one."""
PASS, MOVED = 0.25e-9, 0.15e-9
"""Seconds for a pass over an element in the cache, and for one that comes from memory."""
_PASSES = 7

Work: TypeAlias = Callable[["Part"], None]


@dataclass(frozen=True)
class Layout:
    """images, channels, and positions of an image; with channels last, each position is an image of one.

    repeat: with channels last, how many positions make a row of the view, for a loop over few channels is too short.
    """

    images: int
    channels: int
    positions: int
    last: bool
    repeat: int = 1

    @classmethod
    def of(cls, op: Op, shape: Sequence[int]) -> Layout:
        if len(shape) == 1:
            return cls(1, 1, shape[0], False)
        if isinstance(op, ChannelsLast) or len(shape) == 2:
            positions = math.prod(shape[:-1])
            return cls(positions, shape[-1], 1, True, _repeat(positions, shape[-1]))
        return cls(shape[0], shape[1], math.prod(shape[2:]), False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole, which is a view of what any of the operands has."""
        if self.last:
            return self.rows, self.channels * self.repeat
        return self.images, self.channels, self.positions

    @property
    def rows(self) -> int:
        """What workers share: images, or rows of positions."""
        return self.images // self.repeat

    @property
    def count(self) -> int:
        """Elements of one channel."""
        return self.images * self.positions

    @property
    def step(self) -> int:
        """Rows of a block of float32; twice as many bytes do not matter to float64."""
        return max(BLOCK_BYTES // max(4 * self.channels * self.positions * self.repeat, 1), 1)

    @property
    def seconds(self) -> float:
        """Of one thread."""
        return self.count * self.channels * (_PASSES * PASS + 4 * 4 * MOVED)

    def per_channel(self, parameter: Array) -> Array:
        return np.tile(parameter, self.repeat) if self.last else parameter[:, None]

    def sum_of(self, block: Array) -> Array:
        """For each channel; sums over positions are products with ones, which read each element once."""
        if self.last:
            sums: Array = np.matmul(np.ones(len(block), block.dtype), block)
            found: Array = np.add.reduce(sums.reshape(self.repeat, self.channels), axis=0)
            return found
        total: Array = np.add.reduce(np.add.reduce(block, axis=2), axis=0)
        return total

    def sum_of_products(self, a: Array, b: Array, scratch: Array) -> Array:
        if self.last:
            return self.sum_of(np.multiply(a, b, out=scratch))
        found: Array = np.add.reduce(np.einsum("ncp,ncp->nc", a, b), axis=0)
        return found


@lru_cache(maxsize=1024)
def _repeat(positions: int, channels: int) -> int:
    """Positions that share a row: as many as divide them all, in a row of at most `ROW` elements."""
    return max(k for k in range(1, max(ROW // max(channels, 1), 1) + 1) if positions % k == 0)


@dataclass(frozen=True, eq=False)
class Part:
    """What one worker has: blocks of images, sums of its own, (2, channels), and scratch of a block."""

    blocks: Sequence[slice]
    sums: Array
    scratch: Array

    def scratch_like(self, block: Array) -> Array:
        return self.scratch[: block.size].reshape(block.shape)


def _layout(op: Op, x: TensorType) -> Layout:
    return Layout.of(op, x.static_shape)


def _parts(layout: Layout, dtype: np.dtype[Any], workspace: Array) -> list[Part]:
    cut = spans(layout.rows, parts_of(layout.seconds)) or [(0, 0)]
    rooms = iter(carve(workspace, dtype, *_room_shapes(layout, len(cut))))
    return [
        Part(
            [slice(at, min(at + layout.step, stop)) for at in range(start, stop, layout.step)], next(rooms), next(rooms)
        )
        for start, stop in cut
    ]


def _room_shapes(layout: Layout, parts: int) -> list[tuple[int, ...]]:
    block = min(layout.step, layout.rows) * layout.channels * layout.positions * layout.repeat
    return [(2, layout.channels), (block,)] * parts


def _workspace(op: Op, x: TensorType, *others: TensorType | None) -> int:
    layout, itemsize = _layout(op, x), numpy_dtype(x.dtype).itemsize
    shapes = _room_shapes(layout, len(spans(layout.rows, parts_of(layout.seconds))) or 1)
    return carved_bytes(*(math.prod(shape) * itemsize for shape in shapes))


def _estimate(op: Op, x: TensorType, *others: TensorType | None) -> float:
    seconds = _layout(op, x).seconds
    return shared(seconds, parts_of(seconds))


def _in_all(parts: Sequence[Part], work: Work) -> None:
    run_tasks([partial(work, part) for part in parts])


def _total(parts: Sequence[Part], row: int = 0) -> Array:
    found: Array = np.add.reduce(np.stack([part.sums[row] for part in parts]), axis=0)
    return found


def _supports(op: Op, x: TensorType, *others: TensorType | None) -> str | None:
    inner = op.inner if isinstance(op, ChannelsLast) else op
    if isinstance(inner, BatchNormalization) and not inner.training_mode:
        return "trains only"
    if not all(t is None or t.is_static for t in (x, *others)):
        return "needs shapes that are known in numbers"
    wrong = {t.dtype for t in others if t is not None} - {x.dtype}
    return f"wants parameters of x's type, not {', '.join(sorted(wrong))}" if wrong else None


def normalize(
    op: Op, x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, out: Sequence[Array], workspace: Array
) -> None:
    """y, the moved statistics, and those of the batch if they are asked for."""
    bn: Any = op.inner if isinstance(op, ChannelsLast) else op
    layout = Layout.of(op, x.shape)
    source, target = x.reshape(layout.shape), out[0].reshape(layout.shape)
    parts = _parts(layout, x.dtype, workspace)

    def add_up(part: Part) -> None:
        part.sums.fill(0)
        for block in part.blocks:
            part.sums[0] += layout.sum_of(source[block])

    _in_all(parts, add_up)
    batch_mean = _total(parts) / x.dtype.type(layout.count)
    centre = layout.per_channel(batch_mean)

    def center(part: Part) -> None:
        for block in part.blocks:
            y = target[block]
            np.subtract(source[block], centre, out=y)
            part.sums[1] += layout.sum_of_products(y, y, part.scratch_like(y))

    _in_all(parts, center)
    batch_variance = _total(parts, 1) / x.dtype.type(layout.count)
    inverse = 1 / np.sqrt(batch_variance + x.dtype.type(bn.epsilon))
    factor, shift = layout.per_channel(scale * inverse), layout.per_channel(bias)

    def finish(part: Part) -> None:
        for block in part.blocks:
            y = target[block]
            np.multiply(y, factor, out=y)
            np.add(y, shift, out=y)

    _in_all(parts, finish)
    for moved, old, new in ((out[1], mean, batch_mean), (out[2], variance, batch_variance)):
        np.add(old * x.dtype.type(bn.momentum), new * x.dtype.type(1 - bn.momentum), out=moved)
    for kept, statistic in zip(out[3:], (batch_mean, inverse), strict=False):
        np.copyto(kept, statistic)


def differentiate(
    op: Op, x: Array, scale: Array, mean: Array, inverse: Array, dy: Array, *, out: Sequence[Array], workspace: Array
) -> None:
    """dx = scale * inverse * (dy - dbias / n - h * dscale / n), where h = (x - mean) * inverse."""
    layout = Layout.of(op, x.shape)
    dx, dscale, dbias = out
    source, gradient, target = (a.reshape(layout.shape) for a in (x, dy, dx))
    parts, centre = _parts(layout, x.dtype, workspace), layout.per_channel(mean)

    def add_up(part: Part) -> None:
        part.sums.fill(0)
        for block in part.blocks:
            centered, g = target[block], gradient[block]
            np.subtract(source[block], centre, out=centered)
            part.sums[0] += layout.sum_of(g)
            part.sums[1] += layout.sum_of_products(centered, g, part.scratch_like(g))

    _in_all(parts, add_up)
    np.copyto(dbias, _total(parts))
    np.multiply(_total(parts, 1), inverse, out=dscale)
    count = x.dtype.type(layout.count)
    ratio = scale * inverse
    factor = layout.per_channel(ratio)
    slope, shift = layout.per_channel(-ratio * inverse * dscale / count), layout.per_channel(-ratio * dbias / count)

    def finish(part: Part) -> None:
        for block in part.blocks:
            centered, g = target[block], gradient[block]
            share = part.scratch_like(g)
            np.multiply(centered, slope, out=centered)
            np.multiply(g, factor, out=share)
            np.add(share, shift, out=share)
            np.add(centered, share, out=centered)

    _in_all(parts, finish)


def _make(op: type[Op], wraps: type[Op] | None, compute: Callable[..., None]) -> Kernel:
    def run(op: Op, *operands: Array, out: Sequence[Array], workspace: Array) -> None:
        compute(op, *operands, out=out, workspace=workspace)

    return kernel(
        op,
        wraps=wraps,
        device="cpu",
        variant="blocks",
        dtypes=FLOATS,
        supports=_supports,
        workspace=_workspace,
        estimate=_estimate,
    )(run)


KERNELS: tuple[Kernel, ...] = (
    _make(BatchNormalization, None, normalize),
    _make(BatchNormalizationGrad, None, differentiate),
    _make(ChannelsLast, BatchNormalization, normalize),
    _make(ChannelsLast, BatchNormalizationGrad, differentiate),
)
