"""Int8Conv with channels last: exact sums strip by strip, and the epilogue while a strip is in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aicore.ir import TensorType, Value, as_tuple
from aicore.kernels import Kernel, kernel
from aicore.ops.layout import ChannelsLast
from aicore.ops.quantized_linear import EIGHT_BITS
from aicore.runtime import thread_count
from aicore_cpu_numpy.integer_sums import EXACT, last, magnitude, shifted
from aicore_int8_quant.kernels._strips import Call, Strips, Weights, cuts, exact_parts, strips_of
from aicore_int8_quant.kernels.epilogue import Finish, reason_against
from aicore_int8_quant.ops.linear import Int8Conv

Array = np.ndarray[Any, Any]
Types = Sequence[TensorType | None]
Arrays = Sequence[Array | None]

OPERANDS = 11
_ADDEND = 6
_TILE = 8192
"""Elements over which numbers of channels are repeated: NumPy is slow on rows that are shorter."""
_MOST_OFFSETS = EXACT // 255**2
"""Elements of a kernel whose products float32 adds up exactly, for one channel of any codes and zero points."""


@dataclass(frozen=True)
class _Ready:
    """What is known once all operands but the images are."""

    strips: Strips
    weights: Weights
    zero_point: float
    finish: Finish
    wide: bool

    @classmethod
    def of(cls, op: Int8Conv, x: TensorType, workers: int, operands: Arrays) -> _Ready:
        """operands: without the images, which are not looked at."""
        _, w, scale, x_point, w_point, bias, _, addend_scale, addend_point, y_scale, y_point = operands
        assert w is not None  # inference refuses a node without these
        assert scale is not None
        by_map = None if w_point is None else w_point.reshape(-1, *(1,) * (w.ndim - 1))
        numbers = shifted(w, by_map, np.empty(w.shape, np.float32))
        parts = exact_parts(numbers, magnitude(x.dtype, None), op.conv.group)
        assert parts is not None  # `_reason` saw to it
        point = 0 if x_point is None else int(x_point.item())
        offset = _offset(bias, numbers, point)
        wide = len(parts) > 1 or bool((np.abs(offset) > EXACT).any())
        strips = strips_of(op.conv, x.static_shape, w.shape, workers, len(parts))
        finish = Finish(
            scale=_tiled(scale.reshape(-1), len(w)),
            bias=_tiled(offset.astype(np.int32 if wide else np.float32), len(w)) if offset.any() else None,
            addend_scale=addend_scale,
            addend_zero_point=addend_point,
            activation=op.activation,
            y_scale=y_scale,
            y_zero_point=y_point,
        )
        return cls(strips, Weights(parts), float(point), finish, wide)

    def call(self, x: Array, addend: Array | None, out: Array, workspace: Array) -> Call:
        p = self.strips.problem
        rows = out.reshape(p.positions, p.outputs)
        added = None if addend is None else _addend(addend, rows)

        def finish(block: last.Block, sums: Array, work: Array) -> Iterator[Call]:
            first = (block.images.start * p.geometry.dims[0] + block.rows.start) * p.width
            return _finished(self.finish, sums, work, rows[first : first + len(sums)], _part(added, first, len(sums)))

        calls = self.strips.calls(x, self.zero_point, self.weights, self.wide, workspace, finish)
        return last.side_by_side(calls)


class _Bound:
    """One step of a plan. What is constant is made ready once, the rest in each call."""

    def __init__(self, op: ChannelsLast, types: Types, constants: Arrays) -> None:
        inner, x = op.inner, types[0]
        assert isinstance(inner, Int8Conv)
        assert x is not None  # inference refuses a node without it
        self._op, self._x, self._workers = inner, x, thread_count()
        given = [t is not None for t in _padded(types)]
        known = [a is not None for a in _padded(constants)]
        images = (0, _ADDEND)
        is_ready = all(known[i] or not given[i] for i in range(OPERANDS) if i not in images)
        self._ready = _Ready.of(inner, x, self._workers, _padded(constants)) if is_ready else None

    def __call__(self, *operands: Array | None, out: Array, workspace: Array) -> None:
        self.place(*operands, out=out, workspace=workspace)()

    def place(self, *operands: Array | None, out: Array, workspace: Array) -> Call:
        """The call for these arrays; with everything constant, all views are made now."""
        given = _padded(operands)
        x = given[0]
        assert x is not None  # inference refuses a node without it
        if self._ready is not None:
            return self._ready.call(x, given[_ADDEND], out, workspace)

        def run() -> None:
            ready = _Ready.of(self._op, self._x, self._workers, given)
            ready.call(x, given[_ADDEND], out, workspace)()

        return run


def _finished(finish: Finish, sums: Array, work: Array, out: Array, addend: Array | None) -> Iterator[Call]:
    """Calls for (positions, channels), over as many positions as a tile has, and those that are left."""
    tile = finish.scale if finish.scale.ndim else finish.bias
    columns = out.shape[1] if tile is None or not tile.ndim else tile.size
    whole = out.size // columns * columns
    for start, stop in ((0, whole), (whole, out.size)):
        if start == stop:
            continue
        shape = (-1, min(columns, stop - start))
        arrays = (a.reshape(-1)[start:stop].reshape(shape) for a in (sums, work, out))
        part = None if addend is None else addend.reshape(-1)[start:stop].reshape(shape)
        yield from finish.first(shape[1], part).calls(*arrays)


def _tiled(numbers: Array, channels: int) -> Array:
    """Of rank 0, or for many positions one after another."""
    if numbers.size == 1:
        return numbers.reshape(())
    return np.ascontiguousarray(np.tile(numbers, max(_TILE // channels, 1)))


def _addend(addend: Array, rows: Array) -> Array:
    """(positions, channels), broadcast where it has one number for each channel."""
    if addend.size == rows.size:
        return addend.reshape(rows.shape)
    return np.ascontiguousarray(np.broadcast_to(addend.reshape(1, -1), rows.shape))


def _part(addend: Array | None, first: int, count: int) -> Array | None:
    return None if addend is None else addend[first : first + count]


def _offset(bias: Array | None, weight: Array, zero_point: int) -> Array:
    """What is added to the sums of codes, int64 and wrapped to 32 bits: the bias less the zero point's share."""
    sums = weight.reshape(len(weight), -1).sum(1, dtype=np.float64).astype(np.int64)
    total = -zero_point * sums + (0 if bias is None else bias.astype(np.int64))
    found: Array = total.astype(np.int32).astype(np.int64)
    return found


def _padded(values: Sequence[Any]) -> list[Any]:
    return [*values, *[None] * OPERANDS][:OPERANDS]


def _reason(op: ChannelsLast, *types: TensorType | None) -> str | None:
    inner, (x, w, *_) = op.inner, types
    assert isinstance(inner, Int8Conv)
    if x is None or w is None or not all(t is None or t.is_static for t in types):
        return "needs shapes that are known in numbers"
    if (reason := reason_against(inner.activation)) is not None:
        return reason
    offsets = math.prod(w.static_shape[2:])
    if offsets > _MOST_OFFSETS:
        return f"takes kernels of at most {_MOST_OFFSETS} elements"
    if inner.conv.group > 1 and offsets * w.static_shape[1] > _MOST_OFFSETS:
        return f"takes groups whose sums have at most {_MOST_OFFSETS} terms"
    addend = _padded(types)[_ADDEND]
    return None if addend is None else _addend_reason(op, types, addend)


def _addend_reason(op: ChannelsLast, types: Types, addend: TensorType) -> str | None:
    values = [None if t is None else Value("operand", t) for t in types]
    (result,) = as_tuple(op.infer(*values))
    assert isinstance(result, TensorType)
    channels = result.static_shape[-1]
    if addend.shape == result.shape or math.prod(addend.static_shape) == channels == addend.static_shape[-1]:
        return None
    return f"adds a tensor of the shape of the result, or one number for each channel, not {addend}"


def _workspace(op: ChannelsLast, x: TensorType, w: TensorType, *others: TensorType | None) -> int:
    """Enough for any cut that weights may need."""
    assert isinstance(op.inner, Int8Conv)
    shapes, most = (x.static_shape, w.static_shape), 0
    channels, offsets = w.static_shape[1], math.prod(w.static_shape[2:])
    for parts in cuts(channels, op.inner.conv.group):
        most = max(most, strips_of(op.inner.conv, *shapes, thread_count(), parts).bytes)
        if -(-channels // parts) * offsets <= _MOST_OFFSETS:
            break
    return most


def _seconds(op: ChannelsLast, x: TensorType, w: TensorType, *others: TensorType | None) -> float:
    assert isinstance(op.inner, Int8Conv)
    return strips_of(op.inner.conv, x.static_shape, w.static_shape, thread_count()).seconds


@kernel(
    ChannelsLast,
    wraps=Int8Conv,
    device="cpu",
    variant="strips",
    dtypes=EIGHT_BITS,
    supports=_reason,
    workspace=_workspace,
    estimate=_seconds,
    bind=_Bound,
)
def int8_conv_last(op: ChannelsLast, *operands: Array | None, out: Array, workspace: Array) -> None:
    types = [None if a is None else TensorType(a.dtype.name, a.shape) for a in operands]
    _Bound(op, types, [None] * len(types))(*operands, out=out, workspace=workspace)


KERNELS: tuple[Kernel, ...] = (int8_conv_last,)
