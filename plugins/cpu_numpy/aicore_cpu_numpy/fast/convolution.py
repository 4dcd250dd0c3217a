"""Convolution on BLAS, with what follows it done in place.

Two variants, each for Conv, ConvAct, ConvAdd and ConvAddAct:
gemm: a 1x1 kernel is a matrix product as it is.
im2col: the windows of a block are copied side by side, then it is a matrix product. Any kernel; groups, and so
depthwise kernels, are a batch of products. (Shifted multiply-accumulate, with two passes over the output for each
kernel offset against one copy, took 1.5 to 2 times as long on depthwise kernels of 3x3 and 5x5.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from aicore.ir import Op, TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import Conv
from aicore.ops.fused_linear import ConvAct, ConvAdd, ConvAddAct
from aicore.ops.window import numbers, output_dims
from aicore.records import dataclass
from aicore_cpu_numpy.fast import _epilogue
from aicore_cpu_numpy.fast._taps import Geometry, Index

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

DTYPES = frozenset({"float32", "float64"})
COLUMNS_BYTES, GROUPED_COLUMNS_BYTES = 4 << 20, 1 << 20
"""Columns that a block stays within. Small products of many groups gain from the second-level cache, large ones not."""
ALIGNMENT = 64
GEMM_RATE, COPY_RATE, POINTWISE_RATE, CALL = 60e9, 2.5e9, 1.2e9, 3e-6
"""For estimates: operations, bytes and elements per second of two cores, and seconds of one NumPy call."""


@dataclass(frozen=True)
class Problem:
    """A convolution of known shapes, as groups of matrix products: (maps, channels * offsets) @ (..., positions)."""

    geometry: Geometry
    images: int
    group: int
    channels: int
    maps: int
    itemsize: int

    @property
    def depth(self) -> int:
        """Length of the dot products."""
        return self.channels * self.geometry.offsets

    @property
    def row(self) -> int:
        """Positions in one step along the first spatial dim."""
        return math.prod(self.geometry.dims[1:])

    @property
    def flops(self) -> float:
        return 2.0 * self.images * self.group * self.maps * self.depth * self.geometry.positions

    @property
    def outputs(self) -> int:
        return self.images * self.group * self.maps * self.geometry.positions


@lru_cache(maxsize=4096)
def problem(op: Conv, x: Shape, w: Shape, itemsize: int) -> Problem:
    """`channels` and `maps` are those of one group."""
    op = op.settled(x[2:], w[2:], len(x) - 2)
    dims = numbers(output_dims(op, x[2:], w[2:]))
    return Problem(Geometry.of(op, x[2:], dims), x[0], op.group, w[1], w[0] // op.group, itemsize)


@dataclass(frozen=True)
class Variant:
    """One way to convolve; `compute(problem, x, w, out, workspace)` without bias and what follows."""

    name: str
    compute: Callable[[Problem, Array, Array, Array, Array], None]
    reason_against: Callable[[Problem], str | None]
    workspace: Callable[[Problem], int]
    seconds: Callable[[Problem], float]


def _gemm(p: Problem, x: Array, w: Array, out: Array, workspace: Array) -> None:
    positions = p.geometry.positions
    if positions == 1 and p.group == 1:  # one product for all images instead of one for each
        np.matmul(x.reshape(p.images, p.channels), w.reshape(p.maps, p.channels).T, out=out.reshape(p.images, p.maps))
        return
    np.matmul(
        w.reshape(p.group, p.maps, p.channels),
        x.reshape(p.images, p.group, p.channels, positions),
        out=out.reshape(p.images, p.group, p.maps, positions),
    )


def _im2col(p: Problem, x: Array, w: Array, out: Array, workspace: Array) -> None:
    inputs = x.reshape(p.images, p.group, p.channels, *p.geometry.spatial)
    weights = w.reshape(p.group, p.maps, p.depth)
    products = out.reshape(p.images, p.group, p.maps, p.geometry.positions)
    row = p.row
    for block in blocks(p):
        columns = columns_of(p, inputs[block.images, block.groups], block, workspace)
        target = products[block.images, block.groups, :, block.start * row : block.stop * row]
        np.matmul(weights[block.groups], columns, out=target)


def columns_of(p: Problem, x: Array, block: Block, workspace: Array) -> Array:
    """The block's windows side by side: (images, groups, channels * offsets, positions)."""
    g, count = p.geometry, len(p.geometry.dims)
    reached = _reached_by(p, x, block, workspace)
    steps = reached.strides[3:]
    dims = (block.stop - block.start, *g.dims[1:])
    windows = np.lib.stride_tricks.as_strided(
        reached,
        (*x.shape[:3], *g.kernel, *dims),
        (
            *reached.strides[:3],
            *(steps[i] * g.dilations[i] for i in range(count)),
            *(steps[i] * g.strides[i] for i in range(count)),
        ),
        writeable=False,
    )
    columns = workspace[: windows.size * p.itemsize].view(x.dtype).reshape(windows.shape)
    np.copyto(columns, windows)
    return columns.reshape(*x.shape[:2], p.depth, math.prod(dims))


def _reached_by(p: Problem, x: Array, block: Block, workspace: Array) -> Array:
    """What the block's windows reach, padding included: a view of `x`, or behind the columns a copy with zeros."""
    lows, highs = _reach(p.geometry, block)
    sizes = p.geometry.spatial
    sources = [slice(max(low, 0), max(min(high, n), 0)) for low, high, n in zip(lows, highs, sizes, strict=True)]
    inside: Index = (..., *sources)
    if min(lows) >= 0 and all(high <= size for high, size in zip(highs, sizes, strict=True)):
        return x[inside]
    shape = (*x.shape[:3], *(high - low for low, high in zip(lows, highs, strict=True)))
    start = _columns_bytes(p)
    padded = workspace[start : start + math.prod(shape) * p.itemsize].view(x.dtype).reshape(shape)
    padded.fill(0)
    found = x[inside]
    places = (slice(max(-low, 0), max(-low, 0) + n) for low, n in zip(lows, found.shape[3:], strict=True))
    target: Index = (..., *places)
    padded[target] = found
    return padded


def _reach(g: Geometry, block: Block) -> tuple[list[int], list[int]]:
    """First and end element that the block's windows reach in each spatial dim; beyond the input lies padding."""
    lows, highs = [], []
    for i, positions in enumerate(g.dims):
        first, last = (block.start, block.stop - 1) if i == 0 else (0, positions - 1)
        lows.append(first * g.strides[i] - g.begins[i])
        highs.append(last * g.strides[i] - g.begins[i] + (g.kernel[i] - 1) * g.dilations[i] + 1)
    return lows, highs


@dataclass(frozen=True)
class Block:
    """Part of a convolution: rows `start` to `stop` of some groups of some images."""

    images: slice
    groups: slice
    start: int
    stop: int


@lru_cache(maxsize=4096)
def blocks(p: Problem) -> tuple[Block, ...]:
    """Blocks of equal size whose columns fit the workspace, if one row of one group does."""
    images, groups, rows = _block_size(p)
    if p.outputs == 0:
        return ()
    return tuple(
        Block(slice(image, image + images), slice(group, group + groups), start, min(start + rows, p.geometry.dims[0]))
        for image in range(0, p.images, images)
        for group in range(0, p.group, groups)
        for start in range(0, p.geometry.dims[0], rows)
    )


def _block_size(p: Problem) -> tuple[int, int, int]:
    """Images, groups and rows of a block: some rows of one group, some groups of one image, or some images."""
    limit = COLUMNS_BYTES if p.group == 1 else GROUPED_COLUMNS_BYTES
    row_bytes, height = max(p.depth * p.row * p.itemsize, 1), max(p.geometry.dims[0], 1)
    if row_bytes * height > limit:
        return 1, 1, _even(height, limit // row_bytes)
    if row_bytes * height * p.group > limit:
        return 1, _even(p.group, limit // (row_bytes * height)), height
    return _even(max(p.images, 1), limit // (row_bytes * height * p.group)), p.group, height


def _even(total: int, most: int) -> int:
    """Size of the fewest parts of `total` that are no larger than `most` (or than 1) and about equal."""
    parts = -(-total // max(most, 1))
    return -(-total // parts)


def _columns_bytes(p: Problem) -> int:
    images, groups, rows = _block_size(p)
    return -(-images * groups * rows * p.depth * p.row * p.itemsize // ALIGNMENT) * ALIGNMENT


def im2col_bytes(p: Problem) -> int:
    """Columns, and behind them the padded input of a block."""
    images, groups, rows = _block_size(p)
    lows, highs = _reach(p.geometry, Block(slice(images), slice(groups), 0, rows))
    reach = math.prod(max(high - low, 0) for low, high in zip(lows, highs, strict=True))
    return _columns_bytes(p) + images * groups * p.channels * reach * p.itemsize


def _product_seconds(p: Problem) -> float:
    """Thin products do not reach the rate of BLAS; each costs a call."""
    return p.flops / (GEMM_RATE * min(max(p.maps, 1) / 16, 1.0)) + 1e-6 * p.images * p.group + CALL


def im2col_seconds(p: Problem) -> float:
    copied = p.images * p.group * p.depth * p.geometry.positions * p.itemsize
    count = -(-copied // max(_columns_bytes(p), 1))
    return _product_seconds(p) + copied / COPY_RATE + 5 * count * CALL


def need_plain_1x1(p: Problem) -> str | None:
    g = p.geometry
    plain = g.offsets == 1 and g.spatial == g.dims and not any(g.begins) and set(g.strides) == {1}
    return None if plain else "needs a 1x1 kernel without stride or padding"


VARIANTS = (
    Variant("gemm", _gemm, need_plain_1x1, lambda p: 0, _product_seconds),
    Variant("im2col", _im2col, lambda p: None, im2col_bytes, im2col_seconds),
)


@dataclass(frozen=True)
class Fused:
    """How an op is a convolution and what follows: whether the third operand is a residual, and the fields."""

    op: type[Op]
    adds: bool
    conv_of: Callable[[Any], Conv]
    activation_of: Callable[[Any], Op | None]


FUSED = (
    Fused(Conv, False, lambda op: op, lambda op: None),
    Fused(ConvAct, False, lambda op: op.conv, lambda op: op.activation),
    Fused(ConvAdd, True, lambda op: op.conv, lambda op: None),
    Fused(ConvAddAct, True, lambda op: op.conv, lambda op: op.activation),
)


def _make(fused: Fused, variant: Variant) -> Kernel:
    def problem_of(op: Op, x: TensorType, w: TensorType) -> Problem:
        itemsize = numpy_dtype(x.dtype).itemsize
        return problem(fused.conv_of(op), x.static_shape, w.static_shape, itemsize)

    def supports(op: Op, x: TensorType, w: TensorType, *rest: TensorType | None) -> str | None:
        if not (x.is_static and w.is_static):
            return "needs shapes that are known in numbers"
        p = problem_of(op, x, w)
        reason = variant.reason_against(p)
        if reason is None and fused.adds:
            shape = (p.images, p.group * p.maps, *p.geometry.dims)
            reason = _epilogue.residual_reason(TensorType(x.dtype, shape), rest[0])
        activation = fused.activation_of(op)
        return reason if reason or activation is None else _epilogue.reason_against(activation)

    def workspace(op: Op, x: TensorType, w: TensorType, *rest: TensorType | None) -> int:
        p = problem_of(op, x, w)
        rows, columns = p.group * p.maps, p.geometry.positions
        return max(variant.workspace(p), _epilogue.scratch_bytes(fused.activation_of(op), rows, columns, x.dtype))

    def estimate(op: Op, x: TensorType, w: TensorType, *rest: TensorType | None) -> float:
        p = problem_of(op, x, w)
        return variant.seconds(p) + p.outputs * len(rest) / POINTWISE_RATE

    @kernel(
        fused.op,
        device="cpu",
        variant=variant.name,
        dtypes=DTYPES,
        supports=supports,
        workspace=workspace,
        estimate=estimate,
    )
    def convolve(op: Op, x: Array, w: Array, *rest: Array | None, out: Array, workspace: Array) -> None:
        p = problem(fused.conv_of(op), x.shape, w.shape, x.itemsize)
        variant.compute(p, x, w, out, workspace)
        residual, bias = (*rest, None, None)[:2] if fused.adds else (None, (*rest, None)[0])
        shape = (p.images, p.group * p.maps, p.geometry.positions)
        residual = None if residual is None else residual.reshape(shape)
        _epilogue.finish(out.reshape(shape), bias, residual, fused.activation_of(op), workspace)

    return convolve


KERNELS: tuple[Kernel, ...] = tuple(_make(fused, variant) for fused in FUSED for variant in VARIANTS)
