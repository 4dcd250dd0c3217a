"""Weights in the order in which the products want them, and their column sums; the rules are those of csrc/pack.cuh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aicore_int8_quant.cuda.launch import Launch, launch
from aicore_int8_quant.cuda.problem import NONE, place

ROW_BYTES = 128
"""Rows of packed weights are filled up to a multiple of this: the deepest stage of any tile."""
CHUNK = 16
"""Bytes that are copied at once."""
WORD = 4
"""Bytes that are multiplied at once."""


def padded(count: int, to: int = CHUNK) -> int:
    return -(-count // to) * to


@dataclass(frozen=True)
class Weights:
    """Where the weight for a column and k is: group * group_step + column * column_step + tap * tap_step + ...

    k = tap * padded + across * channels + channel; across: taps of a row of a window that lie side by side.
    point_each: one zero point for each column, those of a group from group * column_group.
    by_words: words of four bytes, each from one column after the other, rather than rows of bytes.
    """

    groups: int
    columns: int
    taps: int
    channels: int
    padded: int
    group_step: int
    column_step: int
    tap_step: int
    channel_step: int
    is_unsigned: bool
    point_each: bool
    column_group: int
    across: int = 1
    across_step: int = 0
    by_words: bool = False

    @property
    def row(self) -> int:
        """Bytes of a packed row."""
        return padded(self.taps * self.padded, WORD if self.by_words else ROW_BYTES)

    @property
    def nbytes(self) -> int:
        return padded(self.groups * self.columns * self.row, 64)

    @property
    def sum_bytes(self) -> int:
        return padded(4 * self.groups * self.columns, 64)

    def launch(self, w_at: int, point_at: int, workspace: int, byte: int) -> Launch:
        """The launch that packs to the workspace: weights, and their sums behind them."""
        steps = (self.group_step, self.column_step, self.tap_step, self.across_step, self.channel_step)
        sizes = (self.groups, self.columns, self.taps, self.across, self.channels, self.padded, self.row)
        kinds = (int(self.is_unsigned), int(self.point_each), self.column_group)
        lines = (WORD, WORD * self.groups * self.columns) if self.by_words else (self.row, WORD)
        places = (w_at, point_at, place(workspace, byte), place(workspace, byte + self.nbytes))
        return launch("int8_pack_weights", (*sizes, *steps, *kinds, *lines, *places))

    def pack(self, xp: Any, w: Any, points: Any) -> tuple[Any, Any, bool]:
        """(packed weights, their sums, whether row sums of a are needed). xp: NumPy or CuPy, whose arrays are given."""
        flip = 128 if self.is_unsigned else 0
        flat = (w.reshape(-1).astype(xp.int16) - flip).astype(xp.int8)
        axes = zip(
            (self.groups, self.columns, self.taps, self.across, self.channels),
            (self.group_step, self.column_step, self.tap_step, self.across_step, self.channel_step),
            strict=True,
        )
        at: Any = 0
        for axis, (size, step) in enumerate(axes):
            at = at + (xp.arange(size) * step).reshape(*(-1 if i == axis else 1 for i in range(5)))
        shape = (self.groups, self.columns, self.taps)
        full = xp.zeros((*shape, self.padded), xp.int8)
        full[..., : self.across * self.channels] = flat[at].reshape(*shape, self.across * self.channels)
        rows = xp.zeros((self.groups, self.columns, self.row), xp.int8)
        rows[..., : self.taps * self.padded] = full.reshape(self.groups, self.columns, -1)
        own = self._points(xp, points, flip)
        sums = rows.astype(xp.int32).sum(-1, dtype=xp.int32) - own * (self.taps * self.across * self.channels)
        if self.by_words:
            rows = xp.ascontiguousarray(rows.reshape(self.groups * self.columns, -1, WORD).swapaxes(0, 1))
        return rows, sums.astype(xp.int32), bool((own != 0).any())

    def _points(self, xp: Any, points: Any, flip: int) -> Any:
        """Zero points of signed weights, in a shape that broadcasts to (groups, columns)."""
        if points is None:
            return xp.full((1, 1), -flip, xp.int32)
        signed = points.reshape(-1).astype(xp.int32) - flip
        if not self.point_each:
            return signed.reshape(1, 1)
        return signed.reshape(self.groups if self.column_group else 1, self.columns)


def on_device(array: Any) -> Any:
    """A constant as an array of CuPy, which shares its memory."""
    import cupy

    return cupy.asarray(array)


@dataclass(frozen=True)
class Ready:
    """Weights that a launch can use: where they and their sums are, and what comes before and along."""

    b: int
    sums: int
    row_sums: bool
    calls: tuple[Launch, ...] = ()
    extra: tuple[Any, ...] = ()


def make_ready(weights: Weights, w: Any, points: Any, has_points: bool, at: tuple[int, int], workspace: int) -> Ready:
    """Packed now if they never change, else by a launch into the workspace's first bytes.

    at: positions of weights and zero points. Arrays in `extra` come behind the workspace.
    """
    if w is None or (has_points and points is None):
        calls = (weights.launch(at[0], at[1] if has_points else NONE, workspace, 0),)
        return Ready(workspace, place(workspace, weights.nbytes), has_points or weights.is_unsigned, calls)
    import cupy

    with cupy.cuda.Device(on_device(w).device.id):
        packed, sums, row_sums = weights.pack(cupy, on_device(w), on_device(points) if has_points else None)
        cupy.cuda.get_current_stream().synchronize()  # graphs are replayed on streams of their own
    return Ready(workspace + 1, workspace + 2, row_sums, (), (packed, sums))
