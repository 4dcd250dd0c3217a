"""Sliding windows and layouts of images as the structs of graph_executor/cnn/window.cuh have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aicore.ops.window import Windowed

AXES = 3
"""Spatial axes that compiled kernels loop over; missing ones come first and have one element."""

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ELEMENTS = {name: code for code, name in enumerate((*_FLOATS, *_INTEGERS))}
"""The enum Element."""

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """Over images of `size`: `out` positions of `kernel`, which begin in `begin` elements of padding."""

    size: Dims
    out: Dims
    kernel: Dims
    stride: Dims
    dilation: Dims
    begin: Dims

    @classmethod
    def of(cls, op: Windowed, size: Sequence[int], out: Sequence[int], begin: Sequence[int] | None = None) -> Window:
        """Of an op with all its defaults filled in; `begin` is its pads' unless given."""
        begins = op.pads[: len(out)] if begin is None else begin
        return cls(
            size=extended(size),
            out=extended(out),
            kernel=extended(op.kernel_shape),
            stride=extended(op.strides),
            dilation=extended(op.dilations),
            begin=extended(begins, 0),
        )

    @property
    def positions(self) -> int:
        return math.prod(self.out)

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def params(self) -> tuple[int, ...]:
        return (*self.size, *self.out, *self.kernel, *self.stride, *self.dilation, *self.begin)


def extended(dims: Sequence[int], fill: int = 1) -> Dims:
    """With leading axes up to AXES."""
    return (*(fill,) * (AXES - len(dims)), *dims)


def distances(channels: int, pixels: int, channels_last: bool) -> tuple[int, int, int]:
    """The struct Distances: elements between images, channels and pixels."""
    return (channels * pixels, 1, channels) if channels_last else (channels * pixels, pixels, 1)
