"""The tiles of graph_executor/cnn/weight_gradient.cu, and how long the gradient of weights takes with each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aicore_cuda_ge.kernels._conv_problem import Problem
from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, FLOPS_EACH_MULTIPROCESSOR, LAUNCH_SECONDS, machine

STEP = 16
"""Pixels of a stage."""
BLOCKS = (1, 2, 4, 8)
"""Blocks for each multiprocessor, which splits make of few tiles."""
_MOST_SPLITS = 512
_LEAST_STAGES = 4
"""Of a split: fewer are over before the first copies have come."""


@dataclass(frozen=True)
class Tile:
    """index: in the list of weight_gradient.cu. rows, columns: maps, and taps and channels. threads: of a block.

    dy_four, x_four: whether it reads four numbers at once. resident: blocks of a multiprocessor. full: share of the
    arithmetic that these reach together, alone: one of them.
    """

    index: int
    rows: int
    columns: int
    threads: int
    dy_four: bool
    x_four: bool
    resident: int
    full: float
    alone: float


ALIGNED = {
    "128x128": Tile(0, 128, 128, 256, True, True, 2, 0.70, 0.50),
    "64x128": Tile(1, 64, 128, 128, True, True, 4, 0.66, 0.28),
    "64x64": Tile(2, 64, 64, 128, True, True, 5, 0.52, 0.22),
    "32x64": Tile(3, 32, 64, 128, True, True, 8, 0.38, 0.14),
}
"""By rows x columns; of channels and maps in fours."""
CHANNELS = {
    "64x64": Tile(4, 64, 64, 128, True, False, 4, 0.30, 0.15),
    "32x64": Tile(5, 32, 64, 128, True, False, 6, 0.22, 0.10),
}
"""Of any channels."""
ANY = {"32x64": Tile(6, 32, 64, 128, False, False, 5, 0.15, 0.08)}
"""Of any channels and maps."""

_ROUND_SECONDS = 1.5e-6
"""Until the first stages have come, and until sums are written."""


def splits_of(problem: Problem, tile: Tile, blocks: int) -> int:
    """Into how many parts pixels are cut, so that each multiprocessor has `blocks` blocks, or fewer."""
    stages = -(-problem.rows // STEP)
    wanted = blocks * machine().multiprocessors // _tiles(problem, tile)
    return max(1, min(wanted, stages // _LEAST_STAGES, _MOST_SPLITS))


def partial_bytes(problem: Problem, splits: int) -> int:
    """Of the sums that splits leave."""
    return 4 * splits * problem.outputs * problem.depth


def seconds(problem: Problem, tile: Tile, blocks: int) -> float:
    """The work of the busiest multiprocessor, or of the memory if longer, and the launch that adds up splits."""
    splits = splits_of(problem, tile, blocks)
    busiest = -(-_tiles(problem, tile) * splits // machine().multiprocessors)
    length = -(-problem.rows // (STEP * splits)) * STEP
    one = 2.0 * tile.rows * tile.columns * length / FLOPS_EACH_MULTIPROCESSOR
    rounds, rest = divmod(busiest, tile.resident)
    work = rounds * tile.resident * one / tile.full
    if rest:
        work += rest * one / min(tile.full, rest * tile.alone)
    moved = problem.nbytes / (0.9 * BYTES_EACH_SECOND)
    partial = partial_bytes(problem, splits) / (0.6 * BYTES_EACH_SECOND)
    return 2 * LAUNCH_SECONDS + _ROUND_SECONDS * math.ceil(busiest / tile.resident) + max(work, moved) + 2 * partial


def _tiles(problem: Problem, tile: Tile) -> int:
    return problem.groups * -(-problem.maps // tile.rows) * -(-problem.depth // tile.columns)
