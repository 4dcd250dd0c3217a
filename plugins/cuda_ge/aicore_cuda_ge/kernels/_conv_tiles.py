"""The tiles of graph_executor/cnn/implicit_*.cu, and how long a convolution takes with each."""

from __future__ import annotations

from dataclasses import dataclass

from aicore_cuda_ge.kernels._conv_problem import Problem
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, FLOPS_EACH_MULTIPROCESSOR, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._product_times import LARGE_CLUSTER

DEEPEST = 32
"""Packed weights have a multiple of so many rows, so that each tile's last stage is whole."""
SPLITS = (1, 2, 3, 4, 6, 8)
"""Blocks that may share the depth of a tile; a cluster of more is not portable."""


@dataclass(frozen=True)
class Tile:
    """kernel, index: where it is in the tables of graph_executor. rows, columns, depth: of a stage.

    threads: of a block. rate: share of the GPU's arithmetic that it reaches when every multiprocessor is full.
    """

    kernel: str
    index: int
    rows: int
    columns: int
    depth: int
    threads: int
    rate: float


ALIGNED = {
    "56x64x4": Tile("conv_implicit_sliced", 0, 56, 64, 32, 256, 0.6),
    "56x64x2": Tile("conv_implicit_sliced", 1, 56, 64, 32, 128, 0.6),
    "28x64x8": Tile("conv_implicit_sliced", 2, 28, 64, 32, 256, 0.52),
    "28x128x4": Tile("conv_implicit_sliced", 3, 28, 128, 32, 256, 0.55),
    "56x32x4": Tile("conv_implicit_sliced", 4, 56, 32, 32, 256, 0.5),
    "64x64x4": Tile("conv_implicit_sliced", 5, 64, 64, 32, 256, 0.58),
    "112x64": Tile("conv_implicit_large", 0, 112, 64, 16, 128, 0.63),
    "112x128": Tile("conv_implicit_large", 1, 112, 128, 16, 256, 0.63),
    "128x128": Tile("conv_implicit_large", 2, 128, 128, 16, 256, 0.62),
}
"""By rows x columns and, if there are several, slices."""

UNALIGNED = {
    "56x64x2": Tile("conv_implicit_unaligned", 0, 56, 64, 32, 128, 0.39),
    "112x64": Tile("conv_implicit_unaligned", 1, 112, 64, 16, 128, 0.43),
    "56x32x4": Tile("conv_implicit_unaligned", 2, 56, 32, 32, 256, 0.34),
}

_FILL_SECONDS = 1.2e-6
"""Before the first product: the first stages arrive."""
_JOIN_SECONDS = 0.7e-6
"""Two barriers of a cluster, and reading each other's sums."""
_JOIN_BYTES_EACH_SECOND = 40e9
"""Of sums that blocks of one multiprocessor read from each other's shared memory."""
_NEXT_SECONDS_EACH_RESULT, _NEXT_JOIN_SECONDS = 0.15e-9, 0.35e-6
"""The same, for each further block of a multiprocessor: in part others compute meanwhile."""
_FULL = 256
"""Threads that keep a multiprocessor about busy."""


def padded_depth(problem: Problem) -> int:
    return -(-problem.depth // DEEPEST) * DEEPEST


def padded_columns(problem: Problem) -> int:
    """Maps of a group in packed weights: rows are aligned to 16 bytes."""
    return in_fours(problem.maps)


def in_fours(count: int) -> int:
    """Up to a multiple of four."""
    return -(-count // 4) * 4


def blocks(problem: Problem, tile: Tile) -> tuple[int, int]:
    """(tiles of rows, tiles of columns of all groups)."""
    return -(-problem.rows // tile.rows), problem.groups * -(-problem.maps // tile.columns)


def seconds(problem: Problem, tile: Tile, split: int) -> float:
    """The work of the busiest multiprocessor, or of the memory if that takes longer."""
    stages = -(-problem.depth // tile.depth)
    split = min(split, stages) if machine().clusters else 1
    down, across = blocks(problem, tile)
    flops = 2.0 * tile.rows * tile.columns * tile.depth * -(-stages // split)
    most = -(-down * across * split // machine().multiprocessors)
    together = 1 if split >= LARGE_CLUSTER and tile.threads >= _FULL else most
    # A multiprocessor with one small block waits more than it computes.
    rate = FLOPS_EACH_MULTIPROCESSOR * tile.rate * min(1.0, 0.4 + 0.6 * together * tile.threads / (2 * _FULL))
    work = max(most * flops / rate, problem.nbytes / BYTES_EACH_SECOND)
    join = split > 1
    results = tile.rows * tile.columns
    each = results * _NEXT_SECONDS_EACH_RESULT + join * (_NEXT_JOIN_SECONDS + 4 * results / _JOIN_BYTES_EACH_SECOND)
    overheads = _FILL_SECONDS + join * _JOIN_SECONDS + max(most - 1, 0) * each
    return LAUNCH_SECONDS + overheads + work
