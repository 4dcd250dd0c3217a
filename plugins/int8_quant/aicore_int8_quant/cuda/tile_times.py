"""How long a product takes with a tile: an estimate that choices are made by where nothing was measured.

A block asks for stages of both operands, multiplies one after the other, and finishes its tile. Of the blocks that a
multiprocessor has at a time each takes as long as it would alone, or as long as all of them need the multiprocessor.

Fitted to 120 products and convolutions on an H200, small and large, aligned and not, with codes, residuals and real
numbers for results; 90 others were drawn to check it.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicore_int8_quant.cuda import tiles
from aicore_int8_quant.cuda.launch import machine
from aicore_int8_quant.cuda.problem import Sizes
from aicore_int8_quant.cuda.tiles import ADDED_CODES, BYTES_EACH_SECOND, CODES, LAUNCH_SECONDS, OTHERS, Tile

WGMMA_EACH_MULTIPROCESSOR = 1.6e15 / 132
"""Operations a second with every number in registers, as measured on an H200."""
_COPY_SECONDS, _TURNED_COPY_SECONDS, _COPIED_BYTES_EACH_SECOND = 2.3e-6, 7.3e-6, 0.83e12
"""Of x where tiles cannot copy it as it lies: at least, the same for channels first, and for what is written."""
_COLD_BYTES, _COLD_BYTES_EACH_SECOND = 0.8e6, 2.1e12
"""Of weights that do not stay in the cache from one run of a program to the next; and how fast blocks read them."""
_COLD_STAGE_SECONDS = 0.30e-6
"""Of a stage of such weights, at least."""
_WINDOW_SECONDS, _WINDOW_STAGE_SECONDS = 0.48e-6, 0.11e-6
"""Where rows are windows: to find where one begins, for each row that a thread copies; and of each stage."""
_STREAM_SECONDS = 3.0e-6
"""Of a block that goes from tile to tile, until its first stage has come."""
_CLUSTER_MULTIPROCESSORS = {1: 1.0, 2: 1.0, 4: 0.94, 8: 0.85}
"""The share of all that clusters of so many blocks find room on: each stays in one part of the GPU, with a rest."""


@dataclass(frozen=True)
class Pace:
    """How a kernel gets on. Seconds, but for the first.

    operations: each second of a multiprocessor with every number in registers, as measured on an H200.
    begin: of a block, until its first stage has come. stage: of a block, at least.
    join: of blocks that add up each other's sums, at least.
    """

    operations: float
    begin: float
    stage: float
    join: float = 0.0


_DP4A = Pace(132.6e12 / 132, begin=1.81e-6, stage=0.49e-6, join=0.40e-6)
_MMA = Pace(1.2e15 / 132, begin=2.35e-6, stage=0.20e-6, join=0.73e-6)
_WARPGROUP = Pace(WGMMA_EACH_MULTIPROCESSOR, begin=1.57e-6, stage=0.47e-6, join=1.37e-6)
_WGMMA = Pace(WGMMA_EACH_MULTIPROCESSOR, begin=1.86e-6, stage=0.30e-6)


@dataclass(frozen=True)
class Finish:
    """How sums become results. turn: in which each thread of a block finishes four. each: of a multiprocessor's.

    Residuals of codes come on top.
    """

    turn: float
    each: float
    residual_turn: float = 0.0
    residual: float = 0.0


_STRAIGHT = Finish(0.058e-6, 0.078e-9, 0.17e-6, 0.15e-9)
"""Whole chunks of codes, from the sums that threads hold."""
_WORDS = Finish(0.28e-6, 0.21e-9, 0.92e-6, 0.10e-9)
"""Codes in fours, by way of shared memory, as all others."""
_BYTES = Finish(1.22e-6, 0.30e-9, 0.92e-6, 0.10e-9)
"""Single codes."""
_REALS = Finish(1.00e-6, 0.30e-9)
_QUEUED = Finish(0.34e-6, 0.20e-9)
"""By wgmma, whose other warps fetch stages meanwhile."""
_JOINED_TURN_SECONDS = 0.14e-6
"""Of each turn, for each other block whose sums are added."""
_RESULT_BYTES = {CODES: 1, ADDED_CODES: 2, OTHERS: 4}


def dp4a_seconds(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    return _seconds(sizes, tile, split, ending, _DP4A, _finish(sizes, ending, straight=False))


def mma_seconds(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    return _seconds(sizes, tile, split, ending, _MMA, _finish(sizes, ending, straight=split == 1))


def warpgroup_seconds(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    return _seconds(sizes, tile, split, ending, _WARPGROUP, _finish(sizes, ending, straight=split == 1))


def wgmma_seconds(sizes: Sizes, tile: Tile, split: int, ending: str) -> float:
    return _seconds(sizes, tile, split, ending, _WGMMA, _QUEUED)


def copy_seconds(nbytes: int, turned: bool = False) -> float:
    """Of a copy of x that is so large, from channels first if turned; 0 for none."""
    if not nbytes:
        return 0.0
    return (_TURNED_COPY_SECONDS if turned else _COPY_SECONDS) + nbytes / _COPIED_BYTES_EACH_SECOND


def _finish(sizes: Sizes, ending: str, straight: bool) -> Finish:
    """As csrc/codes.cuh and tile.cuh tell them apart."""
    lines = sizes.columns | sizes.y_row | sizes.y_group
    if ending == OTHERS:
        return _REALS
    if straight and lines % 16 == 0:
        return _STRAIGHT
    return _WORDS if (lines | sizes.y_image) % 4 == 0 else _BYTES


@dataclass(frozen=True)
class _Block:
    """Seconds of one block; of stages and finishing, those of the block alone and those of the multiprocessor."""

    begin: float
    window: float
    stages: float
    shared_stages: float
    finish: float
    shared_finish: float
    join: float

    def tile(self, resident: int) -> float:
        """Of one tile of so many blocks at a time, once the first stage has come."""
        stages = max(self.stages, resident * self.shared_stages)
        return stages + max(self.finish, resident * self.shared_finish)

    def wave(self, resident: int) -> float:
        return self.begin + self.window + self.tile(resident) + self.join

    def stream(self, resident: int, length: int) -> float:
        """Of blocks that go on to `length` tiles, and find windows in each of them."""
        return _STREAM_SECONDS + length * (self.window + self.tile(resident))


def _seconds(sizes: Sizes, tile: Tile, split: int, ending: str, pace: Pace, finish: Finish) -> float:
    multiprocessors = machine().multiprocessors
    tiles_each = -(-sizes.rows // tile.rows) * -(-sizes.columns // tile.columns)
    if not sizes.groups * tiles_each:
        return LAUNCH_SECONDS
    block = _block(sizes, tile, split, ending, pace, finish)
    if tile.streams and finish is _STRAIGHT:
        each = min(tiles_each, tile.streams * multiprocessors)  # blocks of a group
        rounds = -(-sizes.groups * each // (tile.streams * multiprocessors))
        resident = min(-(-sizes.groups * each // multiprocessors), tile.streams)
        taken, begin = rounds * block.stream(resident, -(-tiles_each // each)), _STREAM_SECONDS
    else:
        used = max(1, int(_CLUSTER_MULTIPROCESSORS[split] * multiprocessors)) if machine().clusters else multiprocessors
        full, rest = divmod(sizes.groups * tiles_each * split, tile.blocks * used)
        taken, begin = full * block.wave(tile.blocks) + (block.wave(-(-rest // used)) if rest else 0.0), block.begin
    return LAUNCH_SECONDS + max(taken, begin + block.window + _memory(sizes, ending))


def _block(sizes: Sizes, tile: Tile, split: int, ending: str, pace: Pace, finish: Finish) -> _Block:
    rows, columns = min(tile.rows, sizes.rows), min(tile.columns, sizes.columns)
    all_stages = -(-sizes.depth // tile.depth)
    stages = -(-all_stages // split)
    arithmetic = 2 * tile.rows * tile.columns * tile.depth / (pace.operations * tile.rate)
    read = (rows + columns) * tile.depth * machine().multiprocessors / tiles.L2_BYTES_EACH_SECOND
    shared = max(arithmetic, read)
    alone = max(pace.stage, _COLD_STAGE_SECONDS) if _is_cold(sizes) else pace.stage
    window = 0.0
    if sizes.taps:
        alone += _WINDOW_STAGE_SECONDS
        window = _WINDOW_SECONDS * max(1.0, tile.rows * tile.depth / (16 * tile.threads))
    turns, results = _finishing(tile, rows, columns, split, finish)
    turn, each = finish.turn, finish.each
    if ending == ADDED_CODES:
        turn, each = turn + finish.residual_turn, each + finish.residual
    return _Block(
        begin=pace.begin,
        window=window,
        stages=stages * max(shared, alone),
        shared_stages=stages * shared,
        finish=turns * turn * (min(columns, 4) / 4 if finish in (_BYTES, _REALS) else 1.0),
        shared_finish=results * each,
        join=_joining(sizes, pace, split, turns),
    )


def _finishing(tile: Tile, rows: int, columns: int, split: int, finish: Finish) -> tuple[float, float]:
    """Turns and results of a block: of the whole tile, or where sums wait in shared memory of what there is of it."""
    if finish in (_STRAIGHT, _QUEUED):
        return tile.rows * tile.columns / (4 * tile.threads), tile.rows * tile.columns
    turns = -(-min(tile.rows // split, rows) * tile.columns // (4 * tile.threads))
    return turns, rows * columns / split


def _is_cold(sizes: Sizes) -> bool:
    return _weight_bytes(sizes) > _COLD_BYTES


def _weight_bytes(sizes: Sizes) -> int:
    return sizes.groups * sizes.columns * sizes.b_row


def _memory(sizes: Sizes, ending: str) -> float:
    """Of reading operands and writing results once."""
    images = sizes.rows * sizes.depth // max(1, sizes.taps)
    moved = sizes.groups * (images + sizes.rows * sizes.columns * _RESULT_BYTES[ending]) + _weight_bytes(sizes)
    cold = _weight_bytes(sizes) / _COLD_BYTES_EACH_SECOND if _is_cold(sizes) else 0.0
    return max(moved / BYTES_EACH_SECOND, cold)


def _joining(sizes: Sizes, pace: Pace, split: int, turns: float) -> float:
    """Of one block of those that share a tile."""
    if split == 1:
        return 0.0
    if not machine().clusters:
        return 2 * LAUNCH_SECONDS + moved_sums(sizes) / BYTES_EACH_SECOND
    return pace.join + turns * (split - 1) * _JOINED_TURN_SECONDS


def moved_sums(sizes: Sizes) -> int:
    """Bytes of int32 sums that are cleared, added to and read."""
    return 16 * sizes.groups * sizes.rows * sizes.columns
