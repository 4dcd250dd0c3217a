"""The tiles of graph_executor/cnn/implicit_*.cu, and how long a convolution takes with each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aicore_cuda_ge.kernels._conv_problem import Problem
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, FLOPS_EACH_MULTIPROCESSOR, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._product_times import LARGE_CLUSTER, LARGE_CLUSTER_SHARE

DEEPEST = 32
"""Packed weights have a multiple of so many rows, so that each tile's last stage is whole."""
SPLITS = (1, 2, 3, 4, 6, 8)
"""Blocks that may share the depth of a tile; a cluster of more is not portable."""


@dataclass(frozen=True)
class Tile:
    """kernel, index: where it is in the tables of graph_executor. rows, columns, depth: of a stage.

    threads: of a block. full: share of the arithmetic that a multiprocessor reaches when it holds as many blocks as it
        can; alone: when it holds one.
    """

    kernel: str
    index: int
    rows: int
    columns: int
    depth: int
    threads: int
    full: float
    alone: float

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor holds: 128 registers for each thread leave room for 512 threads."""
        return 512 // self.threads


ALIGNED = {
    "56x64x4": Tile("conv_implicit_sliced", 0, 56, 64, 32, 256, 0.62, 0.33),
    "56x64x2": Tile("conv_implicit_sliced", 1, 56, 64, 32, 128, 0.65, 0.21),
    "28x64x8": Tile("conv_implicit_sliced", 2, 28, 64, 32, 256, 0.50, 0.26),
    "28x128x4": Tile("conv_implicit_sliced", 3, 28, 128, 32, 256, 0.58, 0.32),
    "56x32x4": Tile("conv_implicit_sliced", 4, 56, 32, 32, 256, 0.58, 0.32),
    "64x64x4": Tile("conv_implicit_sliced", 5, 64, 64, 32, 256, 0.50, 0.37),
    "112x64": Tile("conv_implicit_large", 0, 112, 64, 16, 128, 0.76, 0.24),
    "112x128": Tile("conv_implicit_large", 1, 112, 128, 16, 256, 0.77, 0.49),
    "128x128": Tile("conv_implicit_large", 2, 128, 128, 16, 256, 0.63, 0.63),
}
"""By rows x columns and, if there are several, slices."""

UNALIGNED = {
    "56x64x2": Tile("conv_implicit_unaligned", 0, 56, 64, 32, 128, 0.36, 0.30),
    "112x64": Tile("conv_implicit_unaligned", 1, 112, 64, 16, 128, 0.43, 0.30),
    "56x32x4": Tile("conv_implicit_unaligned", 2, 56, 32, 32, 256, 0.31, 0.30),
}

_ROUND_SECONDS = 1.2e-6
"""Before the first product of a round of blocks: the first stages arrive."""
_RESULT_SECONDS = 0.21e-9
"""To scale, add, activate and write one result, for a multiprocessor."""
_GATHER_SECONDS = 0.8e-6
"""Of a tile of images whose channels are no fours: to find where its windows begin."""
_JOIN_SECONDS = 0.44e-6
"""Two barriers of a cluster."""
_JOIN_BYTES_EACH_SECOND = 57e9
"""Of sums that blocks of one multiprocessor read from each other's shared memory."""
_COLD_BYTES_EACH_SECOND = 0.9 * BYTES_EACH_SECOND


def padded_depth(problem: Problem) -> int:
    return -(-problem.depth // DEEPEST) * DEEPEST


def padded_columns(problem: Problem) -> int:
    """Maps of a group in packed weights: rows are aligned to 16 bytes."""
    return in_fours(problem.maps)


def packed_bytes(problem: Problem) -> int:
    """Of packed weights of all groups."""
    return 4 * problem.groups * padded_depth(problem) * padded_columns(problem)


def in_fours(count: int) -> int:
    """Up to a multiple of four."""
    return -(-count // 4) * 4


def blocks(problem: Problem, tile: Tile) -> tuple[int, int]:
    """(tiles of rows, tiles of columns of all groups)."""
    return -(-problem.rows // tile.rows), problem.groups * -(-problem.maps // tile.columns)


def seconds(problem: Problem, tile: Tile, split: int) -> float:
    """The work of the busiest multiprocessor, in rounds of as many blocks as it holds, or of the memory if longer.

    What counts with small images is that one block alone keeps a multiprocessor busy for a quarter to a third of the
    time, for want of warps, two of them for nearly twice as much; and that clusters of four and more find room in 90 %
    of the places only, beyond which they take a second round. The numbers are fitted to 707 times of 46 problems on an
    H200, by the time that choices lose and by the error of the estimates; those fitted to two thirds of the problems
    lost less than 1 % on the others, too.
    """
    stages = -(-problem.depth // tile.depth)
    split = min(split, stages) if machine().clusters else 1
    down, across = blocks(problem, tile)
    count = down * across * split
    places = machine().multiprocessors * (LARGE_CLUSTER_SHARE if split >= LARGE_CLUSTER else 1.0)
    busiest = -(-count // machine().multiprocessors)
    if count > places * tile.resident:
        busiest = max(busiest, math.ceil(count / places))
    one = 2.0 * tile.rows * tile.columns * tile.depth * -(-stages // split) / FLOPS_EACH_MULTIPROCESSOR
    rounds, rest = divmod(busiest, tile.resident)
    work = rounds * tile.resident * one / tile.full
    if rest:
        work += rest * one / min(tile.full, rest * tile.alone)
    results = busiest * tile.rows * tile.columns
    overheads = (rounds + bool(rest)) * _ROUND_SECONDS + results * _RESULT_SECONDS
    if problem.channels % 4:
        overheads += busiest * _GATHER_SECONDS
    if split > 1:
        overheads += _JOIN_SECONDS + 4 * results / _JOIN_BYTES_EACH_SECOND
    return LAUNCH_SECONDS + overheads + max(work, problem.nbytes / _COLD_BYTES_EACH_SECOND)
