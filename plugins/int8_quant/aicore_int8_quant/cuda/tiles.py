"""Tiles of the compiled kernels, and how long a product takes with each."""

from __future__ import annotations

from dataclasses import dataclass

from aicore_int8_quant.cuda.launch import machine
from aicore_int8_quant.cuda.problem import Sizes

SPLITS = (1, 2, 4, 8)
"""Blocks that may share the depth of a tile; a cluster of more is not portable."""
LAUNCH_SECONDS = 1.1e-6
"""From the beginning of one small kernel of a graph to that of the next."""
BYTES_EACH_SECOND, L2_BYTES_EACH_SECOND = 4.0e12, 5.5e12
_DP4A_EACH_MULTIPROCESSOR, _MMA_EACH_MULTIPROCESSOR = 132.6e12 / 132, 1.2e15 / 132
"""Operations a second with every number in registers, as measured on an H200."""
WGMMA_EACH_MULTIPROCESSOR = 1.6e15 / 132
_FILL_SECONDS, _JOIN_SECONDS = 1.3e-6, 0.7e-6
"""Before the first product; and for blocks that add up each other's sums."""
_BUSY_WARPS = 8
"""Of a multiprocessor, that keep its arithmetic busy."""


@dataclass(frozen=True)
class Tile:
    """index: in the list of the .cu file. rows, columns: of the result. depth: of a stage. warps: of a block.

    stages: in shared memory. rate: share of a multiprocessor's arithmetic that it reaches when that is full.
    """

    index: int
    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    rate: float

    @property
    def shared_bytes(self) -> int:
        """Of shared memory: stages, and in their place sums with eight words more to a row; then what finishes them."""
        stages = self.stages * (self.rows + self.columns) * self.depth
        return max(4 * self.rows * (self.columns + 8), stages) + 8 * self.columns + 32


DP4A = {
    "128x256": Tile(0, 128, 256, 64, 8, 3, 0.97),
    "128x128": Tile(1, 128, 128, 64, 8, 3, 0.95),
    "64x128": Tile(2, 64, 128, 64, 4, 3, 0.93),
    "64x128x2": Tile(3, 64, 128, 128, 8, 3, 0.92),
    "64x64x2": Tile(4, 64, 64, 128, 4, 3, 0.88),
    "16x64x4": Tile(5, 16, 64, 128, 8, 4, 0.6),
}
"""By rows x columns and, if there are several, slices of warps. 16 rows are for few rows, which memory bounds."""
DP4A_IMAGES = {name: DP4A[name] for name in ("128x128", "64x128", "64x64x2", "16x64x4")}
"""Those for convolutions."""
MMA = {
    "256x128": Tile(0, 256, 128, 128, 8, 4, 0.85),
    "128x256": Tile(1, 128, 256, 128, 8, 4, 0.85),
    "128x128": Tile(2, 128, 128, 128, 4, 3, 0.8),
    "64x64": Tile(3, 64, 64, 128, 4, 4, 0.5),
}
WGMMA = {"128x256": Tile(0, 128, 256, 128, 12, 4, 0.8)}


def fitting(tiles: dict[str, Tile]) -> tuple[str, ...]:
    """Those that a block of this machine has room for."""
    return tuple(name for name, tile in tiles.items() if tile.shared_bytes <= machine().shared_bytes)


def dp4a_seconds(sizes: Sizes, tile: Tile, split: int) -> float:
    return seconds(sizes, tile, split, _DP4A_EACH_MULTIPROCESSOR)


def mma_seconds(sizes: Sizes, tile: Tile, split: int) -> float:
    return seconds(sizes, tile, split, _MMA_EACH_MULTIPROCESSOR)


def seconds(sizes: Sizes, tile: Tile, split: int, rate: float) -> float:
    """The work of the busiest multiprocessor, or of memory if that takes longer."""
    facts = machine()
    stages = -(-sizes.depth // tile.depth)
    blocks = sizes.groups * -(-sizes.rows // tile.rows) * -(-sizes.columns // tile.columns)
    most = -(-blocks * split // facts.multiprocessors)
    busy = min(1.0, 0.3 + 0.7 * most * tile.warps / _BUSY_WARPS)
    each = 2.0 * tile.rows * tile.columns * -(-stages // split) * tile.depth
    arithmetic = most * each / (rate * tile.rate * busy)
    read = blocks * (tile.rows + tile.columns) * sizes.depth
    moved = sizes.groups * (sizes.rows * sizes.depth + sizes.columns * sizes.depth + sizes.rows * sizes.columns)
    taken = max(arithmetic, read / L2_BYTES_EACH_SECOND, moved / BYTES_EACH_SECOND)
    if split > 1:
        taken += _JOIN_SECONDS if facts.clusters else 2 * LAUNCH_SECONDS + moved_sums(sizes) / BYTES_EACH_SECOND
    return LAUNCH_SECONDS + _FILL_SECONDS + taken


def moved_sums(sizes: Sizes) -> int:
    """Bytes of int32 sums that are cleared, added to and read."""
    return 16 * sizes.groups * sizes.rows * sizes.columns
