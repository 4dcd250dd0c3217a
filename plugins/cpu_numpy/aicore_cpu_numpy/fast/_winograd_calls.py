"""The calls of one worker's share of a Winograd convolution, made once for arrays that stay the same.

A tile is spread out: the first spatial axes of all arrays are the position within the tile, those behind it the tile
and the channels, so that every step of a transform is one NumPy call over long contiguous runs. Columns are sorted by
their phase, the remainder modulo m, as the input is copied with its padding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aicore_cpu_numpy.fast._last_epilogue import Array, Call, Calls, finish
from aicore_cpu_numpy.fast._last_padding import copy_region
from aicore_cpu_numpy.fast._last_problem import Arrays
from aicore_cpu_numpy.fast._winograd_forms import KERNEL, TEMPORARIES
from aicore_cpu_numpy.fast._winograd_tiles import Block, Grid, Share, Strip

Shape = tuple[int, ...]


class ShareCalls:
    """Makes the calls for one share.

    arrays: what the convolution reads and writes. plain: weights (maps, channels, 3, 3) as ONNX has them.
    transformed: (n * n, channels, maps). memory: strip, tiles and products, as flat arrays of the sizes of `Room`.
    """

    def __init__(
        self, grid: Grid, share: Share, arrays: Arrays, plain: Array, transformed: Array, memory: Sequence[Array]
    ) -> None:
        maps = slice(*share.maps)
        self._grid, self._form, self._problem = grid, grid.form, grid.problem
        self._x, self._out = arrays.x, arrays.out[..., maps]
        self._residual = None if arrays.residual is None else arrays.residual[..., maps]
        self._bias = None if arrays.bias is None else arrays.bias.part(maps)
        self._plain, self._transformed = plain[maps], transformed[..., maps]
        self._strip, self._tiles, self._products = memory
        self._maps = share.width
        self._direct = not grid.is_ragged and not grid.problem.apart
        self._stages: dict[tuple[Any, ...], Calls] = {}

    def of(self, block: Block) -> Calls:
        """Read all strips, multiply, write all strips."""
        form, count = self._form, sum(strip.tiles for strip in block)
        tiles = _shaped(self._tiles, (form.products, count, self._problem.channels))
        products = _shaped(self._products, (form.products, count, self._maps))
        calls = [call for strip in block for call in self._read(strip, tiles)]
        calls.append(partial(np.matmul, tiles, self._transformed, out=products))
        return [*calls, *(call for strip in block for call in self._write(strip, products))]

    def _read(self, strip: Strip, tiles: Array) -> Calls:
        m, n, channels = self._form.outputs, self._form.inputs, self._problem.channels
        k, width = strip.height, strip.width + 1
        padded, rows, rest = _carved(self._strip, (m, k + 1, m, width, channels), (n * m * k * width + 1, channels))
        stages = self._once(
            ("read", *strip.shape, strip.at, tiles.shape[1]),
            lambda: self._transform_input(strip, padded, rows.reshape(-1), rest, tiles),
        )
        return [*self._pad(strip, padded), *stages]

    def _pad(self, strip: Strip, padded: Array) -> Calls:
        """Copy what the strip reaches, one phase of the rows and of the columns after another."""
        m, begins = self._form.outputs, self._problem.geometry.begins
        image, calls = self._x[strip.image : strip.image + 1], list[Call]()
        for row, column in itertools.product(range(m), repeat=2):
            target = padded[row, :, column]
            firsts = [(phase - begin) % m for phase, begin in zip((row, column), begins, strict=True)]
            part = image[:, firsts[0] :: m, firsts[1] :: m]
            top = strip.top + (row - begins[0] - firsts[0]) // m
            left = strip.left + (column - begins[1] - firsts[1]) // m
            highs = (top + target.shape[0], left + target.shape[1])
            calls += [
                *_clear_columns(target, left, part.shape[2]),
                *copy_region(part, (top, left), highs, target[None]),
            ]
        return calls

    def _transform_input(self, strip: Strip, padded: Array, rows: Array, rest: Array, tiles: Array) -> Calls:
        """Rows, then columns. Those of the next tile are found one row, or one column, further on."""
        m, n, channels = self._form.outputs, self._form.inputs, self._problem.channels
        k, width = strip.height, strip.width + 1
        phases = padded.reshape(m, -1)
        step, size = m * width * channels, k * m * width * channels
        sources = [phases[i % m, i // m * step : i // m * step + size] for i in range(n)]
        by_phase = _shaped(rows, (m, n, k, width * channels))
        calls = self._form.read(
            sources,
            [by_phase[:, i] for i in range(n)],
            _temporaries(rest, (size,)),
            lambda array: array.reshape(k, m, -1).transpose(1, 0, 2),
        )
        size = n * k * width * channels
        starts = [j % m * size + j // m * channels for j in range(n)]
        spread = _tile_view(tiles, n, strip)
        return calls + self._form.read(
            [rows[start : start + size] for start in starts],
            [spread[:, j] for j in range(n)],
            _temporaries(rest, (size,)),
            lambda array: array.reshape(n, k, width, channels)[:, :, :-1],
        )

    def _write(self, strip: Strip, products: Array) -> Calls:
        m, n, maps = self._form.outputs, self._form.inputs, self._maps
        k, width = strip.shape
        rows, local, sums, rest = _carved(
            self._strip, (n, m, k * width * maps), (k, m, width, m, maps), (k * m, 1, maps)
        )
        target, source = self._of(strip, self._out), local.reshape(k * m, width * m, maps)
        if self._direct:
            source, local = target, target.reshape(k, m, width, m, maps)
        else:
            source = source[: target.shape[0], : target.shape[1]]
        calls = self._once(
            ("write", *strip.shape, strip.at, products.shape[1]),
            lambda: self._transform_rows(strip, products, rows, rest),
        )
        last = [local[:, :, :, j].transpose(1, 0, 2, 3) for j in range(m)]
        columns = list(rows.reshape(n, -1))
        residual = None if self._residual is None else self._of(strip, self._residual)
        return [
            *calls,
            *self._form.write(
                columns, last, _temporaries(rest, columns[0].shape), lambda array: array.reshape(m, k, width, maps)
            ),
            self._check(strip, source, sums[: source.shape[0]]),
            *finish(source, target, self._bias, residual, self._problem.activation),
        ]

    def _transform_rows(self, strip: Strip, products: Array, rows: Array, rest: Array) -> Calls:
        n = self._form.inputs
        spread = _tile_view(products, n, strip).reshape(n, n, -1)
        targets = [rows[:, i] for i in range(self._form.outputs)]
        return self._form.write(list(spread), targets, _temporaries(rest, spread.shape[1:]), lambda array: array)

    def _check(self, strip: Strip, source: Array, sums: Array) -> Call:
        """Compute a strip again, without transforms, if not all of it is finite.

        A number of the input that is infinite or no number at all, or so large that a transform overflows, would
        spread over its tile. The sum over a strip is finite only if all of it is.
        """
        ones = np.ones((1, source.shape[1]), source.dtype)
        again = self._plainly(strip, source)
        add_up, total = partial(np.matmul, ones, source, out=sums), partial(np.add.reduce, sums, axis=None)

        def check() -> None:
            add_up()
            if not math.isfinite(total()):
                again()

        return check

    def _plainly(self, strip: Strip, source: Array) -> Call:
        """The strip as sums of products, in the memory of the tiles, which have been multiplied."""
        m, (begin_row, begin_column) = self._form.outputs, self._problem.geometry.begins
        corner = strip.top * m - begin_row, strip.left * m - begin_column
        return partial(convolve_plainly, self._x[strip.image], self._plain, source, corner, self._tiles)

    def _of(self, strip: Strip, images: Array) -> Array:
        m = self._form.outputs
        return images[strip.image, strip.top * m : strip.bottom * m, strip.left * m : strip.right * m]

    def _once(self, key: tuple[Any, ...], make: Callable[[], Calls]) -> Calls:
        """Most strips are alike, and work on the same scratch memory."""
        if key not in self._stages:
            self._stages[key] = make()
        return self._stages[key]


def convolve_plainly(image: Array, w: Array, target: Array, corner: tuple[int, int], scratch: Array) -> None:
    """A 3x3 convolution of a part of an image as sums of products, which infinities and NaN pass as they should.

    image: (height, width, channels). w: (maps, channels, 3, 3). target: (rows, columns, maps).
    corner: where the window of the target's first element starts. scratch: channels * maps + columns * maps elements.
    """
    maps, channels = w.shape[:2]
    weights, products, _ = _carved(scratch, (channels, maps), target.shape[1:])
    target[...] = 0
    for i in range(KERNEL):
        for j in range(KERNEL):
            np.copyto(weights, w[:, :, i, j].T)
            low, high = _inside(corner[1] + j, target.shape[1], image.shape[1])
            start, stop = _inside(corner[0] + i, target.shape[0], image.shape[0])
            for row in range(start, stop if low < high else start):
                part = products[: high - low]
                source = image[corner[0] + i + row, corner[1] + j + low : corner[1] + j + high]
                np.matmul(source, weights, out=part)
                np.add(target[row, low:high], part, out=target[row, low:high])


def _inside(offset: int, count: int, size: int) -> tuple[int, int]:
    """Which of `count` positions from `offset` on lie within 0 to `size`."""
    return max(-offset, 0), min(size - offset, count)


def _clear_columns(padded: Array, left: int, size: int) -> Calls:
    """Zeros in the columns beyond both ends of an image, of which the first column to be copied is `left`."""
    count = padded.shape[1]
    start = min(max(-left, 0), count)
    stop = max(min(size - left, count), start)
    return [partial(edge.fill, 0) for edge in (padded[:, :start], padded[:, stop:]) if edge.size]


def _tile_view(spread: Array, n: int, strip: Strip) -> Array:
    """The strip's tiles of (n * n, tiles of a block, channels) as (n, n, height, width, channels)."""
    part = spread[:, strip.at : strip.at + strip.tiles]
    return part.reshape((n, n, *strip.shape, spread.shape[-1]))


def _temporaries(rest: Array, shape: Shape) -> list[Array]:
    size = math.prod(shape)
    return [rest[i * size : (i + 1) * size].reshape(shape) for i in range(TEMPORARIES)]


def _shaped(flat: Array, shape: Shape) -> Array:
    return flat[: math.prod(shape)].reshape(shape)


def _carved(flat: Array, *shapes: Shape) -> list[Array]:
    """Arrays of these shapes one after another, and the rest."""
    found, start = [], 0
    for shape in shapes:
        found.append(_shaped(flat[start:], shape))
        start += math.prod(shape)
    return [*found, flat[start:]]
