"""Transposed convolutions of channels-last images on BLAS.

tiled: where windows neither overlap nor leave gaps, the products of a block of rows only have to be put in order, and
the bias is added on the way. Workers take rows.
scatter: otherwise each kernel offset's share is added where it belongs. Workers take output channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from aicore.ir import TensorType, numpy_dtype
from aicore.kernels import Kernel, kernel
from aicore.ops.convolution import ConvTranspose
from aicore.ops.layout import ChannelsLast
from aicore.ops.window import numbers
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_rates import CALL, gemm_seconds
from aicore_cpu_numpy.fast._parallel import PASS, Array, Call, nothing, parts_of, side_by_side, spans
from aicore_cpu_numpy.fast._rows import carve, carved_bytes
from aicore_cpu_numpy.fast._taps import Geometry, taps

DTYPES = frozenset({"float32", "float64"})
BLOCK_BYTES = 256 << 10
"""Of the products of a block."""
LOOP = 80e-9
"""Seconds to begin with the maps of one position, for each offset's share."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A transposed convolution of known shapes.

    geometry: as of a convolution from output to input: a window over the output for each element of the input.
    channels, maps: of one group, in and out.
    """

    geometry: Geometry
    images: int
    group: int
    channels: int
    maps: int
    itemsize: int

    @property
    def tiles(self) -> bool:
        """Whether each element of the output belongs to exactly one window."""
        g = self.geometry
        whole = tuple(d * k for d, k in zip(g.dims, g.kernel, strict=True)) == g.spatial
        plain = all(d == 1 or k == 1 for d, k in zip(g.dilations, g.kernel, strict=True))
        return self.group == 1 and whole and plain and g.kernel == g.strides and not any(g.begins)

    @property
    def width(self) -> int:
        """Elements of one row of products of one group."""
        return math.prod(self.geometry.dims[1:]) * self.geometry.offsets * self.maps

    @property
    def rows(self) -> int:
        """Rows of the input in a block."""
        return max(1, min(BLOCK_BYTES // max(self.width * self.itemsize, 1), self.geometry.dims[0]))

    @property
    def seconds(self) -> float:
        """Of one thread."""
        inputs = self.images * self.geometry.positions * self.group
        columns = self.geometry.offsets * self.maps
        blocks = self.images * self.group * -(-self.geometry.dims[0] // self.rows)
        calls = 2 if self.tiles else 1 + self.geometry.offsets
        loops = 0.0 if self.tiles else inputs * self.geometry.offsets * LOOP
        passes = 2 * inputs * columns * PASS + loops
        return gemm_seconds(inputs, self.channels, columns, blocks) + passes + blocks * calls * CALL


@lru_cache(maxsize=4096)
def problem(op: ConvTranspose, x: Shape, w: Shape, itemsize: int) -> Problem:
    """x: (N, spatial..., C). w: (C, M / group, kernel...)."""
    spatial = x[1:-1]
    op = op.settled(w[2:], len(spatial))
    out = numbers(op.output_dims(spatial, w[2:]))
    begins = op.padding(spatial, w[2:])[: len(out)]
    geometry = Geometry(out, spatial, w[2:], op.strides, op.dilations, begins)
    return Problem(geometry, x[0], op.group, w[0] // op.group, w[1], itemsize)


def _problem(op: ChannelsLast, x: TensorType | None, w: TensorType | None) -> Problem:
    assert isinstance(op.inner, ConvTranspose)  # the kernel below is for nothing else
    assert x is not None
    assert w is not None
    return problem(op.inner, x.static_shape, w.static_shape, numpy_dtype(x.dtype).itemsize)


def _shares(p: Problem, parts: int) -> list[tuple[int, int]]:
    """(start, stop) of each worker, in rows of all images or in maps of each group."""
    return spans(p.images * p.geometry.dims[0] if p.tiles else p.maps, parts)


def _own_weights(p: Problem, w: Array, share: tuple[int, int]) -> Array:
    """(group, channels, offsets, maps), of all maps or those of one worker: a view of (C, M / group, kernel...)."""
    maps = slice(0, p.maps) if p.tiles else slice(*share)
    return w.reshape(p.group, p.channels, p.maps, p.geometry.offsets).swapaxes(2, 3)[..., maps]


@dataclass(frozen=True, eq=False)
class Bound:
    """A transposed convolution of known shapes; `weights` are those of each worker if they are constant."""

    problem: Problem
    parts: int
    weights: tuple[Array, ...] | None

    def __call__(self, *operands: Any, out: Array, workspace: Array) -> None:
        self.place(*operands, out=out, workspace=workspace)()

    def place(self, x: Array, w: Array, b: Array | None = None, *, out: Array, workspace: Array) -> Call:
        p = self.problem
        if not out.size:
            return nothing
        if not x.size:
            return partial(np.copyto, out, 0 if b is None else b)
        rooms = iter(carve(workspace, x.dtype, *_rooms(p, self.parts)))
        tasks: list[list[Call]] = []
        for i, share in enumerate(_shares(p, self.parts)):
            calls: list[Call] = []
            packed, products = next(rooms), next(rooms)
            if self.weights is None:
                view = _own_weights(p, w, share)
                weights = packed[: view.size].reshape(view.shape)
                calls.append(partial(np.copyto, weights, view))
            else:
                weights = self.weights[i]
            make = _tiled if p.tiles else _scattered
            tasks.append([*calls, *make(p, x, weights, b, out, products, *share)])
        return side_by_side(tasks)


def _rooms(p: Problem, parts: int) -> list[tuple[int]]:
    """Of each worker: its packed weights, and the products of a block."""
    return [(p.group * p.channels * p.geometry.offsets * p.maps,), (p.rows * p.width,)] * parts


def _tiled(
    p: Problem, x: Array, weights: Array, b: Array | None, out: Array, room: Array, start: int, stop: int
) -> list[Call]:
    """Calls for rows `start` to `stop` of all images."""
    g, count = p.geometry, len(p.geometry.dims)
    matrix = weights.reshape(p.channels, g.offsets * p.maps)
    order = (*(axis for i in range(count) for axis in (i, count + i)), 2 * count)
    calls: list[Call] = []
    while start < stop:
        image, row = divmod(start, g.dims[0])
        end = min(row + p.rows, g.dims[0], row + stop - start)
        pixels = x[image, row:end].reshape(-1, p.channels)
        products = room[: len(pixels) * matrix.shape[1]].reshape(len(pixels), matrix.shape[1])
        source = products.reshape(end - row, *g.dims[1:], *g.kernel, p.maps).transpose(order)
        target = out[image, row * g.kernel[0] : end * g.kernel[0]].reshape(source.shape)
        calls.append(partial(np.matmul, pixels, matrix, out=products))
        calls.append(partial(np.copyto, target, source) if b is None else partial(np.add, source, b, out=target))
        start += end - row
    return calls


def _scattered(
    p: Problem, x: Array, weights: Array, b: Array | None, out: Array, room: Array, start: int, stop: int
) -> list[Call]:
    """Calls for maps `start` to `stop` of each group."""
    calls: list[Call] = []
    for k in range(p.group):
        maps = slice(k * p.maps + start, k * p.maps + stop)
        calls.append(partial(np.copyto, out[..., maps], 0 if b is None else b[maps]))
        channels = slice(k * p.channels, (k + 1) * p.channels)
        for image in range(p.images):
            for row in range(0, p.geometry.dims[0], p.rows):
                rows = slice(row, min(row + p.rows, p.geometry.dims[0]))
                pixels = x[image].reshape(p.geometry.positions, -1)[:, channels]
                calls += _block_calls(p, pixels, weights[k], out[image][..., maps], room, rows)
    return calls


def _block_calls(p: Problem, pixels: Array, weights: Array, target: Array, room: Array, rows: slice) -> list[Call]:
    """Calls that add what some rows of one image and group amount to. weights: (channels, offsets, maps)."""
    g, width = p.geometry, math.prod(p.geometry.dims[1:])
    dims, columns = (rows.stop - rows.start, *g.dims[1:]), weights.shape[1] * weights.shape[2]
    products = room[: math.prod(dims) * columns].reshape(math.prod(dims), columns)
    shares = products.reshape(*dims, *weights.shape[1:])
    block = pixels[rows.start * width : rows.stop * width]
    calls: list[Call] = [partial(np.matmul, block, weights.reshape(p.channels, columns), out=products)]
    for tap in taps(g, rows.start, rows.stop):
        place = target[tap.source[1:]]
        calls.append(partial(np.add, place, shares[tap.target[1:]][..., tap.index, :], out=place))
    return calls


def _workspace(op: ChannelsLast, x: TensorType, w: TensorType, b: TensorType | None = None) -> int:
    p = _problem(op, x, w)
    return carved_bytes(*(size * p.itemsize for (size,) in _rooms(p, parts_of(p.seconds))))


def _estimate(op: ChannelsLast, x: TensorType, w: TensorType, b: TensorType | None = None) -> float:
    seconds = _problem(op, x, w).seconds
    return seconds / parts_of(seconds)


def _bind(op: ChannelsLast, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> Bound:
    p, w = _problem(op, *types[:2]), constants[1]
    parts = parts_of(p.seconds)
    if w is None:
        return Bound(p, parts, None)
    return Bound(p, parts, tuple(np.ascontiguousarray(_own_weights(p, w, share)) for share in _shares(p, parts)))


def _supports(op: ChannelsLast, x: TensorType, w: TensorType, b: TensorType | None = None) -> str | None:
    return None if x.is_static and w.is_static else "needs shapes that are known in numbers"


@kernel(
    ChannelsLast,
    wraps=ConvTranspose,
    device="cpu",
    variant="products",
    dtypes=DTYPES,
    supports=_supports,
    workspace=_workspace,
    estimate=_estimate,
    bind=_bind,
)
def conv_transpose_products(op: ChannelsLast, *operands: Array | None, out: Array, workspace: Array) -> None:
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
    _bind(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)


KERNELS: tuple[Kernel, ...] = (conv_transpose_products,)
