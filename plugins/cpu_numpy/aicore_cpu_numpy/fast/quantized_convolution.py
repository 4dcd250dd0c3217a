"""ConvInteger and QLinearConv on float32 BLAS, with the reference's bits.

A block of output rows at a time: the bytes that its windows reach become floats without their zero point, so that the
padding is zeros; the windows are copied side by side, unless the kernel is 1x1; then it is a product for each group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aicore.ir import TensorType
from aicore.kernels import Kernel, kernel
from aicore.ops.quantized_linear import EIGHT_BITS, ConvInteger, QLinearConv, as_conv
from aicore.ops.window import numbers, output_dims
from aicore.records import dataclass
from aicore_cpu_numpy.fast._quantized import (
    Array,
    Epilogue,
    Packed,
    Requantization,
    Room,
    magnitude,
    padded,
    run_unbound,
    shifted,
    spread_tasks,
    sum_products,
    threads_for,
)
from aicore_cpu_numpy.fast._taps import Geometry, Index
from aicore_cpu_numpy.reference.quantized_linear import multiplier_of

BLOCK_ELEMENTS = 1 << 18
"""Floats of a block's windows, and of its sums, which share the second-level cache."""
GEMM_RATE, BYTE_RATE, CALL = 30e9, 1.5e9, 3e-6
"""For estimates: operations and moved elements per second of one core, and seconds of one NumPy call."""

Operator = ConvInteger | QLinearConv
Shape = tuple[int, ...]
Piece = tuple[int, slice, int, int]
"""Image, groups, first and end row of a block."""


@dataclass(frozen=True)
class _Sizes:
    """A convolution as products (maps, channels * offsets) @ (channels * offsets, positions), one for each group.

    channels, maps: of one group. block: groups and rows of the output that a block has.
    """

    geometry: Geometry
    images: int
    group: int
    channels: int
    maps: int
    block: tuple[int, int]
    threads: int

    @classmethod
    def of(cls, op: Operator, x: Shape, w: Shape) -> _Sizes:
        conv = as_conv(op).settled(x[2:], w[2:], len(x) - 2)
        dims = numbers(output_dims(conv, x[2:], w[2:]))
        depth, maps = math.prod(w[1:]), w[0] // op.group
        threads = threads_for(x[0] * w[0] * depth * math.prod(dims))
        row = max((depth + maps) * math.prod(dims[1:]), 1)
        rows = min(max(BLOCK_ELEMENTS // row, 1), max(dims[0], 1))
        if x[0] * op.group < threads:
            rows = min(rows, -(-dims[0] // threads))
        groups = max(min(BLOCK_ELEMENTS // (row * rows), -(-x[0] * op.group // threads), op.group), 1)
        geometry = Geometry.of(conv, x[2:], dims)
        return cls(geometry, x[0], op.group, w[1], maps, (groups, max(rows, 1)), threads)

    @property
    def depth(self) -> int:
        """Terms of a sum."""
        return self.channels * self.geometry.offsets

    @property
    def row(self) -> int:
        """Positions in one step along the first spatial dim."""
        return math.prod(self.geometry.dims[1:])

    @property
    def pieces(self) -> list[Piece]:
        """All blocks."""
        (groups, rows), height = self.block, self.geometry.dims[0]
        return [
            (image, slice(group, min(group + groups, self.group)), start, min(start + rows, height))
            for image in range(self.images)
            for group in range(0, self.group, groups)
            for start in range(0, height, rows)
        ]

    @property
    def piece_count(self) -> int:
        """How many blocks there are."""
        (groups, rows), height = self.block, self.geometry.dims[0]
        return self.images * -(-self.group // groups) * -(-height // rows)

    @property
    def is_plain(self) -> bool:
        """Whether the windows lie side by side already."""
        g = self.geometry
        return g.offsets == 1 and set(g.strides) == {1}

    def reach(self, start: int, stop: int) -> tuple[Shape, Shape]:
        """First and end element that rows `start` to `stop` reach in each spatial dim, padding included."""
        g, lows, highs = self.geometry, [], []
        for i, positions in enumerate(g.dims):
            first, last = (start, stop - 1) if i == 0 else (0, positions - 1)
            lows.append(first * g.strides[i] - g.begins[i])
            highs.append(last * g.strides[i] - g.begins[i] + (g.kernel[i] - 1) * g.dilations[i] + 1)
        return tuple(lows), tuple(highs)

    def room(self) -> tuple[int, int, int]:
        """Elements that a block takes: what its windows reach, the windows, its sums."""
        groups, rows = self.block
        reached = math.prod(max(high - low, 0) for low, high in zip(*self.reach(0, rows), strict=True))
        positions = rows * self.row
        windows = 0 if self.is_plain else groups * self.depth * positions
        return groups * self.channels * reached, windows, groups * self.maps * positions


class Convolution:
    """One convolution of known sizes; the weight is packed once if it and its zero point are constant."""

    def __init__(
        self, op: Operator, x: TensorType, w: TensorType, weight: Array | None, zero_point: Array | None
    ) -> None:
        self._sizes = _Sizes.of(op, x.static_shape, w.static_shape)
        self._pieces = self._sizes.pieces
        self._packed = None if weight is None else self._pack(weight, zero_point)

    def _pack(self, w: Array, zero_point: Array | None) -> Packed:
        """(groups, maps, channels * offsets)."""
        s = self._sizes
        by_map = None if zero_point is None else self._by_map(zero_point)
        return Packed.of(w.reshape(s.group, s.maps, s.depth), by_map, -1)

    def _by_map(self, parameter: Array) -> Array:
        """In a shape that broadcasts to (groups, maps, anything)."""
        s = self._sizes
        return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(s.group, s.maps, 1)

    def run(
        self,
        x: Array,
        x_zero_point: Array | None,
        w: Array,
        w_zero_point: Array | None,
        result: Epilogue | None,
        out: Array,
        workspace: Array,
    ) -> None:
        """out = the sums, or what `result` makes of them."""
        s = self._sizes
        weights = self._pack(w, w_zero_point) if self._packed is None else self._packed
        zero_point = None if x_zero_point is None else x_zero_point.reshape(())
        parts = weights.parts(s.depth, magnitude(x.dtype, zero_point))
        wide = result is None or len(parts) > 1 or result.needs_integers
        inputs = x.reshape(s.images, s.group, s.channels, *s.geometry.spatial)
        results = out.reshape(s.images, s.group, s.maps, s.geometry.positions)

        def compute(piece: Piece, share: Array) -> None:
            image, groups, start, stop = piece
            room, positions = Room(share), slice(start * s.row, stop * s.row)
            target = results[image, groups, :, positions]
            columns = self._columns(inputs[image, groups], zero_point, start, stop, room)
            work = room.take(target.size).reshape(target.shape)
            total = target if result is None else room.take(target.size, np.int32).reshape(target.shape)
            chosen = weights.numbers[groups]
            found = sum_products(
                lambda part: chosen[..., part],
                lambda part: columns[:, part],
                parts,
                work,
                total if wide else None,
            )
            if result is not None:
                result.at((image, groups, slice(None), positions)).finish(found, work, target)

        spread_tasks(self._pieces, compute, workspace, s.threads)

    def _columns(self, x: Array, zero_point: Array | None, start: int, stop: int, room: Room) -> Array:
        """The windows of a block: (groups, channels * offsets, positions)."""
        s, g = self._sizes, self._sizes.geometry
        lows, highs = s.reach(start, stop)
        reached = _reached(x, lows, highs, zero_point, room)
        positions = (stop - start) * s.row
        if s.is_plain:
            return reached.reshape(x.shape[0], s.depth, positions)
        steps, count = reached.strides[2:], len(g.dims)
        windows = np.lib.stride_tricks.as_strided(
            reached,
            (*x.shape[:2], *g.kernel, stop - start, *g.dims[1:]),
            (
                *reached.strides[:2],
                *(steps[i] * g.dilations[i] for i in range(count)),
                *(steps[i] * g.strides[i] for i in range(count)),
            ),
            writeable=False,
        )
        columns = room.take(windows.size).reshape(windows.shape)
        np.copyto(columns, windows)
        return columns.reshape(x.shape[0], s.depth, positions)


def _reached(x: Array, lows: Shape, highs: Shape, zero_point: Array | None, room: Room) -> Array:
    """The elements from `lows` to `highs` in float32 without their zero point; zeros where there are none."""
    shape = (*x.shape[:2], *(high - low for low, high in zip(lows, highs, strict=True)))
    found = room.take(math.prod(shape)).reshape(shape)
    spans = list(zip(lows, highs, x.shape[2:], strict=True))
    source: Index = (..., *(slice(max(low, 0), max(min(high, n), 0)) for low, high, n in spans))
    taken = x[source]
    places = (slice(max(-low, 0), max(-low, 0) + n) for low, n in zip(lows, taken.shape[2:], strict=True))
    if taken.shape != found.shape:
        found.fill(0)
    target: Index = (..., *places)
    shifted(taken, zero_point, found[target])
    return found


def supports_convolution(x: TensorType, w: TensorType, *others: TensorType | None) -> str | None:
    known = all(t is None or t.is_static for t in (x, w, *others))
    return None if known else "needs shapes that are known in numbers"


def convolution_workspace(op: Operator, x: TensorType, w: TensorType, sums: int) -> int:
    """sums: arrays for them, beside the result."""
    sizes = _Sizes.of(op, x.static_shape, w.static_shape)
    reached, windows, block = sizes.room()
    return sizes.threads * sum(padded(4 * size) for size in (reached, windows, *(block,) * sums))


def convolution_seconds(op: Operator, x: TensorType, w: TensorType) -> float:
    s = _Sizes.of(op, x.static_shape, w.static_shape)
    positions = s.images * s.group * s.geometry.positions
    moved = positions * (s.depth + 6 * s.maps)
    return (2 * positions * s.maps * s.depth / GEMM_RATE + moved / BYTE_RATE) / s.threads + 10 * CALL * s.piece_count


class _IntegerConvolution(Convolution):
    def __init__(self, op: ConvInteger, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> None:
        x, w, _, w_zero_point = (*types, None, None)[:4]
        _, weight, _, zero_point = (*constants, None, None)[:4]
        fixed = w_zero_point is None or zero_point is not None
        super().__init__(op, _given(x), _given(w), weight if fixed else None, zero_point)

    def __call__(
        self,
        x: Array,
        w: Array,
        x_zero_point: Array | None = None,
        w_zero_point: Array | None = None,
        *,
        out: Array,
        workspace: Array,
    ) -> None:
        self.run(x, x_zero_point, w, w_zero_point, None, out, workspace)


class _QuantizedConvolution(Convolution):
    def __init__(self, op: QLinearConv, types: Sequence[TensorType | None], constants: Sequence[Array | None]) -> None:
        weight, zero_point = constants[3], constants[5]
        super().__init__(op, _given(types[0]), _given(types[3]), None if zero_point is None else weight, zero_point)

    def __call__(
        self,
        x: Array,
        x_scale: Array,
        x_zero_point: Array,
        w: Array,
        w_scale: Array,
        w_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
        b: Array | None = None,
        *,
        out: Array,
        workspace: Array,
    ) -> None:
        multiplier = self._by_map(multiplier_of(x_scale.reshape(()), w_scale, y_scale))
        result = Requantization(multiplier, y_zero_point, None if b is None else self._by_map(b))
        self.run(x, x_zero_point, w, w_zero_point, result, out, workspace)


def _given(found: TensorType | None) -> TensorType:
    assert found is not None  # inference refuses a node without it
    return found


@kernel(
    ConvInteger,
    device="cpu",
    variant="im2col",
    dtypes=EIGHT_BITS,
    supports=lambda op, *types: supports_convolution(*types),
    workspace=lambda op, x, w, *others: convolution_workspace(op, x, w, sums=1),
    bind=_IntegerConvolution,
    estimate=lambda op, x, w, *others: convolution_seconds(op, x, w),
)
def conv_integer_im2col(op: ConvInteger, *operands: Array | None, out: Array, workspace: Array) -> None:
    run_unbound(_IntegerConvolution, op, operands, out, workspace)


@kernel(
    QLinearConv,
    device="cpu",
    variant="im2col",
    dtypes=EIGHT_BITS,
    supports=lambda op, x, s, z, w, *others: supports_convolution(x, w, *others),
    workspace=lambda op, x, s, z, w, *others: convolution_workspace(op, x, w, sums=2),
    bind=_QuantizedConvolution,
    estimate=lambda op, x, s, z, w, *others: convolution_seconds(op, x, w),
)
def qlinear_conv_im2col(op: QLinearConv, *operands: Array | None, out: Array, workspace: Array) -> None:
    run_unbound(_QuantizedConvolution, op, operands, out, workspace)


KERNELS: tuple[Kernel, ...] = (conv_integer_im2col, qlinear_conv_im2col)
