"""How the output of a convolution is cut into Winograd tiles, strips of them for the cache, and shares for workers."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from aicore.records import dataclass
from aicore_cpu_numpy.fast._last_problem import Problem, even_spans
from aicore_cpu_numpy.fast._last_rates import gemm_seconds
from aicore_cpu_numpy.fast._parallel import PARALLEL, spans
from aicore_cpu_numpy.fast._winograd_forms import TEMPORARIES, Form

STRIP_ELEMENTS = 12288
"""Tiles of a strip times channels: what is in use while a strip is transformed is about 60 times as much."""


class Split(StrEnum):
    """What the workers share out: rows of tiles, or output channels, for which each transforms all of the input."""

    ROWS = "rows"
    MAPS = "maps"


@dataclass(frozen=True)
class Strip:
    """A rectangle of tiles of one image, transformed at a time; `at` is its first tile's place in the block."""

    image: int
    top: int
    bottom: int
    left: int
    right: int
    at: int

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def tiles(self) -> int:
        return self.height * self.width

    @property
    def shape(self) -> tuple[int, int]:
        return self.height, self.width


Block = tuple[Strip, ...]
"""Strips whose tiles are multiplied together."""


@dataclass(frozen=True)
class Share:
    """One worker's part: rows of tiles, counted over all images, and output channels."""

    rows: tuple[int, int]
    maps: tuple[int, int]

    @property
    def width(self) -> int:
        """How many output channels."""
        return self.maps[1] - self.maps[0]


@dataclass(frozen=True)
class Grid:
    """The tiles of a convolution.

    tiles: of a block, at most, unless a strip has more.
    """

    problem: Problem
    form: Form
    tiles: int
    split: Split

    @property
    def rows(self) -> int:
        """Of tiles, in one image."""
        return -(-self.problem.geometry.dims[0] // self.form.outputs)

    @property
    def columns(self) -> int:
        return -(-self.problem.geometry.dims[1] // self.form.outputs)

    @property
    def total(self) -> int:
        """All tiles of all images."""
        return self.problem.images * self.rows * self.columns

    @property
    def is_ragged(self) -> bool:
        """Whether tiles reach beyond the output."""
        return any(dim % self.form.outputs for dim in self.problem.geometry.dims)

    @property
    def strips(self) -> int:
        """About how many, all in all."""
        return max(1, self.total // max(1, self._most(self.problem.maps)))

    @property
    def multiplying(self) -> float:
        """Seconds of one worker for all products, without reading weights."""
        return self.form.products * gemm_seconds(self.total, self.problem.channels, self.problem.maps, 0)

    @property
    def workers(self) -> int:
        """Threads that are worth waking up."""
        return self.problem.workers if self.multiplying > PARALLEL else 1

    def shares(self) -> list[Share]:
        """One for each worker; none where there is no output."""
        rows, maps = self.problem.images * self.rows, self.problem.maps
        if not self.total or not maps:
            return []
        if self.split is Split.MAPS:
            return [Share((0, rows), part) for part in spans(maps, self.workers)]
        return [Share(part, (0, maps)) for part in spans(rows, self.workers)]

    def blocks(self, share: Share) -> list[Block]:
        """The share's tiles as blocks of about equal size."""
        strips = list(self._strips(share))
        total = sum(strip.tiles for strip in strips)
        target = -(-total // -(-total // self.tiles))
        found: list[list[Strip]] = [[]]
        count = 0
        for strip in strips:
            if found[-1] and count + strip.tiles / 2 > target:
                found.append([])
                count = 0
            found[-1].append(Strip(strip.image, strip.top, strip.bottom, strip.left, strip.right, count))
            count += strip.tiles
        return [tuple(block) for block in found]

    def _strips(self, share: Share) -> Iterator[Strip]:
        most = self._most(share.width)
        first, last = share.rows
        for image in range(first // self.rows, -(-last // self.rows)):
            top, bottom = max(first - image * self.rows, 0), min(last - image * self.rows, self.rows)
            for low, high in even_spans(top, bottom, most // self.columns):
                for left, right in even_spans(0, self.columns, most // (high - low)):
                    yield Strip(image, low, high, left, right, 0)

    def _most(self, maps: int) -> int:
        """Tiles of a strip."""
        return max(1, min(STRIP_ELEMENTS // max(self.problem.channels, maps), self.tiles))


@dataclass(frozen=True)
class Room:
    """Elements of memory that one share uses.

    strip: what is in use while a strip is read or written.
    tiles: transformed input of a block; without it, one kernel offset of the weights and a row of products.
    products: of a block.
    """

    strip: int
    tiles: int
    products: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.strip, self.tiles, self.products

    @classmethod
    def of(cls, grid: Grid, share: Share, blocks: list[Block]) -> Room:
        form, channels, maps = grid.form, grid.problem.channels, share.width
        strips = {strip.shape for block in blocks for strip in block}
        most = max(sum(strip.tiles for strip in block) for block in blocks)
        again = channels * maps + form.outputs * max(width for _, width in strips) * maps
        return cls(
            max(max(reading(form, channels, *s), writing(form, maps, *s)) for s in strips),
            max(form.products * most * channels, again),
            form.products * most * maps,
        )


def reading(form: Form, channels: int, height: int, width: int) -> int:
    """Elements in use while a strip is read: its padded input, that with rows transformed, and temporaries."""
    m, n = form.outputs, form.inputs
    padded, rows = m * m * (height + 1), n * m * height
    return ((padded + rows + TEMPORARIES * n * height) * (width + 1) + 1) * channels


def writing(form: Form, maps: int, height: int, width: int) -> int:
    """Elements in use while a strip is written: products with rows transformed, temporaries, output tiles, sums."""
    m, n = form.outputs, form.inputs
    return ((m * n + TEMPORARIES * n + m * m) * height * width + m * height) * maps
