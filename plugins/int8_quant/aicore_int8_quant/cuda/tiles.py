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
    codes: of how many tiles there is room behind the stages. blocks: of a multiprocessor at a time.
    """

    index: int
    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    rate: float
    codes: int = 0
    blocks: int = 1

    @property
    def shared_bytes(self) -> int:
        """Of shared memory: stages, and in their place sums with eight words more to a row; then what finishes them."""
        stages = self.stages * (self.rows + self.columns) * self.depth + self.codes * self.rows * (self.columns + 16)
        return max(4 * self.rows * (self.columns + 8), stages) + max(1, min(2, self.codes)) * (8 * self.columns + 32)


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
    "128x128": Tile(2, 128, 128, 128, 4, 3, 0.8, blocks=2),
    "64x64": Tile(3, 64, 64, 128, 4, 4, 0.55, blocks=3),
    "128x128s": Tile(4, 128, 128, 64, 8, 3, 0.6, codes=3, blocks=2),
    "128x64s": Tile(5, 128, 64, 64, 8, 3, 0.58, codes=3, blocks=3),
    "64x64s": Tile(6, 64, 64, 64, 4, 4, 0.5, codes=4, blocks=4),
}
"""Those with an s have short stages, and blocks that go from tile to tile where results are codes."""
WARPGROUP = {
    "128x128": Tile(0, 128, 128, 128, 8, 5, 0.6, codes=1),
    "128x64": Tile(1, 128, 64, 128, 8, 4, 0.5, codes=1, blocks=2),
}
WGMMA = {"128x256": Tile(0, 128, 256, 128, 12, 4, 0.8)}
CODES, ADDED_CODES, OTHERS = "codes", "codes and an addend", "others"
"""What becomes of sums: whole chunks of codes, the same with a residual of codes, anything else."""
_RESULT_SECONDS = {CODES: 0.12e-9, ADDED_CODES: 0.16e-9, OTHERS: 0.42e-9}
"""For each result of a multiprocessor, as measured on an H200 in ResNet-50."""
_WGMMA_RESULT_SECONDS = 0.2e-9
_DP4A_RESULT_SECONDS = {CODES: 0.2e-9, ADDED_CODES: 0.4e-9, OTHERS: 0.42e-9}
_ADDED_AFTER_SHARING_SECONDS = 0.5e-9
"""For each result with an addend whose sums several blocks share."""
_SHARED_BYTES_EACH_SECOND = 7.5e9
"""That a block reads of the others' sums."""
_WINDOW_SHARE = 0.72
"""Of its rate that a tile keeps when it gathers windows."""


def fitting(tiles: dict[str, Tile]) -> tuple[str, ...]:
    """Those that a block of this machine has room for."""
    return tuple(name for name, tile in tiles.items() if tile.shared_bytes <= machine().shared_bytes)


def dp4a_seconds(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    """The work of the busiest multiprocessor, or of memory if that takes longer."""
    most = -(-_blocks(sizes, tile) * split // machine().multiprocessors)
    busy = min(1.0, 0.3 + 0.7 * most * tile.warps / _BUSY_WARPS)
    arithmetic = most * _operations(sizes, tile, split) / (_DP4A_EACH_MULTIPROCESSOR * tile.rate * busy)
    finishing = tile.rows * tile.columns / split * _DP4A_RESULT_SECONDS[ending] + _joining(sizes, tile, split, ending)
    taken = max(arithmetic, _memory(sizes, tile, ending))
    return LAUNCH_SECONDS + _FILL_SECONDS + taken + most * finishing


def mma_seconds(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    return _in_waves(sizes, tile, split, _MMA_EACH_MULTIPROCESSOR, _RESULT_SECONDS[ending], ending)


def warpgroup_seconds(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    return _in_waves(sizes, tile, split, WGMMA_EACH_MULTIPROCESSOR, _RESULT_SECONDS[ending], ending)


def wgmma_seconds(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    return _in_waves(sizes, tile, split, WGMMA_EACH_MULTIPROCESSOR, _WGMMA_RESULT_SECONDS, ending)


def _in_waves(sizes: Sizes, tile: Tile, split: int, rate: float, each_result: float, ending: str) -> float:
    """As many blocks as fit, then as many again: each wave reads, multiplies and finishes."""
    blocks, multiprocessors = _blocks(sizes, tile) * split, machine().multiprocessors
    full, rest = divmod(blocks, tile.blocks * multiprocessors)
    rate *= tile.rate * (_WINDOW_SHARE if sizes.taps > 1 else 1.0)

    def wave(resident: int) -> float:
        busy = min(1.0, 0.3 + 0.7 * resident * tile.warps / _BUSY_WARPS)
        finishing = tile.rows * tile.columns / split * each_result + _joining(sizes, tile, split, ending)
        return _FILL_SECONDS + resident * (_operations(sizes, tile, split) / (rate * busy) + finishing)

    taken = full * wave(tile.blocks) + (wave(-(-rest // multiprocessors)) if rest else 0.0)
    return LAUNCH_SECONDS + max(taken, _memory(sizes, tile, ending))


def _blocks(sizes: Sizes, tile: Tile) -> int:
    return sizes.groups * -(-sizes.rows // tile.rows) * -(-sizes.columns // tile.columns)


def _operations(sizes: Sizes, tile: Tile, split: int) -> float:
    """Of one block."""
    stages = -(-sizes.depth // tile.depth)
    return 2.0 * tile.rows * tile.columns * -(-stages // split) * tile.depth


def _memory(sizes: Sizes, tile: Tile, ending: str) -> float:
    results = sizes.rows * sizes.columns * {CODES: 1, ADDED_CODES: 2, OTHERS: 4}[ending]
    moved = sizes.groups * (sizes.rows * sizes.depth + sizes.columns * sizes.depth + results)
    read = _blocks(sizes, tile) * (tile.rows + tile.columns) * sizes.depth
    return max(read / L2_BYTES_EACH_SECOND, moved / BYTES_EACH_SECOND)


def _joining(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    """Of one block of those that share a tile."""
    if split == 1:
        return 0.0
    if not machine().clusters:
        return 2 * LAUNCH_SECONDS + moved_sums(sizes) / BYTES_EACH_SECOND
    results = tile.rows * tile.columns / split
    added = results * _ADDED_AFTER_SHARING_SECONDS if ending == ADDED_CODES else 0.0
    return _JOIN_SECONDS + 4 * results * (split - 1) / _SHARED_BYTES_EACH_SECOND + added


def moved_sums(sizes: Sizes) -> int:
    """Bytes of int32 sums that are cleared, added to and read."""
    return 16 * sizes.groups * sizes.rows * sizes.columns
