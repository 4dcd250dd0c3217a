"""Convolutions of bytes in numbers: where windows begin, and how images become the rows of a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from aicore.ir import Op, TensorType
from aicore.ops.convolution import Conv
from aicore.ops.layout import ChannelsLast
from aicore.ops.quantized_linear import as_conv
from aicore.ops.window import numbers, output_dims
from aicore_int8_quant.cuda.launch import Launch, launch
from aicore_int8_quant.cuda.packing import CHUNK, WORD, Weights, padded
from aicore_int8_quant.cuda.problem import NONE, Sizes, dtype_at, inner_of, operands_of, shape_at
from aicore_int8_quant.ops.linear import Int8Conv

Types = Sequence["TensorType | None"]
AXES = 2
"""Spatial axes of an image; one is extended."""
_FEW = 16
"""Channels of a group below which the rows of windows are laid side by side, rather than each tap filled up."""


@dataclass(frozen=True)
class Convolution:
    """channels, maps: of one group, in and out. Pairs are down and across; begin: padding before the image."""

    images: int
    groups: int
    channels: int
    maps: int
    size: tuple[int, int]
    out: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    begin: tuple[int, int]
    last: bool
    unsigned: bool
    unsigned_weights: bool
    point_each: bool
    full: bool

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]

    @property
    def positions(self) -> int:
        return self.out[0] * self.out[1]

    @property
    def terms(self) -> int:
        return self.taps * self.channels

    @property
    def is_plain(self) -> bool:
        """Whether a window is one pixel, in order."""
        return self.taps == 1 and self.stride == (1, 1) and self.begin == (0, 0) and self.size == self.out

    @property
    def is_ready(self) -> bool:
        """Whether pixels can be copied as they lie."""
        return self.last and self.channels % CHUNK == 0

    @property
    def lays_out(self) -> bool:
        """Whether rows of windows are laid out beforehand, for each place across: then windows are one tap wide."""
        return not self.is_ready and self.channels < _FEW

    @property
    def across(self) -> int:
        """Taps that lie side by side."""
        return self.kernel[1] if self.lays_out else 1

    @property
    def per_tap(self) -> int:
        """Bytes of a tap in a row of a and b, or of the taps that lie side by side."""
        return padded(self.across * self.channels)

    @property
    def copied_bytes(self) -> int:
        """Of the copy of x."""
        if self.is_ready:
            return 0
        width = self.out[1] if self.lays_out else self.size[1]
        return self.images * self.size[0] * width * self.groups * self.per_tap

    @property
    def weights(self) -> Weights:
        """(groups * maps, channels, taps...) in memory."""
        return Weights(
            *(self.groups, self.maps, self.taps // self.across, self.channels, self.per_tap),
            *(self.maps * self.terms, self.terms, self.across, self.taps),
            is_unsigned=self.unsigned_weights,
            point_each=self.point_each,
            column_group=self.maps,
            across=self.across,
            across_step=1,
        )

    @property
    def sizes(self) -> Sizes:
        """Of the product, for a that is packed if it must be."""
        rows, outputs = self.images * self.positions, self.groups * self.maps
        pixel, step = self.groups * self.per_tap, self.per_tap
        if not self.is_ready and (self.lays_out or self.last):  # one group behind the other
            pixel, step = self.per_tap, self.copied_bytes // self.groups
        kind = {} if self.is_plain else {"taps": self.taps // self.across, **self._window(), "pixel": pixel}
        return Sizes(
            *(rows, self.maps, self.taps // self.across * self.per_tap, self.groups),
            a_row=pixel,
            a_group=step,
            b_row=self.weights.row,
            positions=max(self.positions, 1),
            y_image=outputs * self.positions,
            y_row=outputs if self.last else 1,
            y_column=1 if self.last else self.positions,
            y_group=self.maps if self.last else self.maps * self.positions,
            column_group=self.maps,
            a_unsigned=int(self.unsigned),
            **kind,
        )

    def _window(self) -> dict[str, int]:
        """How the product sees images."""
        if self.lays_out:
            return {
                **self._own_window(),
                "channels": self.per_tap,
                "filled": self.across * self.channels,
                "kernel_width": 1,
                "width": self.out[1],
                "stride_x": 1,
                "dilation_x": 1,
                "pad_x": 0,
            }
        return {**self._own_window(), "channels": self.per_tap}

    def _own_window(self) -> dict[str, int]:
        """Of images as they are."""
        return {
            "channels": self.channels,
            "filled": self.channels,
            "kernel_width": self.kernel[1],
            "height": self.size[0],
            "width": self.size[1],
            "out_width": self.out[1],
            "stride_y": self.stride[0],
            "stride_x": self.stride[1],
            "dilation_y": self.dilation[0],
            "dilation_x": self.dilation[1],
            "pad_y": self.begin[0],
            "pad_x": self.begin[1],
        }

    def copy(self, x: int, point: int, to: int) -> tuple[Launch, ...]:
        """What makes x ready, if it is not."""
        if self.is_ready:
            return ()
        if self.lays_out:
            rows = self.images * self.size[0] * self.out[1]
            places, out = (x, point, to), (self.size[0], self.out[1])
            stride, begin = (1, self.stride[1]), (0, self.begin[1])
            shape = (self.groups, rows, self.per_tap)
            return (self._windows(shape, (1, self.kernel[1]), self.channels, out, stride, begin, places),)
        if self.last:
            rows = self.images * self.pixels
            shape, places = (self.groups, rows, self.per_tap), (x, NONE, to)
            return (self._windows(shape, (1, 1), self.per_tap, self.size, (1, 1), (0, 0), places),)
        sizes = (self.images, self.groups, self.channels, self.per_tap, self.pixels)
        return (launch("int8_pack_images", (*sizes, x, to)),)

    def _windows(
        self,
        rows: tuple[int, int, int],
        kernel: tuple[int, int],
        each: int,
        out: tuple[int, int],
        stride: tuple[int, int],
        begin: tuple[int, int],
        places: tuple[int, int, int],
    ) -> Launch:
        total = self.groups * self.channels
        steps = (self.channels, self.pixels * total, self.size[1] * total, total, 1)
        if not self.last:
            steps = (self.channels * self.pixels, self.pixels * total, self.size[1], 1, self.pixels)
        shape = (kernel[0] * kernel[1], kernel[1], self.channels, each, out[0] * out[1], out[1], *self.size)
        return launch("int8_pack_windows", (*rows, *shape, *steps, *stride, *self.dilation, *begin, *places))

    @property
    def plain_weights(self) -> Weights:
        """With nothing between the taps, for one thread a result."""
        return replace(self.weights, taps=self.taps, padded=self.channels, tap_step=1, channel_step=self.taps, across=1)

    @property
    def word_weights(self) -> Weights:
        """Of four bytes each: channels of one tap, or taps of a row with their channels where these are few."""
        along = self.channels % WORD != 0
        across = self.kernel[1] if along else 1
        return replace(
            self.weights,
            taps=self.taps // across,
            padded=padded(across * self.channels, WORD),
            tap_step=across,
            channel_step=self.taps,
            across=across,
            by_words=True,
        )

    def direct(self) -> tuple[Sizes, int, int]:
        """(sizes for one thread a result, distance of channels, distance of rows)."""
        outputs, total = self.groups * self.maps, self.groups * self.channels
        channel, row, pixel, group = 1, self.size[1] * total, total, self.channels
        if not self.last:
            channel, row, pixel, group = self.pixels, self.size[1], 1, self.channels * self.pixels
        found = Sizes(
            *(self.images * self.positions, self.maps, self.terms, self.groups),
            a_row=group,
            a_group=total * self.pixels,
            b_row=self.plain_weights.row,
            positions=max(self.positions, 1),
            y_image=outputs * self.positions,
            y_row=outputs if self.last else 1,
            y_column=1 if self.last else self.positions,
            y_group=self.maps if self.last else self.maps * self.positions,
            column_group=self.maps,
            taps=self.taps,
            a_unsigned=int(self.unsigned),
            **{**self._own_window(), "pixel": pixel},
        )
        return found, channel, row


@lru_cache(maxsize=4096)
def convolution_of(op: Op, *types: TensorType | None) -> Convolution:
    """Of operands that reason_against has nothing against."""
    at, inner, last = operands_of(op, types), inner_of(op), isinstance(op, ChannelsLast)
    given: Any = inner
    conv: Conv = given.conv if isinstance(inner, Int8Conv) else as_conv(given)
    x, w = shape_at(types, at.x), shape_at(types, at.w)
    spatial, kernel = (x[1:-1] if last else x[2:]), w[2:]
    conv = conv.settled(spatial, kernel, len(spatial))
    out = numbers(output_dims(conv, spatial, kernel))
    points = types[at.w_point] if at.w_point >= 0 else None
    by_channel = (w[0],) if last else (w[0], *(1,) * len(spatial))
    return Convolution(
        images=x[0],
        groups=conv.group,
        channels=w[1],
        maps=w[0] // conv.group,
        size=_pair(spatial),
        out=_pair(out),
        kernel=_pair(kernel),
        stride=_pair(conv.strides),
        dilation=_pair(conv.dilations),
        begin=_pair(conv.pads[: len(spatial)], 0),
        last=last,
        unsigned=dtype_at(types, at.x) == "uint8",
        unsigned_weights=dtype_at(types, at.w) == "uint8",
        point_each=points is not None and points.size != 1,
        full=at.addend >= 0 and shape_at(types, at.addend) != by_channel,
    )


def _pair(dims: Sequence[int], fill: int = 1) -> tuple[int, int]:
    """With a leading axis where there is one alone."""
    first, second = (*(fill,) * (AXES - len(dims)), *dims)
    return first, second
