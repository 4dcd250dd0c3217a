"""The tiles of graph_executor/kernels/tensor, and how long products and convolutions take with each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from aicore_cuda_ge.kernels._machine import BYTES_EACH_SECOND, LAUNCH_SECONDS, machine
from aicore_cuda_ge.kernels._packing import item_bytes
from aicore_cuda_ge.kernels._product_times import LARGE_CLUSTER, LARGE_CLUSTER_SHARE

SPLITS = (1, 2, 4, 8)
"""Blocks that may share the inner axis of a tile; a cluster of more is not portable."""
L2_BYTES_EACH_SECOND = 6.2e12
STAGE_BYTES = 128
"""Of a row of a or b, in a stage."""
TF32 = "tf32"
_FLOPS_EACH_MULTIPROCESSOR = {"float32": 225e12 / 132, "float16": 620e12 / 132, "bfloat16": 620e12 / 132}
"""What mma.sync reaches on an H200; float32 in tf32."""
_NAMES = {"float32": TF32}
_FILL_SECONDS = 0.1e-6
"""Of a wave of blocks, before the first product; most of it passes while others compute."""
_TAIL_FLOPS, _RARE_TAIL_FLOPS = 300, 560
"""Of a result, beside its products: to store it; the second with exponentials and their like."""
_JOIN_SECONDS = 0.33e-6
"""Of a cluster, each time that it doubles: its blocks begin and meet together."""
_JOIN_BYTES_EACH_SECOND = 20e9
"""Of sums that blocks of one multiprocessor read from each other's shared memory."""


@dataclass(frozen=True)
class Tile:
    """index: in the list of graph_executor/kernels/tensor/launch.cuh. rows, columns: of y.

    warps, shared_bytes: of a block. resident: blocks that a multiprocessor holds at once. rate: share of its
    arithmetic that it reaches when it holds them all; alone: when it holds one.
    """

    index: int
    rows: int
    columns: int
    warps: int
    shared_bytes: int
    resident: int
    rate: float
    alone: float


TILES = {
    "128x128": Tile(0, 128, 128, 4, 110_592, 2, 0.65, 0.42),
    "128x64": Tile(1, 128, 64, 4, 82_944, 2, 0.48, 0.31),
    "64x64": Tile(2, 64, 64, 4, 73_728, 3, 0.48, 0.37),
    "64x64x2": Tile(3, 64, 64, 8, 73_728, 1, 0.42, 0.42),
    "32x64x2": Tile(4, 32, 64, 4, 55_296, 2, 0.32, 0.27),
    "32x32x4": Tile(5, 32, 32, 4, 36_864, 3, 0.26, 0.20),
}
"""By rows x columns and, if there are several, slices."""


@dataclass(frozen=True)
class Work:
    """A batch of products.

    moved: bytes that are read and written at least. rare: an activation with exponentials or their like follows.
    """

    dtype: str
    batch: int
    rows: int
    columns: int
    inner: int
    moved: int
    rare: bool = False


def kernel_name(dtype: str) -> str:
    """What the compiled kernels of an element type end in."""
    return _NAMES.get(dtype, dtype)


def chunk(dtype: str) -> int:
    """Elements that are copied at once: 16 bytes."""
    return 16 // item_bytes(dtype)


def padded(count: int, dtype: str) -> int:
    """Up to a multiple of 16 bytes."""
    each = chunk(dtype)
    return -(-count // each) * each


def tiles() -> tuple[str, ...]:
    """Those that a block of this machine has room for."""
    return tuple(name for name, tile in TILES.items() if tile.shared_bytes <= machine().shared_bytes)


def settings() -> dict[str, tuple[Any, ...]]:
    """What the kernels on tensor cores are tuned over."""
    return {"tile": tiles(), "split": SPLITS}


def reason_against_machine() -> str | None:
    """Tensor cores multiply these types from compute capability 8.0 on."""
    return None if machine().capability >= 80 else "takes GPUs of compute capability 8.0 and above"


def seconds(work: Work, name: str, split: int) -> float:
    """The work of the busiest multiprocessor, or of memory if that takes longer."""
    tile, facts = TILES[name], machine()
    depth = STAGE_BYTES // item_bytes(work.dtype)
    stages = -(-work.inner // depth)
    split = max(min(split, stages), 1) if facts.clusters else 1
    blocks = split * work.batch * -(-work.rows // tile.rows) * -(-work.columns // tile.columns)
    length = -(-stages // split) * depth
    results = tile.rows * tile.columns
    tail = (_RARE_TAIL_FLOPS if work.rare else _TAIL_FLOPS) / split
    one = results * (2.0 * length + tail) / _FLOPS_EACH_MULTIPROCESSOR[work.dtype]
    large = split >= LARGE_CLUSTER
    busiest = math.ceil(blocks / (facts.multiprocessors * (LARGE_CLUSTER_SHARE if large else 1.0)))
    resident, rate = (1, tile.alone) if split > LARGE_CLUSTER else (tile.resident, tile.rate)
    if 1 < busiest < resident:
        busiest = resident  # early blocks fill the multiprocessors that are free first, not evenly
    waves, rest = divmod(busiest, resident)
    last = rest * one / min(rate, tile.alone * rest) if rest else 0.0
    taken = waves * resident * one / rate + last
    read = blocks * (tile.rows + tile.columns) * length * item_bytes(work.dtype)
    taken = max(taken, read / L2_BYTES_EACH_SECOND, work.moved / BYTES_EACH_SECOND)
    join = _JOIN_SECONDS * math.log2(split) + 4 * busiest * results / _JOIN_BYTES_EACH_SECOND if split > 1 else 0.0
    return LAUNCH_SECONDS + (waves + bool(rest)) * _FILL_SECONDS + taken + join
