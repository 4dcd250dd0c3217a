"""A convolution of channels-last images in numbers, and how its output is cut up for workers and for the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from aicore.ir import Op
from aicore.ops.convolution import Conv
from aicore.ops.window import numbers, output_dims
from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_epilogue import Array, Bias, Calls, finish, needs_two
from aicore_cpu_numpy.fast._last_padding import is_inside, reach
from aicore_cpu_numpy.fast._parallel import shares, spans
from aicore_cpu_numpy.fast._taps import Geometry

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A convolution of known shapes.

    channels, maps: of one group, in and out. residual, activation: what follows. workers: threads to be kept busy.
    pitched: the positions of the output are further apart than its channels are many.
    before: what is done to the scaled input.
    """

    geometry: Geometry
    images: int
    group: int
    channels: int
    maps: int
    itemsize: int
    bias: bool = False
    residual: bool = False
    activation: Op | None = None
    workers: int = 1
    pitched: bool = False
    before: Op | None = None

    @classmethod
    def of(cls, conv: Conv, x: Shape, w: Shape, itemsize: int, **rest: Any) -> Problem:
        """x: (N, spatial..., C). w: (M, C / group, kernel...)."""
        spatial = x[1:-1]
        conv = conv.settled(spatial, w[2:], len(spatial))
        geometry = Geometry.of(conv, spatial, numbers(output_dims(conv, spatial, w[2:])))
        return cls(geometry, x[0], conv.group, w[1], w[0] // conv.group, itemsize, **rest)

    @property
    def depth(self) -> int:
        """Length of the dot products."""
        return self.channels * self.geometry.offsets

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return self.group * self.channels

    @property
    def outputs(self) -> int:
        """Channels of the output."""
        return self.group * self.maps

    @property
    def height(self) -> int:
        """Rows of all images: the unit in which work is shared."""
        return self.images * self.geometry.dims[0]

    @cached_property
    def width(self) -> int:
        """Positions in one row."""
        return math.prod(self.geometry.dims[1:])

    @cached_property
    def positions(self) -> int:
        return self.height * self.width

    @property
    def size(self) -> int:
        """Elements of the output."""
        return self.positions * self.outputs

    @property
    def products(self) -> int:
        return self.size * self.depth

    @cached_property
    def pads(self) -> bool:
        """Whether a window reaches beyond the image."""
        return not is_inside(self.geometry.spatial, *reach(self.geometry, 0, self.geometry.dims[0]))

    @property
    def apart(self) -> bool:
        """Whether what follows needs a source that is not the output.

        NumPy copies to and fro what lies apart, in every pass, so that only the last one should meet it.
        """
        return needs_two(self.activation) or (self.pitched and self.passes > 0)

    @property
    def passes(self) -> int:
        """Passes over the output for what follows, of the cost of an addition."""
        activation = 0 if self.activation is None else 6 if needs_two(self.activation) else 2
        return self.bias + self.residual + activation


@dataclass(frozen=True, eq=False)
class Arrays:
    """What a convolution reads and writes, besides its weights; images have their channels last.

    packed: the weights are constant, and were brought into their best order.
    scale, shift: of the input, if the problem has something `before`.
    """

    x: Array
    out: Array
    bias: Bias | None
    residual: Array | None
    packed: bool
    scale: Bias | None = None
    shift: Bias | None = None


@dataclass(frozen=True)
class Block:
    """Rows of an image, or whole images."""

    images: slice
    rows: slice

    @property
    def height(self) -> int:
        images: int = self.images.stop - self.images.start
        rows: int = self.rows.stop - self.rows.start
        return images * rows

    def of(self, array: Array) -> Array:
        """The block of images of the output's dims, as (positions, channels)."""
        return as_rows(array[self.images, self.rows])


def as_rows(images: Array) -> Array:
    """(positions, channels): a view. Raises ValueError if the positions are not evenly spaced."""
    rows = images.reshape(math.prod(images.shape[:-1]), images.shape[-1])
    if rows.size and not np.may_share_memory(rows, images):
        raise ValueError(f"positions are not evenly spaced: shape {images.shape}, strides {images.strides}")
    return rows


def even_spans(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    """The fewest spans of at most `most`, or 1, that are about equal."""
    count = -(-(stop - start) // max(most, 1))
    return [(start + low, start + high) for low, high in spans(stop - start, count)]


def blocks(problem: Problem, start: int, stop: int, most: int) -> list[Block]:
    """Rows `start` to `stop` of all images in blocks of at most `most` rows; small images come several at a time."""
    return list(blocks_of(problem.geometry.dims[0], start, stop, most))


def blocks_of(height: int, start: int, stop: int, most: int) -> Iterator[Block]:
    """The same for images of so many rows each."""
    while start < stop:
        image, row = divmod(start, height)
        whole = min(stop - start, most) // height
        if row == 0 and whole:
            yield Block(slice(image, image + whole), slice(0, height))
            start += whole * height
            continue
        end = min(stop - start + row, height)
        for low, high in even_spans(row, end, most):
            yield Block(slice(image, image + 1), slice(low, high))
        start += end - row


MANY = 16
"""Images of each worker, of which one more or less is no matter."""


def bounds_of(problem: Problem, parts: int, split: str, seconds: float) -> list[tuple[int, int, slice]]:
    """(first row, end row, maps) of each worker; by `maps`, each has all rows and some output channels.

    seconds: what all of it takes one thread.
    """
    if problem.size == 0:
        return []
    if split == "maps" and problem.group == 1:
        return [(0, problem.height, slice(*span)) for span in shares(problem.maps, parts, seconds)]
    rows = shares_of_rows(problem.images, problem.geometry.dims[0], parts, seconds)
    return [(start, stop, slice(0, problem.outputs)) for start, stop in rows]


def shares_of_rows(images: int, height: int, parts: int, seconds: float) -> list[tuple[int, int]]:
    """(first row, end row) of each worker, counted through images of so many rows.

    Of many images, each worker has whole ones: that takes fewer calls, for which threads may have to wait.
    """
    if images < MANY * parts:
        return shares(images * height, parts, seconds)
    return [(start * height, stop * height) for start, stop in shares(images, parts, seconds)]


def tail(problem: Problem, arrays: Arrays, block: Block, source: Array, target: Array) -> Calls:
    """What follows the products of a block; both are (positions, channels)."""
    residual = None if arrays.residual is None else block.of(arrays.residual)
    return finish(source, target, arrays.bias, residual, problem.activation)
