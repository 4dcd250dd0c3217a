"""Tiles of the compiled kernels; `tile_times` says how long a product takes with each."""

from __future__ import annotations

from dataclasses import dataclass

from aicore_int8_quant.cuda.launch import machine

SPLITS = (1, 2, 4, 8)
"""Blocks that may share the depth of a tile; a cluster of more is not portable."""
LAUNCH_SECONDS = 1.1e-6
"""From the beginning of one small kernel of a graph to that of the next."""
BYTES_EACH_SECOND, L2_BYTES_EACH_SECOND = 4.0e12, 10.2e12
"""Of memory, and of the cache that all multiprocessors share, by blocks that copy whole stages."""


@dataclass(frozen=True)
class Tile:
    """index: in the list of the .cu file. rows, columns: of the result. depth: of a stage. warps: of a block.

    stages: in shared memory. rate: share of a multiprocessor's arithmetic that it reaches when that is full.
    codes: of how many tiles there is room behind the stages. blocks: of a multiprocessor at a time.
    streams: the same where blocks go from tile to tile, which they do when results are codes; 0 if they never do.
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
    streams: int = 0

    @property
    def shared_bytes(self) -> int:
        """Of shared memory: stages, and in their place sums with eight words more to a row; then what finishes them."""
        stages = self.stages * (self.rows + self.columns) * self.depth + self.codes * self.rows * (self.columns + 16)
        return max(4 * self.rows * (self.columns + 8), stages) + max(1, min(2, self.codes)) * (8 * self.columns + 32)

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps


DP4A = {
    "128x256": Tile(0, 128, 256, 64, 8, 3, 0.81),
    "128x128": Tile(1, 128, 128, 64, 8, 3, 0.62, blocks=2),
    "64x128": Tile(2, 64, 128, 64, 4, 3, 0.69, blocks=3),
    "64x128x2": Tile(3, 64, 128, 128, 8, 3, 0.84),
    "64x64x2": Tile(4, 64, 64, 128, 4, 3, 0.76, blocks=2),
    "16x64x4": Tile(5, 16, 64, 128, 8, 4, 0.66, blocks=2),
}
"""By rows x columns and, if there are several, slices of warps. 16 rows are for few rows, which memory bounds."""
DP4A_IMAGES = {name: DP4A[name] for name in ("128x128", "64x128", "64x64x2", "16x64x4")}
"""Those for convolutions."""
MMA = {
    "256x128": Tile(0, 256, 128, 128, 8, 4, 0.70),
    "128x256": Tile(1, 128, 256, 128, 8, 4, 0.72),
    "128x128": Tile(2, 128, 128, 128, 4, 3, 0.63, blocks=2),
    "64x64": Tile(3, 64, 64, 128, 4, 4, 0.45, blocks=3),
    "128x128s": Tile(4, 128, 128, 64, 8, 3, 0.40, codes=3, blocks=2, streams=2),
    "128x64s": Tile(5, 128, 64, 64, 8, 3, 0.30, codes=3, blocks=2, streams=3),
    "64x64s": Tile(6, 64, 64, 64, 4, 4, 0.30, codes=4, blocks=5, streams=4),
}
"""Those with an s have short stages, and blocks that go from tile to tile where results are codes."""
WARPGROUP = {
    "128x128": Tile(0, 128, 128, 128, 8, 5, 0.64, codes=1),
    "128x64": Tile(1, 128, 64, 128, 8, 4, 0.45, codes=1, blocks=2),
}
WGMMA = {"128x256": Tile(0, 128, 256, 128, 12, 4, 1.0)}
CODES, ADDED_CODES, OTHERS = "codes", "codes and an addend", "others"
"""What becomes of sums: codes, the same with a residual of codes, anything else."""


def fitting(tiles: dict[str, Tile]) -> tuple[str, ...]:
    """Those that a block of this machine has room for."""
    return tuple(name for name, tile in tiles.items() if tile.shared_bytes <= machine().shared_bytes)
